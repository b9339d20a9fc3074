// Search in pages that are opened as files, where browsers allow no workers: the worker's script runs in a hidden frame.
if (location.protocol === "file:") {
  const load = (inside, src) =>
    new Promise((done, failed) => {
      const script = Object.assign(inside.document.createElement("script"), { src, onload: done, onerror: failed });
      inside.document.head.append(script);
    });
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, srcdoc: "<!doctype html>" });
      this.inside = new Promise((done) => {
        frame.onload = async () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          inside.importScripts = async (...scripts) => {
            for (const one of scripts) await load(inside, one);
          };
          await load(inside, new URL(url, location));
          done(inside);
        };
      });
      document.body.append(frame);
    }
    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}

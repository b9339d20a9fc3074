// ONNX Runtime Web with WebGPU, which suspends WebAssembly while the graphics processor computes. Browsers that cannot
// suspend it (JSPI) compute on the processor alone, where nothing is suspended: for them these functions do nothing.

interface Suspension {
  Suspending?: unknown;
  promising?: unknown;
}

const program = WebAssembly as Suspension;
program.Suspending ??= class {
  constructor(called: object) {
    return called;
  }
};
program.promising ??= (called: unknown) => called;

// ONNX Runtime's worker posts what it caught. A WebAssembly exception cannot be cloned: without this the page would get no
// answer, and wait forever.
if (typeof document === "undefined") {
  const worker = globalThis as unknown as { postMessage(message: { type: string; err?: unknown }, moved?: Transferable[]): void };
  const post = worker.postMessage;
  worker.postMessage = (message, moved) => {
    try {
      post(message, moved);
    } catch {
      post({ type: message.type, err: String(message.err ?? "This result cannot be cloned.") });
    }
  };
}

export * from "onnxruntime-web/jspi";

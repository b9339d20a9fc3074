// ONNX Runtime Web, loaded once.

import type { InferenceSession, Tensor } from "onnxruntime-web";
import { fetchPacked, loading } from "./weights";

export interface Engine {
  Tensor: typeof Tensor;
  open(graph: Uint8Array, externalData: { path: string; data: Uint8Array }[], provider: Provider): Promise<InferenceSession>;
}

const PROVIDERS = {
  wasm: { name: "wasm" },
  // Operators that are named so are rough or wrong in WebGPU; names may take 2,048 bytes in all.
  webgpu: { name: "webgpu", forceCpuNodeNames: Array.from({ length: 300 }, (_, number) => `x${number}`) },
};

export type Provider = keyof typeof PROVIDERS;

let loaded: Promise<Engine> | undefined;
let turn: Promise<unknown> = Promise.resolve();

/** Does one thing after another: the engine opens and runs graphs one at a time. */
export function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const done = turn.then(work);
  turn = done.catch(() => null);
  return done;
}

/** Loads the engine. */
export function engine(): Promise<Engine> {
  return (loaded ??= load());
}

async function load(): Promise<Engine> {
  const place = new URL("engine/library", document.baseURI).href;
  const program = loading(fetchPacked(`${place}.bin`));
  const ort = await import("./runtime");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: `${place}.mjs` };
  ort.env.wasm.wasmBinary = await program;
  ort.env.wasm.proxy = true; // in a worker: the page is drawn meanwhile
  ort.env.logLevel = "error";
  return {
    Tensor: ort.Tensor,
    open: (graph, externalData, provider) =>
      ort.InferenceSession.create(graph, { executionProviders: [PROVIDERS[provider]], externalData, logSeverityLevel: 3 }),
  };
}

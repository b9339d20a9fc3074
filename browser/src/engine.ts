// ONNX Runtime Web, loaded once.

import type { InferenceSession, Tensor } from "onnxruntime-web";
import { fetchCompressed, fetchFile } from "./weights";

type Runtime = typeof import("onnxruntime-web/wasm");

export interface Engine {
  Tensor: typeof Tensor;
  /** "webgpu" or "wasm". */
  provider: string;
  open(graph: Uint8Array, externalData: { path: string; data: Uint8Array }[]): Promise<InferenceSession>;
}

let loaded: Promise<Engine> | undefined;
let turn: Promise<unknown> = Promise.resolve();

/** Does one thing after another: the engine opens and runs graphs one at a time. */
export function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const done = turn.then(work);
  turn = done.catch(() => null);
  return done;
}

/** Loads the engine. With `?engine=wasm` in the page's address it stays off a GPU. */
export function engine(): Promise<Engine> {
  return (loaded ??= load());
}

async function load(): Promise<Engine> {
  if (typeof WebAssembly !== "object") {
    throw new Error("This browser has no WebAssembly, or it is switched off; the models need it.");
  }
  const provider = (await onGpu()) ? "webgpu" : "wasm";
  const place = new URL(`engine/${provider}/library`, document.baseURI).href;
  const program = fetchCompressed(`${place}.bin`);
  const ort: Runtime = await (provider === "webgpu" ? import("onnxruntime-web/webgpu") : import("onnxruntime-web/wasm"));
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: `${place}.mjs` };
  ort.env.wasm.wasmBinary = await program;
  ort.env.logLevel = "error";
  const executionProviders = provider === "webgpu" ? ["webgpu", "wasm"] : ["wasm"];
  return {
    Tensor: ort.Tensor,
    provider,
    open: (graph, externalData) => ort.InferenceSession.create(graph, { executionProviders, externalData, logSeverityLevel: 3 }),
  };
}

/** Whether the page has the engine for GPUs, and the browser a GPU for it. */
async function onGpu(): Promise<boolean> {
  if (new URLSearchParams(location.search).get("engine") === "wasm") return false;
  const { engines } = await (await fetchFile(new URL("models/index.json", document.baseURI).href)).json();
  if (!engines.includes("webgpu")) return false;
  const gpu = (navigator as { gpu?: { requestAdapter(): Promise<unknown> } }).gpu;
  return Boolean(await gpu?.requestAdapter().catch(() => null));
}

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

export * from "onnxruntime-web/jspi";

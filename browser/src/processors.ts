// What computes: WebAssembly, or WebGPU where a browser has it and it computes the same numbers.

import type { Outputs } from "./model";

/** WebGPU, or why WebAssembly computes instead. */
export type Processor = "webgpu" | "chosen" | "noAdapter" | "noSuspension" | "slower" | "differs" | "failed";

export type Choice = "" | "wasm" | "webgpu";

/** Largest difference between numbers that count as equal, absolute and relative. */
const TOLERANCE = 1e-4;

/** Whether WebAssembly can wait for WebGPU (JSPI). */
const suspends = typeof WebAssembly === "object" && "Suspending" in WebAssembly;

const given = new URLSearchParams(globalThis.location?.search).get("processor");
let choice: Choice = given === "wasm" || given === "webgpu" ? given : "";

/** What a reader wants: by default WebGPU, unless it is computed by software. */
export const chosen = (): Choice => choice;

export function choose(wanted: Choice): void {
  choice = wanted;
}

/** Why WebGPU cannot compute here or should not, null if nothing is against it. */
export async function obstacle(): Promise<Processor | null> {
  if (choice === "wasm") return "chosen";
  if (!suspends) return "noSuspension";
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  if (!adapter) return "noAdapter";
  return adapter.info.isFallbackAdapter && choice !== "webgpu" ? "slower" : null;
}

/** Whether logits, attention and norms are equal to rounding. */
export function agree(some: Outputs, others: Outputs): boolean {
  const tensors = ({ logits, attention, norms }: Outputs) => [logits, ...Object.values(attention), ...Object.values(norms)];
  const found = tensors(others);
  return tensors(some).every(({ data }, i) =>
    data.every((value, j) => Math.abs(value - found[i]!.data[j]!) <= TOLERANCE * (1 + Math.abs(value))),
  );
}

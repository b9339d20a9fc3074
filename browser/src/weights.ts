// Weights of a model: one compressed file, in which numbers that half precision holds exactly are stored so.

import type { Unpacked } from "./unpacking";
import { words } from "./words";

/** Fetches a file, or throws an error that a reader of the page understands. */
export async function fetchFile(address: string): Promise<Response> {
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok) throw new Error(words().noFile(address));
  return answer;
}

/** Fetches a gzip-compressed JSON file, under any type that the server gives it. */
export async function fetchCompressed<Content>(address: string): Promise<Content> {
  const { body } = await fetchFile(address);
  try {
    return await new Response(body!.pipeThrough(new DecompressionStream("gzip"))).json();
  } catch {
    throw new Error(words().damaged(address));
  }
}

/** What is awaited later, where an error is shown. */
export function loading<Content>(content: Promise<Content>): Promise<Content> {
  content.catch(() => null);
  return content;
}

type Waiting = { resolve: (content: Uint8Array<ArrayBuffer>) => void; reject: (error: Error) => void };
const waiting = new Map<number, Waiting>();
let requests = 0;
let worker: Worker | undefined;

/** Fetches an xz-compressed file in a worker: drawing goes on meanwhile. */
export function fetchPacked(address: string): Promise<Uint8Array<ArrayBuffer>> {
  if (typeof WebAssembly !== "object") return Promise.reject(new Error(words().noWebAssembly));
  worker ??= new Worker(new URL("./unpacking.ts", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }: MessageEvent<Unpacked>) => {
    const { resolve, reject } = waiting.get(data.request)!;
    waiting.delete(data.request);
    if (data.content) resolve(new Uint8Array(data.content));
    else reject(new Error(words()[data.problem!](data.address)));
  };
  return new Promise((resolve, reject) => {
    waiting.set(++requests, { resolve, reject });
    worker!.postMessage({ request: requests, address });
  });
}

/** Every half-precision number as float32. */
const HALF = (() => {
  const values = new Float32Array(1 << 16);
  for (let bits = 0; bits < values.length; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const size =
      exponent === 31
        ? fraction ? NaN : Infinity
        : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    values[bits] = bits >> 15 ? -size : size;
  }
  return values;
})();

export interface Weights {
  halves: Uint8Array;
  singles: Uint8Array;
}

/** Widens the file of weights: high bytes of all halves, their low bytes, then float32 numbers. */
export function widen(file: Uint8Array<ArrayBuffer>, count: { halves: number; singles: number }): Weights {
  const { halves, singles } = count;
  if (file.length !== 2 * halves + 4 * singles) throw new Error(words().damaged("weights.bin"));
  const wide = new Float32Array(halves);
  for (let i = 0; i < halves; i++) wide[i] = HALF[(file[i]! << 8) | file[halves + i]!]!;
  return { halves: new Uint8Array(wide.buffer), singles: file.slice(2 * halves) };
}

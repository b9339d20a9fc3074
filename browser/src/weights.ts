// Weights of a model: one compressed file, in which numbers that half precision holds exactly are stored so.

import { words } from "./words";

/** Fetches a file, or throws an error that a reader of the page understands. */
export async function fetchFile(address: string): Promise<Response> {
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok) throw new Error(words().noFile(address));
  return answer;
}

/** Fetches a gzip-compressed file, whatever the server thinks of its type. */
export async function fetchCompressed(address: string): Promise<Uint8Array<ArrayBuffer>> {
  const { body } = await fetchFile(address);
  if (!body) throw new Error(words().damaged(address));
  return new Uint8Array(await new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
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

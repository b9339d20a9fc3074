// Small arithmetic on arrays.

export type Numbers = ArrayLike<number>;

/** Natural logarithms of the softmax. */
export function logSoftmax(logits: Numbers): Float64Array {
  const values = Float64Array.from(logits);
  const highest = values.reduce((one, other) => Math.max(one, other), -Infinity);
  const total = Math.log(values.reduce((sum, value) => sum + Math.exp(value - highest), 0)) + highest;
  return values.map((value) => value - total);
}

/** Probabilities. */
export function softmax(logits: Numbers): Float64Array {
  return logSoftmax(logits).map(Math.exp);
}

/** The highest value's place, and its probability. */
export function surest(logits: Numbers): { place: number; share: number } {
  let place = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[place]!) place = i;
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i]! - logits[place]!);
  return { place, share: 1 / total };
}

/** Places of the highest values, the highest first. */
export function best(values: Numbers, count: number): number[] {
  const found: number[] = [];
  for (let place = 0; place < values.length; place++) {
    let rank = found.length;
    while (rank > 0 && values[found[rank - 1]!]! < values[place]!) rank--;
    if (rank >= count) continue;
    found.splice(rank, 0, place);
    if (found.length > count) found.pop();
  }
  return found;
}

/** Numbers in [0, 1) that depend on a seed alone (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A tensor in row-major order. */
export class Tensor {
  constructor(
    readonly data: Float32Array,
    readonly dims: readonly number[],
  ) {}

  /** The part at these places of the first axes. */
  at(...places: number[]): Tensor {
    const rest = this.dims.slice(places.length);
    const size = rest.reduce((product, dim) => product * dim, 1);
    const start = places.reduce((sum, place, axis) => sum * this.dims[axis]! + place, 0) * size;
    return new Tensor(this.data.subarray(start, start + size), rest);
  }
}

// Where two forwards begin to differ.

import type { Kind, Stack } from "./about";
import type { Outputs } from "./model";
import type { Tensor } from "./numbers";
import type { Reading } from "./writing";

/** Below this, numbers differ by rounding. */
export const ROUNDING = 1e-4;

export interface Difference {
  stack: Stack;
  stage: string;
  /** The largest difference of the residual stream. */
  stream: number;
}

/** Compares the residual stream after every stage, on the tokens that both have. */
export function differences({ model, outputs, usual }: Reading): Difference[] {
  if (!usual) return [];
  return model.stacks.flatMap((stack) =>
    model.about.stages[stack]!.map((stage, place) => ({
      stack,
      stage,
      stream: largest(outputs.stages[stack]!.at(place, 0), usual.stages[stack]!.at(place, 0)),
    })),
  );
}

function largest(one: Tensor, other: Tensor): number {
  const size = Math.min(one.data.length, other.data.length);
  let found = 0;
  for (let i = 0; i < size; i++) found = Math.max(found, Math.abs(one.data[i]! - other.data[i]!));
  return found;
}

/** Attention weights of a head, or the norms of what it moves: weight times the norm of the moved vector. */
export function headMap(outputs: Outputs, kind: Kind, layer: number, head: number, byNorm: boolean): Tensor {
  const weights = outputs.attention[kind]!.at(layer, 0, head);
  if (!byNorm) return weights;
  const norms = outputs.norms[kind]!.at(layer, 0, head).data;
  const keys = weights.dims[1]!;
  return new (weights.constructor as typeof Tensor)(weights.data.map((weight, i) => weight * norms[i % keys]!), weights.dims);
}

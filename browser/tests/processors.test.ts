import { describe, expect, it } from "vitest";
import type { Outputs } from "../src/model";
import { Tensor } from "../src/numbers";
import { agree } from "../src/processors";

const outputs = (logit: number, weight: number): Outputs => {
  const tensor = (value: number) => new Tensor(Float32Array.of(0, value), [2]);
  return { logits: tensor(logit), attention: { encoder: tensor(weight) }, norms: { encoder: tensor(1) }, stages: {} };
};

describe("numbers of two processors", () => {
  it("are equal to rounding, or not", () => {
    expect(agree(outputs(1, 0.5), outputs(1.0001, 0.50001))).toBe(true);
    expect(agree(outputs(1, 0.5), outputs(1.001, 0.5))).toBe(false);
    expect(agree(outputs(1, 0.5), outputs(1, 0.501))).toBe(false);
    expect(agree(outputs(1, 0.5), outputs(NaN, 0.5))).toBe(false);
  });
});

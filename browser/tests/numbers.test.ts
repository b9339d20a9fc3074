import { describe, expect, it } from "vitest";
import { best, softmax, surest } from "../src/numbers";

describe("the best", () => {
  it("are the highest, of equal ones the first", () => {
    expect(best([1, 3, 2, 3, 0], 3)).toEqual([1, 3, 2]);
    expect(best([1, 1, 1], 2)).toEqual([0, 1]);
    expect(best([2, 1], 5)).toEqual([0, 1]);
    expect(best([5], 0)).toEqual([]);
  });
});

describe("the surest", () => {
  it("has its place and its probability", () => {
    const logits = [1, 3, 2, 3];
    expect(surest(logits)).toEqual({ place: 1, share: expect.closeTo(softmax(logits)[1]!, 12) });
  });
});

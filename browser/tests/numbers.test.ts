import { describe, expect, it } from "vitest";
import { best } from "../src/numbers";

describe("the best", () => {
  it("are the highest, of equal ones the first", () => {
    expect(best([1, 3, 2, 3, 0], 3)).toEqual([1, 3, 2]);
    expect(best([1, 1, 1], 2)).toEqual([0, 1]);
    expect(best([2, 1], 5)).toEqual([0, 1]);
    expect(best([5], 0)).toEqual([]);
  });
});

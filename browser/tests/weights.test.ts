import { describe, expect, it } from "vitest";
import { widen } from "../src/weights";

describe("weights", () => {
  it("are widened exactly", () => {
    // 1, -2, 65504, the smallest subnormal, infinity; then 0.1 in single precision.
    const halves = [0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00];
    const single = new Uint8Array(new Float32Array([0.1]).buffer);
    const file = Uint8Array.from([...halves.map((half) => half >> 8), ...halves.map((half) => half & 255), ...single]);
    const wide = widen(file, { halves: halves.length, singles: 1 });
    expect([...new Float32Array(wide.halves.buffer)]).toEqual([1, -2, 65504, 2 ** -24, Infinity]);
    expect(new Float32Array(wide.singles.buffer)[0]).toBe(Math.fround(0.1));
  });

  it("that are damaged are refused", () => {
    expect(() => widen(new Uint8Array(3), { halves: 1, singles: 1 })).toThrow("damaged");
  });
});

import { describe, expect, it } from "vitest";
import { Beams, greedy, path, reshaped, sample } from "../src/decoding";

const END = 0;

/** A language of three tokens in which the greedy choice is not the most probable text. */
const next = async (texts: readonly number[][]): Promise<number[][]> =>
  texts.map((text) => {
    const shares =
      text.length === 0 ? [0.001, 0.55, 0.449] : text[0] === 1 ? [0.34, 0.33, 0.33] : [0.98, 0.01, 0.01];
    return shares.map(Math.log);
  });

describe("beams", () => {
  it("find a more probable text than the greedy one", async () => {
    expect(greedy((await next([[]]))[0]!)).toBe(1);
    const beams = new Beams(2, END, 5);
    while (!beams.done) await beams.step(next);
    expect(beams.text).toEqual([2, END]);
    expect(beams.ended[0]!.score).toBeCloseTo((Math.log(0.449) + Math.log(0.98)) / 2);
  });

  it("keep the tree of what they dropped", async () => {
    const beams = new Beams(2, END, 5);
    await beams.step(next);
    await beams.step(next);
    expect(beams.nodes.filter((node) => node.state === "dropped").length).toBeGreaterThan(0);
    expect(beams.nodes.every((node) => path(node).length <= 2)).toBe(true);
  });

  it("stop at the longest text", async () => {
    const beams = new Beams(2, 99, 3);
    for (let i = 0; i < 10; i++) await beams.step(next);
    expect(beams.text.length).toBe(3);
  });

  it("let a longest text be better than one that has ended", async () => {
    // [1, 1, 0] ends at the third step, less probable than [1, 1, 1].
    const likely = async (texts: readonly number[][]) => texts.map(() => [0.1, 0.9].map(Math.log));
    const beams = new Beams(2, END, 3);
    while (!beams.done) await beams.step(likely);
    expect(beams.text).toEqual([1, 1, 1]);
  });
});

describe("sampling", () => {
  const logits = [1, 2, 3, 4];

  it("draws from the k most probable tokens alone", () => {
    expect(Array.from(reshaped(logits, { temperature: 1, topK: 2, seed: 0 }), (share) => share > 0)).toEqual([false, false, true, true]);
  });

  it("sharpens with a low temperature", () => {
    const cold = reshaped(logits, { temperature: 0.1, topK: 0, seed: 0 });
    expect(cold[3]).toBeGreaterThan(0.99);
  });

  it("draws the same for the same seed, as often as probabilities say", () => {
    const options = { temperature: 1, topK: 2, seed: 3 };
    const drawn = Array.from({ length: 4000 }, (_, step) => sample(logits, options, step));
    expect(drawn.slice(0, 5)).toEqual(Array.from({ length: 5 }, (_, step) => sample(logits, options, step)));
    const share = drawn.filter((token) => token === 3).length / drawn.length;
    expect(share).toBeCloseTo(Math.E / (1 + Math.E), 1);
  });
});

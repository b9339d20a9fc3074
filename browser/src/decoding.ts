// Ways to choose the next token from logits.

import { best, logSoftmax, type Numbers, random, softmax, surest } from "./numbers";

/** Logits of the token after each of several texts. */
export type Next = (texts: readonly number[][]) => Promise<Numbers[]>;

export interface Sampling {
  temperature: number;
  topK: number;
  seed: number;
}

/** The most probable token. */
export const greedy = (logits: Numbers): number => surest(logits).place;

/** Probabilities after temperature and top-k: what sampling draws from. */
export function reshaped(logits: Numbers, { temperature, topK }: Sampling): Float64Array {
  const kept = topK > 0 ? new Set(best(logits, topK)) : null;
  return softmax(Array.from(logits, (value, place) => (!kept || kept.has(place) ? value / temperature : -Infinity)));
}

/** Draws a token; `step` is the number of tokens drawn before. */
export function sample(logits: Numbers, options: Sampling, step: number): number {
  const shares = reshaped(logits, options);
  let left = random(options.seed * 1009 + step)();
  for (const [place, share] of shares.entries()) {
    left -= share;
    if (share > 0 && left < 0) return place;
  }
  return greedy(shares);
}

/** A node of the tree that beam search grows. */
export interface Node {
  token: number;
  logProbability: number;
  parent: Node | null;
  state: "kept" | "dropped" | "ended";
}

export const path = (node: Node | null): number[] => (node?.parent ? [...path(node.parent), node.token] : []);

/** Beam search as transformers has it, with `length_penalty=1` and `early_stopping=False`. */
export class Beams {
  readonly root: Node = { token: -1, logProbability: 0, parent: null, state: "kept" };
  readonly nodes: Node[] = [];
  running: Node[] = [this.root];
  ended: { node: Node; score: number }[] = [];
  done = false;

  constructor(
    readonly width: number,
    readonly end: number,
    readonly longest: number,
  ) {}

  /** The text that would be given now: the best one that has ended, or else the best one that runs. */
  get text(): number[] {
    return path(this.ended[0]?.node ?? this.running[0] ?? null);
  }

  /** Extends every beam by one token. */
  async step(next: Next): Promise<void> {
    if (this.done) return;
    const texts = this.running.map(path);
    const length = texts[0]!.length + 1;
    const found = await next(texts);
    const candidates = this.running.flatMap((parent, row) => {
      const logs = logSoftmax(found[row]!);
      return best(logs, 2 * this.width).map((token): Node => {
        return { token, logProbability: parent.logProbability + logs[token]!, parent, state: "dropped" };
      });
    });
    candidates.sort((one, other) => other.logProbability - one.logProbability);
    const shown = candidates.slice(0, 2 * this.width);
    for (const node of shown.slice(0, this.width)) {
      if (node.token === this.end) node.state = "ended";
      else if (length < this.longest) continue; // the longest texts end without a token that ends them
      this.ended.push({ node, score: node.logProbability / length });
    }
    this.ended.sort((one, other) => other.score - one.score).splice(this.width);
    this.running = shown.filter((node) => node.token !== this.end).slice(0, this.width);
    for (const node of this.running) node.state = "kept";
    this.nodes.push(...shown);
    const worst = this.ended.length < this.width ? -Infinity : this.ended.at(-1)!.score;
    const hopeless = this.running.length === 0 || this.running[0]!.logProbability / length <= worst;
    this.done = hopeless || length >= this.longest;
  }
}

// A text that a model writes, token by token.

import type { Form } from "./about";
import { Beams, greedy, type Next, type Sampling, sample } from "./decoding";
import { type Changes, isUnchanged, type Model, type Outputs, UNCHANGED } from "./model";
import { words } from "./words";

export type Method = { name: "greedy" } | { name: "beams"; width: number } | ({ name: "sampling" } & Sampling);

/** Tokens that are written at most, where the model's positions allow it. */
export const LONGEST = 48;

export interface Written {
  tokens: number[];
  done: boolean;
  beams: Beams | null;
}

export class Writing {
  private readonly longest: number;
  private readonly end: number;
  private tokens: number[] = [];
  private beams: Beams | null = null;
  private steps = 0;

  constructor(
    private readonly model: Model,
    private readonly form: Form,
    private readonly source: readonly number[],
    private readonly changes: Changes,
    private readonly method: Method,
  ) {
    const { limit, ids } = model.about;
    const room = (limit ?? Infinity) - (model.hasSource ? 1 : source.length + changes.padding + changes.shift);
    this.longest = Math.max(0, Math.min(LONGEST, room));
    this.end = ids.end ?? -1;
  }

  /** Writes until there are so many tokens, or the text ends, or is not wanted any more. */
  async upTo(count: number, isWanted = () => true): Promise<Written> {
    const wanted = Math.min(count, this.longest);
    return this.method.name === "beams" ? this.search(wanted, isWanted, this.method.width) : this.choose(wanted, isWanted);
  }

  private async choose(wanted: number, isWanted: () => boolean): Promise<Written> {
    const ended = () => this.tokens.at(-1) === this.end || !isWanted();
    while (this.tokens.length < wanted && !ended()) {
      const [logits] = await this.next([this.tokens]);
      const { method } = this;
      this.tokens.push(
        method.name === "sampling" ? sample(logits!, method, this.tokens.length) : greedy(logits!),
      );
    }
    const tokens = this.tokens.slice(0, wanted);
    return { tokens, done: tokens.at(-1) === this.end || wanted === this.longest, beams: null };
  }

  private async search(wanted: number, isWanted: () => boolean, width: number): Promise<Written> {
    if (!this.beams || this.steps > wanted) {
      this.beams = new Beams(width, this.end, this.longest);
      this.steps = 0;
    }
    for (; this.steps < wanted && !this.beams.done && isWanted(); this.steps++) await this.beams.step(this.next);
    return { tokens: this.beams.text, done: this.beams.done, beams: this.beams };
  }

  private readonly next: Next = async (texts) => {
    const read = texts.map((tokens) => decoderIds(this.model, tokens));
    const { logits } = await this.model.run(this.form, this.source, read, this.changes);
    const last = logits.at(logits.dims[0]! - 1);
    // Padding follows the text of a language model.
    const place = last.dims[1]! - 1 - (this.model.hasSource ? 0 : this.changes.padding);
    return texts.map((_, row) => last.at(row, place).data);
  };
}

/** What the decoder has read once these tokens are written. */
export function decoderIds(model: Model, written: readonly number[]): number[] {
  const { start, end } = model.about.ids;
  const open = written.at(-1) === end ? written.slice(0, -1) : written;
  return model.hasSource ? [start ?? 0, ...open] : [...open];
}

/** Everything about one text in one model. */
export interface Reading {
  model: Model;
  form: Form;
  source: number[];
  written: Written;
  outputs: Outputs;
  /** The same without quirk and changes, where there are any. */
  usual: Outputs | null;
  sourceTokens: string[];
  targetTokens: string[];
}

const NOTHING: Written = { tokens: [], done: true, beams: null };

/** Ids of a text, or an error that says what is wrong with it. */
export function read(model: Model, text: string, changes: Changes): number[] {
  const w = words();
  const unknown = model.source.unknownIn(text);
  if (unknown.length) {
    throw new Error(w.unknown(model.about.name, unknown.map((one) => `“${one}”`).join(", ")));
  }
  const { limit, task, mask, ids } = model.about;
  const source = model.source.encode(text, task === "causal-lm");
  if (!source.length) {
    if (ids.start === null) throw new Error(w.empty);
    source.push(ids.start);
  }
  const length = source.length + changes.padding + changes.shift + Number(task === "causal-lm");
  if (limit !== null && length > limit) {
    throw new Error(w.tooLong(model.about.name, length, limit));
  }
  if (task === "masked-lm" && !source.includes(ids.mask!)) {
    throw new Error(w.noMask(mask!));
  }
  return source;
}

/** Runs everything: writes, then reads what was written. */
export async function readAll(
  model: Model, form: Form, source: number[], changes: Changes, writing: Writing, steps: number, isWanted: () => boolean,
): Promise<Reading> {
  const usualForm = model.about.forms[0]!;
  const writes = model.writes && form.target === "written";
  const written = writes ? await writing.upTo(steps, isWanted) : NOTHING;
  const target = form.target === "source" ? source : decoderIds(model, written.tokens);
  const rows = model.writes ? [target] : [];
  const outputs = await model.run(form, source, rows, changes);
  const isUsual = form === usualForm && isUnchanged(changes);
  const usual = isUsual ? null : await model.run(usualForm, source, rows, UNCHANGED);
  return described({ model, form, source, written, outputs, usual }, target, changes.padding);
}

/** A reading with its tokens as people read them. */
export function described(
  read: Omit<Reading, "sourceTokens" | "targetTokens">, target: readonly number[], padding = 0,
): Reading {
  const { model, form, source } = read;
  const sourceTokens = [...source, ...(model.hasSource ? [] : target)].map((id) => model.source.name(id));
  const padded = [...sourceTokens, ...Array<string>(padding).fill("∅")];
  const targetTokens = model.hasSource ? target.map((id) => model.target.name(id)) : padded;
  if (form.target === "source") targetTokens.push(...Array<string>(padding).fill("∅"));
  return { ...read, sourceTokens: padded, targetTokens };
}

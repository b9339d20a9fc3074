// Texts to tokens and back, by the tokenizers that the models were trained with.

import { Tokenizer } from "@huggingface/tokenizers";
import { fetchCompressed } from "./weights";

export class Texts {
  private constructor(
    private readonly tokenizer: Tokenizer,
    private readonly end: number | null,
    private readonly unknown: number | null,
  ) {}

  static async load(address: string, end: number | null, unknown: number | null): Promise<Texts> {
    const { tokenizer, config } = await fetchCompressed<{ tokenizer: object; config: object }>(address);
    return new Texts(new Tokenizer(tokenizer, config), end, unknown);
  }

  /** Ids of a text; `open` leaves out the token that would end it. */
  encode(text: string, open = false): number[] {
    const { ids } = this.tokenizer.encode(text);
    return open && ids.at(-1) === this.end ? ids.slice(0, -1) : ids;
  }

  /** Characters of a text that the tokenizer has no token for. */
  unknownIn(text: string): string[] {
    if (this.unknown === null || !this.encode(text).includes(this.unknown)) return [];
    const words = text.split(/\s+/).flatMap((word) => [word, ...word]);
    const found = words.filter((word) => [...word].length === 1 && this.encode(word).includes(this.unknown!));
    return [...new Set(found.length ? found : words.filter((word) => this.encode(word).includes(this.unknown!)))];
  }

  decode(ids: readonly number[]): string {
    return ids.length ? this.tokenizer.decode([...ids], { skip_special_tokens: true }).trim() : "";
  }

  /** A token as people read it. */
  name(id: number): string {
    const text = this.tokenizer.decode([id], { skip_special_tokens: false });
    const kept = text.trim() ? text.replace(/^ /, "") : text.replaceAll(" ", "␣").replaceAll("\n", "⏎");
    return kept && !kept.includes("\ufffd") ? kept : (this.tokenizer.id_to_token(id) ?? `#${id}`);
  }
}

// The description of a model, as `zoo explore --static` writes it.

export type Stack = "encoder" | "decoder";
export type Kind = Stack | "cross";
export type Task = "seq2seq-lm" | "causal-lm" | "masked-lm" | "sequence-classification" | "token-classification";

/** An entry in the list of models. */
export interface Entry {
  name: string;
  variant: string;
  task: Task;
  summary: string;
  /** The text that the page begins with. */
  text: string;
  folder: string;
}

/** One way to compute with the weights: as they were trained, or with a defect of the original on or off. */
export interface Form {
  quirks: string[];
  label: string;
  description: string;
  positions: "counted" | "zero";
  target: "written" | "source";
  /** Whether it writes token by token; if not, it reads what the first form writes. */
  stepwise: boolean;
  graph: string;
  /** File of its ejected code. */
  code: string;
  parts: Part[];
}

/** A part of the model; sizes of its shape may be the number of tokens of a text. */
export interface Part {
  path: string;
  label: string;
  detail: string;
  formula: string;
  shape: (number | "source" | "target")[];
  line: number | null;
  stack: Stack | "head";
  /** Quirks that change it. */
  quirks: string[];
}

export interface About {
  name: string;
  variant: string;
  quirks: string[];
  task: Task;
  summary: string;
  parameters: number;
  limit: number | null;
  stacks: Partial<Record<Stack, number>>;
  heads: Partial<Record<Kind, [layers: number, heads: number]>>;
  stages: Partial<Record<Stack, string[]>>;
  ids: Record<"start" | "end" | "pad" | "mask" | "unknown", number | null>;
  mask: string | null;
  labels: string[];
  /** Files of the tokenizers. */
  texts: Record<"source" | "target", string>;
  /** Significant bits to which large matrices are rounded, null if the weights are stored as they are. */
  bits: number | null;
  forms: Form[];
  weights: { halves: number; singles: number };
}

// A model in ONNX Runtime Web, with everything inside among its outputs.

import type { InferenceSession } from "onnxruntime-web";
import type { About, Entry, Form, Kind, Stack } from "./about";
import { engine, inTurn, type Provider } from "./engine";
import { Tensor } from "./numbers";
import { agree, chosen, obstacle, type Processor } from "./processors";
import { Texts } from "./tokens";
import { fetchCompressed, fetchFile, fetchPacked, loading, type Weights, widen } from "./weights";

/** What is changed about a forward. */
export interface Changes {
  /** Heads that are off, as "kind.layer.head". */
  heads: ReadonlySet<string>;
  /** Layers that are off, as "stack.layer". */
  layers: ReadonlySet<string>;
  /** Padding tokens after the source. */
  padding: number;
  /** Added to the positions of the source. */
  shift: number;
}

export const UNCHANGED: Changes = { heads: new Set(), layers: new Set(), padding: 0, shift: 0 };

export const isUnchanged = ({ heads, layers, padding, shift }: Changes): boolean =>
  !heads.size && !layers.size && !padding && !shift;

/** Outputs of a forward for several texts at once. */
export interface Outputs {
  /** Logits after the embeddings and after every layer. *Shape:* (layers + 1, texts, ...) */
  logits: Tensor;
  /** *Shape:* (layers, texts, heads, queries, keys) */
  attention: Partial<Record<Kind, Tensor>>;
  /** Norms of what a key's value adds to the output of a head. *Shape:* (layers, texts, heads, keys) */
  norms: Partial<Record<Kind, Tensor>>;
  /** The residual stream. *Shape:* (stages, texts, tokens, width) */
  stages: Partial<Record<Stack, Tensor>>;
}

export const MODELS = new URL("models/", document.baseURI).href;

export async function listModels(): Promise<Entry[]> {
  return (await fetchFile(`${MODELS}index.json`)).json();
}

export class Model {
  private readonly sessions = new Map<string, Promise<InferenceSession>>();
  private readonly comparisons = new Map<string, Promise<Processor>>();
  /** Graphs that WebGPU computes as WebAssembly does. */
  private readonly onWebgpu = new Set<string>();

  private constructor(
    readonly about: About,
    readonly folder: string,
    readonly source: Texts,
    readonly target: Texts,
    private readonly weights: Promise<Weights>,
  ) {}

  static async load(folder: string): Promise<Model> {
    const place = `${MODELS}${folder}/`;
    const file = loading(fetchPacked(`${place}weights.bin`));
    const about: About = await (await fetchFile(`${place}model.json`)).json();
    const { end, unknown } = about.ids;
    const [source, target] = await Promise.all(
      [about.texts.source, about.texts.target].map((name) => Texts.load(`${MODELS}${name}`, end, unknown)),
    ) as [Texts, Texts];
    return new Model(about, folder, source, target, loading(file.then((bytes) => widen(bytes, about.weights))));
  }

  get writes(): boolean {
    return this.about.task === "seq2seq-lm" || this.about.task === "causal-lm";
  }

  get hasSource(): boolean {
    return this.about.task === "seq2seq-lm";
  }

  /** Names of the tensors that the stacks read. */
  get stacks(): Stack[] {
    return Object.keys(this.about.stacks) as Stack[];
  }

  /** The ejected file of a form. */
  code(form: Form): Promise<string> {
    return fetchCompressed(`${MODELS}${this.folder}/${form.code}`);
  }

  /** Whether a form has been asked for. */
  hasOpened(form: Form): boolean {
    return this.sessions.has(`wasm ${form.graph}`);
  }

  private session(form: Form, provider: Provider): Promise<InferenceSession> {
    const key = `${provider} ${form.graph}`;
    const known = this.sessions.get(key);
    if (known) return known;
    const made = (async () => {
      const graph = await fetchPacked(`${MODELS}${this.folder}/${form.graph}`);
      const weights = await this.weights;
      const externalData = (["halves", "singles"] as const)
        .filter((path) => this.about.weights[path] > 0)
        .map((path) => ({ path, data: weights[path] }));
      return (await engine()).open(graph, externalData, provider);
    })();
    this.sessions.set(key, made);
    made.catch(() => this.sessions.delete(key));
    return made;
  }

  /** Finds out what computes a form from now on: WebGPU once it has computed the same as WebAssembly. */
  async processor(form: Form): Promise<Processor> {
    const against = await obstacle();
    if (against) return against;
    const known = this.comparisons.get(form.graph);
    if (known) return known;
    const made = this.compare(form).catch((): Processor => "failed");
    this.comparisons.set(form.graph, made);
    return made;
  }

  /** Runs the beginnings of the first text on both, the shortest first as when it is written, then all with padding. */
  private async compare(form: Form): Promise<Processor> {
    const first = await this.first();
    const target = form.target === "source" ? first.source : [this.about.ids.start ?? 0, ...first.written];
    const text = this.writes ? target : first.source;
    for (const length of [1, 2, 3, 4, 5, 6, 7, 8, text.length]) {
      const part = text.slice(0, length);
      const source = text === target && form.target === "written" ? first.source : part;
      const rows = this.writes ? [part, part.toReversed()] : [];
      const changes = { ...UNCHANGED, padding: length === text.length ? 2 : 0 };
      const [usual, other] = await inTurn(async () => [
        await this.runNow(form, source, rows, changes, "wasm"),
        await this.runNow(form, source, rows, changes, "webgpu"),
      ] as const);
      if (!agree(usual, other)) return "differs";
    }
    this.onWebgpu.add(form.graph);
    return "webgpu";
  }

  /** Runs the model: `written` are texts of the decoder, of an encoder none. They have one length. */
  run(form: Form, source: readonly number[], written: readonly number[][], changes: Changes): Promise<Outputs> {
    const on = (provider: Provider) => inTurn(() => this.runNow(form, source, written, changes, provider));
    if (chosen() === "wasm" || !this.onWebgpu.has(form.graph)) return on("wasm");
    return on("webgpu").catch(() => {
      this.onWebgpu.delete(form.graph); // as of a device that was lost
      this.comparisons.set(form.graph, Promise.resolve("failed"));
      return on("wasm");
    });
  }

  private async runNow(
    form: Form, source: readonly number[], written: readonly number[][], changes: Changes, provider: Provider,
  ): Promise<Outputs> {
    const session = await this.session(form, provider);
    const { Tensor: Given } = await engine();
    const feeds: Record<string, InstanceType<typeof Given>> = {};
    const put = (stack: Stack, rows: readonly number[][], padding: number, shift: number, zero = false) => {
      const ids = rows.map((row) => [...row, ...Array<number>(padding).fill(this.about.ids.pad ?? 0)]);
      const dims = [ids.length, ids[0]!.length];
      const whole = (value: (row: number, place: number) => number) =>
        new Given("int64", BigInt64Array.from(ids.flatMap((row, i) => row.map((_, j) => BigInt(value(i, j))))), dims);
      feeds[`${stack}_input_ids`] = whole((row, place) => ids[row]![place]!);
      feeds[`${stack}_attention_mask`] = whole((row, place) => Number(place < rows[row]!.length));
      feeds[`${stack}_position_ids`] = whole((_, place) => (zero ? 0 : place + shift));
    };
    const { padding, shift } = changes;
    const rows = written.length ? written : [[]];
    if (this.hasSource) {
      put("encoder", rows.map(() => [...source]), padding, shift);
      put("decoder", rows, form.target === "source" ? padding : 0, 0, form.positions === "zero");
    } else {
      put(this.stacks[0]!, rows.map((row) => [...source, ...row]), padding, shift);
    }
    const factors = (dims: number[], isOff: (...places: number[]) => boolean) => {
      const [rows, columns = 1] = dims as [number, number?];
      const values = Array.from({ length: rows * columns }, (_, i) =>
        Number(!isOff(Math.floor(i / columns), i % columns)),
      );
      return new Given("float32", Float32Array.from(values), dims);
    };
    for (const [kind, dims] of Object.entries(this.about.heads)) {
      feeds[`${kind}_heads`] = factors(dims, (layer, head) => changes.heads.has(`${kind}.${layer}.${head}`));
    }
    for (const [stack, layers] of Object.entries(this.about.stacks)) {
      feeds[`${stack}_layers`] = factors([layers], (layer) => changes.layers.has(`${stack}.${layer}`));
    }
    const known = Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]!]));
    const found = await session.run(known);
    return this.outputs((name) => new Tensor(found[name]!.data as Float32Array, found[name]!.dims));
  }

  private outputs(tensor: (name: string) => Tensor): Outputs {
    const byName = <K extends string>(names: K[], what: string) =>
      Object.fromEntries(names.map((name) => [name, tensor(`${name}_${what}`)])) as Partial<Record<K, Tensor>>;
    const kinds = Object.keys(this.about.heads) as Kind[];
    return {
      logits: tensor("logits"),
      attention: byName(kinds, "attention"),
      norms: byName(kinds, "norms"),
      stages: byName(this.stacks, "stages"),
    };
  }

  /** What was computed for the first text when the page was written, to show it before the engine is there. */
  async first(): Promise<{ text: string; source: number[]; written: number[]; outputs: Outputs }> {
    const { text, source, written, logits, attention, norms } = await fetchCompressed<FirstFile>(`${MODELS}${this.folder}/first.bin`);
    const tensors = (given: Partial<Record<Kind, Numbers>>) =>
      Object.fromEntries(
        Object.entries(given).map(([kind, { dims, data }]) => [kind, new Tensor(Float32Array.from(data, (value) => value / 10_000), dims)]),
      );
    return {
      text, source, written,
      outputs: { logits: lengthened(logits), attention: tensors(attention), norms: tensors(norms), stages: {} },
    };
  }
}

type Numbers = Record<"dims" | "data", number[]>;
type Shortened = Record<"dims" | "ids" | "values" | "rest", number[]>;

interface FirstFile {
  text: string;
  source: number[];
  written: number[];
  logits: Shortened;
  attention: Partial<Record<Kind, Numbers>>;
  norms: Partial<Record<Kind, Numbers>>;
}

/** Logits from the best ones and the average of the others. */
function lengthened({ dims, ids, values, rest }: Shortened): Tensor {
  const size = dims.at(-1)!;
  const shown = ids.length / rest.length;
  const data = new Float32Array(rest.length * size);
  rest.forEach((value, row) => data.fill(value, row * size, (row + 1) * size));
  ids.forEach((id, i) => (data[Math.floor(i / shown) * size + id] = values[i]!));
  return new Tensor(data, dims);
}

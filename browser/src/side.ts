// One model on the page: loads it, and reads the text again whenever something changes.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Changes, isUnchanged, Model } from "./model";
import { decoderIds, described, LONGEST, type Method, type Reading, read, readAll, Writing } from "./writing";

const models = new Map<string, Promise<Model>>();

/** Loads a model once. */
export function loadModel(folder: string): Promise<Model> {
  let found = models.get(folder);
  if (!found) models.set(folder, (found = Model.load(folder)));
  found.catch(() => models.delete(folder));
  return found;
}

/** Shows what was computed when the page was written, if that is for this text. */
async function showFirst(model: Model, { text, method, steps }: Wish, show: (side: Side) => void): Promise<void> {
  const form = model.about.forms[0]!;
  if (model.hasOpened(form) || method.name !== "greedy" || steps < LONGEST) return;
  const first = await model.first();
  if (first.text !== text) return;
  const { source, outputs } = first;
  const written = { tokens: first.written, done: true, beams: null };
  const target = form.target === "source" ? source : decoderIds(model, first.written);
  show({ reading: described({ model, form, source, written, outputs, usual: null }, target), error: "", busy: true });
}

export interface Wish {
  folder: string;
  form: string;
  text: string;
  changes: Changes;
  method: Method;
  steps: number;
}

export interface Side {
  reading: Reading | null;
  error: string;
  busy: boolean;
}

export function useSide(wish: Wish): Side {
  const [side, setSide] = useState<Side>({ reading: null, error: "", busy: true });
  const writing = useRef<{ key: string; writing: Writing }>(undefined);
  const { folder, form, text, changes, method, steps } = wish;
  const changed = [[...changes.heads], [...changes.layers], changes.padding, changes.shift];
  const key = JSON.stringify([folder, form, text, changed, method]);
  useEffect(() => {
    let isLatest = true;
    const show = (one: Side) => isLatest && setSide(one);
    if (!folder) return void show({ reading: null, error: "", busy: false });
    setSide((one) => ({ ...one, busy: true }));
    void (async () => {
      try {
        const model = await loadModel(folder);
        const chosen = model.about.forms.find((one) => one.label === form) ?? model.about.forms[0]!;
        const source = read(model, text, changes);
        if (chosen === model.about.forms[0] && isUnchanged(changes)) await showFirst(model, wish, show);
        if (writing.current?.key !== key) {
          writing.current = { key, writing: new Writing(model, chosen.stepwise ? chosen : model.about.forms[0]!, source, changes, method) };
        }
        const reading = await readAll(model, chosen, source, changes, writing.current.writing, steps, () => isLatest);
        show({ reading, error: "", busy: false });
      } catch (error) {
        show({ reading: null, error: error instanceof Error ? error.message : String(error), busy: false });
      }
    })();
    return () => {
      isLatest = false;
    };
  }, [key, steps]);
  return side;
}

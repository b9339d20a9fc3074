// The explorer: controls, and one or two models on the same text.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { About, Entry } from "./about";
import { engine } from "./engine";
import { type Changes, UNCHANGED } from "./model";
import { choose as chooseProcessor, type Choice as Wanted, chosen, type Processor } from "./processors";
import { formNote, phrase } from "./registry";
import { loadModel, type Side, useSide } from "./side";
import { Attention } from "./views/attention";
import { Differences } from "./views/differences";
import { Parts } from "./views/parts";
import { Early, Probabilities } from "./views/predictions";
import { Text } from "./views/text";
import { BeamTree } from "./views/tree";
import { words } from "./words";
import { LONGEST, type Method, type Reading } from "./writing";

interface SideChoice {
  folder: string;
  form: string;
  changes: Changes;
}

/** Values of the address, so that what is seen can be linked to. */
function fromAddress(entries: Entry[]): { a: string; b: string; text: string; form: string } {
  const given = new URLSearchParams(location.search);
  const folder = (name: string | null) => entries.find((one) => one.name === name)?.folder ?? "";
  const a = folder(given.get("model")) || entries[0]!.folder;
  const { text } = entries.find((one) => one.folder === a)!;
  return { a, b: folder(given.get("with")), text: given.get("text") ?? text, form: given.get("form") ?? "" };
}

export function Explorer({ entries }: { entries: Entry[] }) {
  const w = words();
  const [start] = useState(() => fromAddress(entries));
  const [typed, type] = useState(start.text);
  const [text, setText] = useState(start.text);
  const [a, setA] = useState<SideChoice>({ folder: start.a, form: start.form, changes: UNCHANGED });
  const [b, setB] = useState<SideChoice>({ folder: start.b, form: "", changes: UNCHANGED });
  const [inputs, setInputs] = useState({ padding: 0, shift: 0 });
  const [method, setMethod] = useState<Method>({ name: "greedy" });
  const [steps, setSteps] = useState(LONGEST);
  const [place, choose] = useState<number | null>(null);
  const wish = (side: SideChoice) => ({ ...side, text, method, steps, changes: { ...side.changes, ...inputs } });
  const sides = [useSide(wish(a)), useSide(wish(b))];
  const shown = sides.filter((_, i) => i === 0 || b.folder);
  const written = sides[0]!.reading?.written;
  const tasks = entries.filter((one) => one.folder === a.folder || one.folder === b.folder).map((one) => one.task);
  const writes = tasks.some((task) => task === "seq2seq-lm" || task === "causal-lm");
  const setModel = (folder: string) => {
    setA({ folder, form: "", changes: UNCHANGED });
    if (entries.some((one) => one.text === text)) {
      const example = entries.find((one) => one.folder === folder)!.text;
      type(example);
      setText(example);
    }
  };
  const done = Math.min(steps, sides[0]!.reading?.written.tokens.length ?? 0);
  const each = (view: (reading: Reading, index: number) => ComponentChildren) => <Sides sides={shown} view={view} />;
  return (
    <main>
      <h1>{w.title}</h1>
      <p>{w.intro}</p>
      <form class="controls" onSubmit={(event) => {
        event.preventDefault();
        setText(typed);
        setSteps(LONGEST);
      }}>
        <label class="wide">
          {w.text}
          <input type="text" value={typed} maxLength={400} onInput={(event) => type((event.currentTarget as HTMLInputElement).value)} />
        </label>
        <button>{w.run}</button>
        <Choice label={w.model} value={a.folder} choose={setModel} options={entries.map((one) => [one.folder, one.name])} />
        <Choice label={w.other} value={b.folder} choose={(folder) => setB({ folder, form: "", changes: UNCHANGED })}
          options={[["", w.none], ...entries.map((one): [string, string] => [one.folder, one.name])]} />
      </form>
      <form class="controls" onSubmit={(event) => event.preventDefault()}>
        {writes && (
          <>
            <Choice label={w.method} value={method.name} options={[["greedy", w.greedy], ["beams", w.beams], ["sampling", w.sampling]]}
              choose={(name) => setMethod(name === "beams" ? { name, width: 3 } : name === "sampling" ? { name, temperature: 1, topK: 20, seed: 0 } : { name: "greedy" })} />
            {method.name === "beams" && <NumberField label={w.width} value={method.width} set={(width) => setMethod({ ...method, width })} min={2} max={8} />}
            {method.name === "sampling" && (
              <>
                <NumberField label={w.temperature} value={method.temperature} set={(temperature) => setMethod({ ...method, temperature })} min={0.1} max={3} step={0.1} />
                <NumberField label={w.topK} value={method.topK} set={(topK) => setMethod({ ...method, topK })} min={0} max={200} />
                <NumberField label={w.seed} value={method.seed} set={(seed) => setMethod({ ...method, seed })} min={0} max={9999} />
              </>
            )}
            <span class="steps">
              <button type="button" onClick={() => setSteps(0)}>{w.restart}</button>
              <button type="button" disabled={done === 0} onClick={() => setSteps(done - 1)}>{w.back}</button>
              <button type="button" disabled={Boolean(written?.done)} onClick={() => setSteps(Math.min(steps, done) + 1)}>{w.step}</button>
              <button type="button" disabled={Boolean(written?.done)} onClick={() => setSteps(LONGEST)}>{w.finish}</button>
            </span>
          </>
        )}
        <NumberField label={w.padding} value={inputs.padding} set={(padding) => setInputs({ ...inputs, padding })} min={0} max={16} />
        <NumberField label={w.shift} value={inputs.shift} set={(shift) => setInputs({ ...inputs, shift })} min={0} max={32} />
      </form>
      <div class="sides heads-of-sides">
        {[a, b].slice(0, shown.length).map((side, i) => (
          <SideHead key={i} side={side} entry={entries.find((one) => one.folder === side.folder)} state={shown[i]!}
            choose={(form) => (i ? setB : setA)({ ...side, form })} />
        ))}
      </div>
      <section class="first">
        <h2>{w.output}</h2>
        {each((reading) => <Text reading={reading} place={within(place, reading)} choose={choose} />)}
      </section>
      <section class={b.folder ? "maps" : "maps one"}>
        <h2>{w.attention}</h2>
        {each((reading, i) => (
          <Attention reading={reading} id={`side-${i}`} changes={[a, b][i]!.changes} change={(changes) => [setA, setB][i]!({ ...[a, b][i]!, changes })} />
        ))}
      </section>
      <section>
        <h2>{writes ? w.next : w.probabilities}</h2>
        {each((reading) => <Probabilities reading={reading} place={within(place, reading)} method={method} />)}
      </section>
      {method.name === "beams" && writes && (
        <section>
          <h2>{w.tree}</h2>
          {each(({ written, model }) => written.beams && <BeamTree beams={written.beams} texts={model.target} />)}
        </section>
      )}
      <section>
        <h2>{w.early}</h2>
        <p class="note">{w.earlyNote}</p>
        {each((reading) => <Early reading={reading} place={within(place, reading)} choose={choose} />)}
      </section>
      <section>
        <h2>{w.differ}</h2>
        <p class="note">{w.differNote}</p>
        {each((reading) => <Differences reading={reading} />)}
      </section>
      <section>
        <h2>{w.parts}</h2>
        <p class="note">{w.partsNote}</p>
        {each((reading) => <Parts reading={reading} />)}
      </section>
      <Engine sides={shown} />
    </main>
  );
}

/** The chosen place, or the last one that the text has; of a text with a mask at first the mask. */
export function within(place: number | null, { model, source, targetTokens }: Reading): number {
  const mask = model.about.task === "masked-lm" ? source.indexOf(model.about.ids.mask!) : 0;
  return Math.min(place ?? mask, targetTokens.length - 1);
}

/** The same view of every model, or what is wrong with it. */
export function Sides({ sides, view }: { sides: Side[]; view: (reading: Reading, index: number) => ComponentChildren }) {
  return (
    <div class="sides">
      {sides.map(({ reading, busy }, i) => (
        <div class="side" key={i} aria-busy={busy} data-model={reading?.model.about.name}>
          {reading && sides.length > 1 && <p class="note of">{reading.model.about.name}</p>}
          {reading ? view(reading, i) : null}
        </div>
      ))}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  options: [value: string, label: string][];
  choose: (value: string) => void;
}

export function Choice({ label, value, options, choose }: ChoiceProps) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => choose((event.currentTarget as HTMLSelectElement).value)}>
        {options.map(([one, name]) => <option key={one} value={one} selected={one === value}>{name}</option>)}
      </select>
    </label>
  );
}

interface NumberProps {
  label: string;
  value: number;
  set: (value: number) => void;
  min: number;
  max: number;
  step?: number;
}

/** A number; what is being typed stays as it is while something else is drawn. */
export function NumberField({ label, value, set, min, max, step = 1 }: NumberProps) {
  const [typed, type] = useState<string | null>(null);
  return (
    <label>
      {label}
      <input type="number" value={typed ?? value} min={min} max={max} step={step}
        onInput={(event) => type((event.currentTarget as HTMLInputElement).value)}
        onChange={(event) => {
          const wanted = Number((event.currentTarget as HTMLInputElement).value);
          set(Math.min(max, Math.max(min, Number.isFinite(wanted) ? wanted : min)));
          type(null);
        }} />
    </label>
  );
}

interface SideHeadProps {
  side: SideChoice;
  entry: Entry | undefined;
  state: Side;
  choose: (form: string) => void;
}

/** Name of a model, the ways to compute with its weights, and what is wrong, if anything is. */
function SideHead({ side, entry, state, choose }: SideHeadProps) {
  const w = words();
  const about = useAbout(side.folder);
  const forms = about?.forms ?? [];
  const form = forms.find((one) => one.label === side.form);
  return (
    <div class="side">
      <h2>{entry?.name}</h2>
      <p class="note">{entry && phrase(entry.summary)} {about?.bits && w.rounded(about.bits)}</p>
      {forms.length > 1 && (
        <Choice label={w.computes} value={side.form || forms[0]!.label} choose={choose}
          options={forms.map((one) => [one.label, phrase(one.label)])} />
      )}
      <p class="note form-note">{form && formNote(form)}</p>
      <p class="error" role="alert">{state.error}</p>
    </div>
  );
}

export function useAbout(folder: string): About | null {
  const [about, setAbout] = useState<About | null>(null);
  useEffect(() => {
    let isLatest = true;
    setAbout(null);
    if (folder) void loadModel(folder).then((model) => isLatest && setAbout(model.about)).catch(() => null);
    return () => {
      isLatest = false;
    };
  }, [folder]);
  return about;
}

/** What computes, and the choice of it. */
function Engine({ sides }: { sides: Side[] }) {
  const w = words();
  const [isLoaded, setLoaded] = useState(false);
  const [wanted, want] = useState(chosen());
  const [found, setFound] = useState<Processor[]>([]);
  useEffect(() => void engine().then(() => setLoaded(true)).catch(() => null), []);
  const ready = sides.flatMap(({ reading, busy }) => (reading && !busy ? [reading] : []));
  useEffect(() => {
    let isLatest = true;
    void Promise.all(ready.map(({ model, form }) => model.processor(form))).then((all) => isLatest && setFound(all));
    return () => {
      isLatest = false;
    };
  }, [wanted, ready.map(({ model, form }) => `${model.folder} ${form.graph}`).join()]);
  return (
    <footer class="note" data-loaded={isLoaded}>
      {w.runsOn} ONNX Runtime Web.{" "}
      <Choice label={w.processor} value={wanted} options={[["", w.ifEqual], ["wasm", "WebAssembly"], ["webgpu", "WebGPU"]]}
        choose={(processor) => {
          chooseProcessor(processor as Wanted);
          want(processor as Wanted);
        }} />
      <p aria-live="polite">{[...new Set(found)].map((one) => w.processors[one]).join(" ") || w.compares}</p>
    </footer>
  );
}

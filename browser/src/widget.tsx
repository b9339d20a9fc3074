// A live widget of a lesson: a model on a text, computed in two ways.

import { useState } from "preact/hooks";
import type { Kind } from "./about";
import { Choice, NumberField, Sides, useAbout, within } from "./explorer";
import { UNCHANGED } from "./model";
import { formNote, phrase } from "./registry";
import { useSide } from "./side";
import { Attention } from "./views/attention";
import { Differences } from "./views/differences";
import { Early, Probabilities } from "./views/predictions";
import { Text } from "./views/text";
import { words } from "./words";
import { LONGEST, type Reading } from "./writing";

/** Attributes of a widget's element: data-model, data-text, data-show, data-kind, data-layer, data-form, data-with, data-padding. */
export function Widget({ given, id }: { given: DOMStringMap; id: string }) {
  const w = words();
  const folder = given.model!;
  const [typed, type] = useState(given.text ?? "");
  const [text, setText] = useState(typed);
  const [form, setForm] = useState(given.form ?? "");
  const [padding, setPadding] = useState(Number(given.padding ?? 0));
  const [place, choose] = useState<number | null>(null);
  const forms = useAbout(folder)?.forms ?? [];
  const changes = { ...UNCHANGED, padding };
  const common = { text, method: { name: "greedy" } as const, steps: LONGEST, changes };
  const one = useSide({ ...common, folder, form });
  const other = useSide({ ...common, folder: given.with ?? "", form: "" });
  const sides = given.with ? [one, other] : [one];
  const isReady = sides.every((side) => side.reading || side.error); // all at once, so that nothing moves
  const views: Record<string, (reading: Reading, i: number) => preact.ComponentChildren> = {
    attention: (reading, i) => <Attention reading={reading} id={`${id}-${i}`} changes={changes} first={given.kind as Kind} layer={Number(given.layer ?? 1)} />,
    early: (reading) => <Early reading={reading} place={within(place, reading)} choose={choose} />,
    next: (reading) => <Probabilities reading={reading} place={within(place, reading)} />,
    differences: (reading) => <Differences reading={reading} />,
  };
  const shown = (given.show ?? "").split(" ").flatMap((name) => views[name] ?? []);
  const chosen = forms.find((known) => known.label === form);
  return (
    <form class="controls" onSubmit={(event) => {
      event.preventDefault();
      setText(typed);
    }}>
      <label class="wide">
        {w.text}
        <input type="text" value={typed} maxLength={200} onInput={(event) => type((event.currentTarget as HTMLInputElement).value)} />
      </label>
      <button>{w.run}</button>
      {forms.length > 1 && !given.with && (
        <Choice label={w.computes} value={form || forms[0]!.label} choose={setForm}
          options={forms.map((known) => [known.label, phrase(known.label)])} />
      )}
      {given.padding !== undefined && <NumberField label={w.padding} value={padding} set={setPadding} min={0} max={16} />}
      {chosen && <p class="note wide">{formNote(chosen)}</p>}
      {sides.map((side, i) => side.error && <p key={i} class="error wide" role="alert">{side.error}</p>)}
      {isReady && <Sides sides={sides} view={(reading) => <><h3>{reading.model.about.name}</h3><Text reading={reading} place={within(place, reading)} choose={choose} /></>} />}
      {isReady && shown.map((view, i) => <Sides key={i} sides={sides} view={view} />)}
    </form>
  );
}

import { useState } from "preact/hooks";
import type { Kind, Stack } from "../about";
import { headMap } from "../differences";
import type { Changes } from "../model";
import { words } from "../words";
import type { Reading } from "../writing";
import { Heatmap, Thumbnail } from "./heatmap";

const range = (count: number) => Array.from({ length: count }, (_, place) => place);

const toggled = (set: ReadonlySet<string>, name: string): Set<string> => {
  const other = new Set(set);
  if (!other.delete(name)) other.add(name);
  return other;
};

interface Props {
  reading: Reading;
  id: string;
  changes: Changes;
  change?: (changes: Changes) => void;
  first?: Kind;
  layer?: number;
}

/** Every layer and head: small maps to choose from, and the chosen one with its tokens. */
export function Attention({ reading, id, changes, change, first, layer: firstLayer = 1 }: Props) {
  const w = words();
  const { model, outputs } = reading;
  const kinds = Object.keys(model.about.heads) as Kind[];
  const [wanted, setKind] = useState<Kind>(first ?? "cross");
  const kind = kinds.includes(wanted) ? wanted : kinds[0]!;
  const [byNorm, setByNorm] = useState(false);
  const [[layer, head], setHead] = useState<[number, number]>([firstLayer - 1, 0]);
  const [chosen, choose] = useState<[number, number]>([0, 0]);
  const [layers, heads] = model.about.heads[kind]!;
  const at: [number, number] = [Math.min(layer, layers - 1), Math.min(head, heads - 1)];
  const maps = range(layers).map((l) => range(heads).map((h) => headMap(outputs, kind, l, h, byNorm)));
  const highest = byNorm ? Math.max(...maps.flat().map((map) => map.data.reduce((a, b) => Math.max(a, b), 0))) : 1;
  const stack: Stack = kind === "encoder" ? "encoder" : "decoder";
  const keys = kind === "decoder" ? reading.targetTokens : reading.sourceTokens;
  const queries = kind === "encoder" ? reading.sourceTokens : reading.targetTokens;
  return (
    <div class="attention">
      <div class="choices">
        {kinds.length > 1 && (
          <fieldset>
            <legend>{w.attention}</legend>
            {kinds.map((one) => (
              <label key={one}>
                <input type="radio" name={`${id}-kind`} checked={one === kind} onChange={() => setKind(one)} /> {w[one]}
              </label>
            ))}
          </fieldset>
        )}
        <label title={w.normsNote}>
          <input type="checkbox" checked={byNorm} onChange={() => setByNorm(!byNorm)} /> {w.norms}
        </label>
      </div>
      <div class={`maps-and-heads${keys.length > 16 ? " long" : ""}`}>
        <div class="heads">
          {maps.map((row, l) => (
            <div class="layer" key={l} role="group" aria-label={`${w.layer} ${l + 1}`}>
              <span class="name">
                {w.layer} {l + 1}
                {change && (
                  <label>
                    <input
                      type="checkbox"
                      checked={!changes.layers.has(`${stack}.${l}`)}
                      aria-label={`${w.layer} ${l + 1} ${w[stack]} ${w.on}`}
                      onChange={() => change({ ...changes, layers: toggled(changes.layers, `${stack}.${l}`) })}
                    />{" "}
                    {w.on}
                  </label>
                )}
              </span>
              {row.map((map, h) => (
                <div class="head" key={h}>
                  <button
                    type="button"
                    aria-pressed={l === at[0] && h === at[1]}
                    aria-label={`${w.layer} ${l + 1}, ${w.head} ${h + 1}`}
                    onClick={() => setHead([l, h])}
                  >
                    <Thumbnail map={map} highest={highest} />
                  </button>
                  {change && (
                    <label>
                      <input
                        type="checkbox"
                        checked={!changes.heads.has(`${kind}.${l}.${h}`)}
                        aria-label={`${w.layer} ${l + 1}, ${w.head} ${h + 1} ${w.on}`}
                        onChange={() => change({ ...changes, heads: toggled(changes.heads, `${kind}.${l}.${h}`) })}
                      />{" "}
                      {h + 1}
                    </label>
                  )}
                </div>
              ))}
            </div>
          ))}
        </div>
        <Heatmap
          map={maps[at[0]]![at[1]]!}
          highest={highest}
          queries={queries}
          keys={keys}
          label={`${w.attention}: ${w[kind]}, ${w.layer} ${at[0] + 1}, ${w.head} ${at[1] + 1}`}
          chosen={chosen}
          choose={(query, key) => choose([query, key])}
        />
      </div>
    </div>
  );
}

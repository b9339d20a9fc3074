import { reshaped } from "../decoding";
import { best, softmax, surest } from "../numbers";
import { phrase } from "../registry";
import { decimal, words } from "../words";
import type { Method, Reading } from "../writing";

const SHOWN = 8;
const percent = (share: number) => `${decimal(100 * share, 1)} %`;

/** Names of what the logits are about: labels or tokens. */
const naming = ({ model }: Reading) => (id: number) =>
  model.about.task.endsWith("classification") ? phrase(model.about.labels[id] ?? `#${id}`) : model.target.name(id);

/** Logits after a layer at a token; of a text as a whole where the model labels it. */
function logitsAt({ model, outputs }: Reading, layer: number, place: number) {
  const row = outputs.logits.at(layer, 0);
  return model.about.task === "sequence-classification" ? row.data : row.at(place).data;
}

interface Props {
  reading: Reading;
  place: number;
}

/** The most probable next tokens, labels or guesses; with the temperature and top-k of sampling. */
export function Probabilities({ reading, place, method }: Props & { method?: Method }) {
  const w = words();
  const logits = logitsAt(reading, reading.outputs.logits.dims[0]! - 1, place);
  const shares = method?.name === "sampling" && reading.model.writes ? reshaped(logits, method) : softmax(logits);
  const name = naming(reading);
  return (
    <div class="probabilities">
      <p>
        {reading.model.about.task === "sequence-classification" ? w.label : (
          <>{reading.model.writes ? w.after : w.at} <strong>{reading.targetTokens[place]}</strong></>
        )}
      </p>
      <ol>
        {best(shares, SHOWN).filter((id) => shares[id]! > 0).map((id) => (
          <li key={id}>
            <span class="token">{name(id)}</span>
            <span class="bar" style={`--share:${shares[id]}`} aria-hidden="true" />
            <span class="share">{percent(shares[id]!)}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

interface EarlyProps extends Props {
  choose: (place: number) => void;
}

/** The best token after every layer, at every place. */
export function Early({ reading, place, choose }: EarlyProps) {
  const w = words();
  const { outputs, targetTokens, model } = reading;
  const name = naming(reading);
  const layers = Array.from({ length: outputs.logits.dims[0]! }, (_, layer) => outputs.logits.dims[0]! - 1 - layer);
  const places = model.about.task === "sequence-classification" ? [0] : targetTokens.map((_, i) => i);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={w.early}>
      <table class="early">
        <thead>
          <tr>
            <td />
            {places.map((one) => (
              <th key={one} scope="col" class={one === place ? "chosen" : ""}>
                {model.about.task === "sequence-classification" ? w.label : (
                  <button type="button" onClick={() => choose(one)}>{targetTokens[one]}</button>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {layers.map((layer) => (
            <tr key={layer}>
              <th scope="row">{layer ? `${w.layer} ${layer}` : w.embeddings}</th>
              {places.map((one) => {
                const top = surest(logitsAt(reading, layer, one));
                return (
                  <td key={one} style={`--share:${top.share.toFixed(3)}`} title={percent(top.share)}>
                    {name(top.place)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

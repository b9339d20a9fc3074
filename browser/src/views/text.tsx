import { best, softmax } from "../numbers";
import { phrase } from "../registry";
import { decimal, words } from "../words";
import type { Reading } from "../writing";

interface Props {
  reading: Reading;
  place: number;
  choose: (place: number) => void;
}

/** What the model reads and gives: tokens, and the text, the label or the guesses. */
export function Text({ reading, place, choose }: Props) {
  const w = words();
  const { model, form, sourceTokens, targetTokens } = reading;
  const { task } = model.about;
  const writes = model.writes && form.target === "written";
  return (
    <div class="text">
      <p class="answer"><output>{answer(reading)}</output></p>
      {model.hasSource && (
        <p class="tokens"><span class="name">{w.reads}</span>{sourceTokens.map((token, i) => <span class="token" key={i}>{token}</span>)}</p>
      )}
      <p class="tokens">
        <span class="name">{writes ? w.writes : model.writes ? w.readsToo : w.reads}</span>
        {targetTokens.map((token, i) =>
          task === "sequence-classification" ? <span class="token" key={i}>{token}</span> : (
            <button type="button" class="token" key={i} aria-pressed={i === place} onClick={() => choose(i)}>{token}</button>
          ),
        )}
      </p>
    </div>
  );
}

/** The text that is written, the label, or the guesses for a mask. */
export function answer({ model, outputs, written, source, form }: Reading): string {
  const last = outputs.logits.at(outputs.logits.dims[0]! - 1, 0);
  const { task, labels, ids } = model.about;
  if (task === "sequence-classification") {
    const shares = softmax(last.data);
    return best(shares, 1).map((label) => `${phrase(labels[label]!)} (${decimal(100 * shares[label]!, 1)} %)`).join();
  }
  if (task === "masked-lm") {
    const masks = source.flatMap((id, place) => (id === ids.mask ? [place] : []));
    return masks.map((place) => best(last.at(place).data, 3).map((id) => model.target.name(id)).join(", ")).join("; ");
  }
  if (form.target === "source") {
    const tokens = source.map((_, place) => best(last.at(place).data, 1)[0]!);
    return model.target.decode(tokens);
  }
  const text = model.target.decode(written.tokens);
  return model.hasSource ? text : model.target.decode([...source, ...written.tokens]);
}

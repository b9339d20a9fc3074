import { useEffect, useRef, useState } from "preact/hooks";
import type { Part } from "../about";
import { details, formula, phrase } from "../registry";
import { words } from "../words";
import type { Reading } from "../writing";

/** Parts of the model; the one that is pointed at with formula, shape and line. */
export function Parts({ reading }: { reading: Reading }) {
  const w = words();
  const { form: { parts }, sourceTokens, targetTokens } = reading;
  const [path, choose] = useState("");
  const part = parts.find((one) => one.path === path) ?? parts[0]!;
  const sizes = { source: sourceTokens.length, target: targetTokens.length };
  const shape = part.shape.map((size) => (typeof size === "number" ? size : sizes[size])).join(" × ");
  const stacks = [...new Set(parts.map((one) => one.stack))];
  return (
    <div class="parts">
      <div>
        {stacks.map((stack) => (
          <div key={stack} role="group" aria-label={stack === "head" ? w.output : w[stack]}>
            <h3>{stack === "head" ? w.output : w[stack]}</h3>
            <ul>
              {parts.filter((one) => one.stack === stack).map((one) => (
                <li key={one.path}>
                  <button
                    type="button"
                    class={one.quirks.length ? "quirky" : ""}
                    aria-pressed={one === part}
                    onPointerEnter={() => choose(one.path)}
                    onFocus={() => choose(one.path)}
                    onClick={() => choose(one.path)}
                  >
                    {phrase(one.label)}
                  </button>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
      <div class="part" aria-live="polite">
        <h3>{phrase(part.label)}</h3>
        <p><code>{part.path}</code> {details(part.detail)}</p>
        <dl>
          <dt>{w.formula}</dt>
          <dd class="formula">{formula(part.formula) || "–"}</dd>
          <dt>{w.shape}</dt>
          <dd>{shape || "–"}</dd>
          <dt>{w.line}</dt>
          <dd>{part.line ?? w.noLine}</dd>
          {part.quirks.length > 0 && <dt>{w.quirks}</dt>}
          {part.quirks.length > 0 && <dd>{part.quirks.join(", ")}</dd>}
        </dl>
        <Code reading={reading} part={part} />
      </div>
    </div>
  );
}

/** Begins the comments on quirks in ejected files. */
const DEFECT = "# The original's defect";

/** The ejected file at the line of a part. */
function Code({ reading, part }: { reading: Reading; part: Part }) {
  const w = words();
  const [lines, setLines] = useState<string[]>([]);
  const [isOpen, open] = useState(false);
  const marked = useRef<HTMLElement>(null);
  const { model, form } = reading;
  useEffect(() => {
    let isLatest = true;
    const show = (text: string) => isLatest && setLines(text.split("\n"));
    if (isOpen) void model.code(form).then(show, (error: Error) => show(error.message));
    return () => {
      isLatest = false;
    };
  }, [isOpen, model, form]);
  useEffect(() => {
    const box = marked.current?.parentElement;
    if (box && marked.current) box.scrollTop = marked.current.offsetTop - box.offsetTop - 40;
  }, [lines, part]);
  if (part.line === null) return null;
  return (
    <details open={isOpen} onToggle={(event) => open((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>{w.file}</summary>
      <pre tabIndex={0} aria-label={w.file}>
        {lines.map((line, i) =>
          i + 1 === part.line ? <mark key={i} ref={marked}>{`${line}\n`}</mark> : <span key={i} class={line.includes(DEFECT) ? "defect" : ""}>{`${line}\n`}</span>,
        )}
      </pre>
    </details>
  );
}

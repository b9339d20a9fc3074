import { hierarchy, tree } from "d3-hierarchy";
import type { Beams, Node } from "../decoding";
import type { Texts } from "../tokens";
import { decimal, words } from "../words";

const ROW = 22;
const COLUMN = 92;

/** The tree that beam search grows: from left to right, a column a step. */
export function BeamTree({ beams, texts }: { beams: Beams; texts: Texts }) {
  const w = words();
  const children = new Map<Node | null, Node[]>();
  for (const node of beams.nodes) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const root = tree<Node>().nodeSize([ROW, COLUMN])(hierarchy(beams.root, (node) => children.get(node) ?? []));
  const nodes = root.descendants();
  const rows = nodes.map((node) => node.x);
  const [top, bottom] = [Math.min(...rows), Math.max(...rows)];
  const width = (root.height + 1) * COLUMN;
  const chosen = new Set<Node>();
  for (let node: Node | null = beams.ended[0]?.node ?? beams.running[0] ?? null; node; node = node.parent) chosen.add(node);
  const name = (node: Node) => (node.parent ? texts.name(node.token) : "·");
  return (
    <div class="scroll tree" tabIndex={0} role="group" aria-label={w.tree}>
      <svg width={width} height={bottom - top + 2 * ROW} role="img" aria-label={`${w.tree}: ${texts.decode(beams.text)}`}>
        <g transform={`translate(10 ${ROW - top})`}>
          {root.links().map(({ source, target }) => (
            <path
              class={chosen.has(target.data) ? "chosen" : target.data.state}
              d={`M${source.y} ${source.x}C${source.y + COLUMN / 2} ${source.x} ${target.y - COLUMN / 2} ${target.x} ${target.y} ${target.x}`}
            />
          ))}
          {nodes.map((node) => (
            <g class={chosen.has(node.data) ? "chosen" : node.data.state} transform={`translate(${node.y} ${node.x})`}>
              <circle r="3" />
              <text x="6" dy="-4">{name(node.data)}</text>
              <title>{`${name(node.data)} ${decimal(node.data.logProbability, 2)}${node.data.state === "dropped" ? ` (${w.dropped})` : ""}`}</title>
            </g>
          ))}
        </g>
      </svg>
    </div>
  );
}

import { differences, ROUNDING } from "../differences";
import { local, words } from "../words";
import type { Reading } from "../writing";

/** A stage such as "layers.0.mlp_residual" as people read it. */
function stageName(stage: string): string {
  const w = words();
  const [, layer, name] = /^(?:layers\.(\d+)\.)?(.+?)(?:_residual)?$/.exec(stage)!;
  const known = w.stages[name!] ?? name;
  return layer ? `${w.layer} ${Number(layer) + 1}, ${known}` : `${known}`;
}

/** How far the residual stream is from that of the unchanged model, place by place. */
export function Differences({ reading }: { reading: Reading }) {
  const w = words();
  const found = differences(reading);
  if (!found.length) return <p class="note">{w.same}</p>;
  const first = found.find((one) => one.stream > ROUNDING);
  const highest = Math.max(...found.map((one) => (Number.isFinite(one.stream) ? one.stream : 0)), ROUNDING);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={w.differ}>
      <table class="differences">
        <tbody>
          {found.map((one) => (
            <tr key={`${one.stack}.${one.stage}`} class={one === first ? "first" : ""}>
              <th scope="row">
                {w[one.stack]}: {stageName(one.stage)}
              </th>
              <td>
                <span class="bar" style={`--share:${Math.min(1, one.stream / highest)}`} aria-hidden="true" />
              </td>
              <td class="number">{one.stream < ROUNDING ? "0" : local(one.stream.toPrecision(3))}</td>
              <td>{one === first ? `← ${w.first}` : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

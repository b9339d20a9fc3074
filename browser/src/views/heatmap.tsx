import { useEffect, useRef } from "preact/hooks";
import type { Tensor } from "../numbers";
import { decimal, words } from "../words";

/** Colour of a map: stronger means more. */
function draw(canvas: HTMLCanvasElement, map: Tensor, cell: number, highest: number, chosen?: [number, number]): void {
  const [queries, keys] = map.dims as [number, number];
  const scale = window.devicePixelRatio || 1;
  const pixels = Math.max(1, Math.round(cell * scale));
  canvas.width = keys * pixels;
  canvas.height = queries * pixels;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(canvas);
  context.fillStyle = style.getPropertyValue("--ink");
  map.data.forEach((value, i) => {
    context.globalAlpha = highest > 0 ? Math.min(1, value / highest) : 0;
    context.fillRect((i % keys) * pixels, Math.floor(i / keys) * pixels, pixels, pixels);
  });
  if (!chosen) return;
  context.globalAlpha = 1;
  context.strokeStyle = style.getPropertyValue("--accent");
  context.lineWidth = 2 * scale;
  context.strokeRect(chosen[1] * pixels, chosen[0] * pixels, pixels, pixels);
}

/** Draws again when the colours of the page change. */
export function useDrawing(paint: (canvas: HTMLCanvasElement) => void, inputs: unknown[]) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const again = () => canvas.current && paint(canvas.current);
    again();
    document.addEventListener("colours", again);
    return () => document.removeEventListener("colours", again);
  }, inputs);
  return canvas;
}

/** A small map without words. */
export function Thumbnail({ map, highest }: { map: Tensor; highest: number }) {
  const canvas = useDrawing((one) => draw(one, map, 64 / Math.max(...map.dims), highest), [map, highest]);
  return <canvas ref={canvas} aria-hidden="true" />;
}

export interface HeatmapProps {
  map: Tensor;
  highest: number;
  queries: string[];
  keys: string[];
  label: string;
  chosen: [number, number];
  choose: (query: number, key: number) => void;
}

const ARROWS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** A map with its tokens, by pointer and by keyboard. */
export function Heatmap({ map, highest, queries, keys, label, chosen, choose }: HeatmapProps) {
  const longest = Math.max(queries.length, keys.length);
  const cell = longest <= 24 ? 24 : longest <= 40 ? 16 : 12;
  const query = Math.min(chosen[0], queries.length - 1);
  const key = Math.min(chosen[1], keys.length - 1);
  const canvas = useDrawing((one) => draw(one, map, cell, highest, [query, key]), [map, highest, query, key]);
  const value = map.data[query * keys.length + key] ?? 0;
  const row = Array.from(map.at(query).data, (weight, place) => ({ weight, place }));
  row.sort((one, other) => other.weight - one.weight);
  const move = (event: KeyboardEvent) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const within = (place: number, length: number) => Math.max(0, Math.min(length - 1, place));
    choose(within(query + step[0], queries.length), within(key + step[1], keys.length));
  };
  const point = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const place = (at: number, size: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor((at / size) * count)));
    choose(
      place(event.clientY - box.top, box.height, queries.length),
      place(event.clientX - box.left, box.width, keys.length),
    );
  };
  return (
    <div class="heatmap" style={`--cell:${cell}px`}>
      <div class="map" tabIndex={0} role="group" aria-label={`${label}. ${words().arrows}`} onKeyDown={move}>
        <div class="keys" aria-hidden="true">
          {keys.map((token, i) => <span key={i} class={i === key ? "chosen" : ""}><span>{token}</span></span>)}
        </div>
        <div class="queries" aria-hidden="true">
          {queries.map((token, i) => <span key={i} class={i === query ? "chosen" : ""}>{token}</span>)}
        </div>
        <canvas
          ref={canvas}
          aria-hidden="true"
          style={`width:${cell * keys.length}px;height:${cell * queries.length}px`}
          onPointerMove={point}
          onClick={point}
        />
      </div>
      <p class="caption" aria-live="polite">
        <strong>{queries[query]}</strong> → <strong>{keys[key]}</strong>: {decimal(value, 4)}
        <br />
        <small>
          {queries[query]} {words().attends}{" "}
          {row.slice(0, 3).map(({ weight, place }) => `${keys[place]} ${decimal(weight, 2)}`).join(", ")}
        </small>
      </p>
    </div>
  );
}

/**
 * The map: a cell for each node, within it one for each device, coloured by use. A thousand nodes fit on a screen.
 * @module
 */
import { html, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { useAnswer, useDark } from "../cluster.js";
import { percent } from "../format.js";
import { paintOf } from "../timeline/draw.js";
import { useSize } from "../timeline/timeline.js";

const MOST_HIGH = 320;

/**
 * How large cells are, so that all are seen.
 * @param {number} count @param {number} width
 */
export function grid(count, width) {
  for (let cell = 56; cell > 7; cell -= 2) {
    const columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.ceil(count / columns);
    if (rows * cell <= MOST_HIGH) return { cell, columns, rows };
  }
  const columns = Math.max(1, Math.floor(width / 7));
  return { cell: 7, columns, rows: Math.ceil(count / columns) };
}

/** @param {{onPick: (id: string) => void, picked: string | undefined}} given */
export function NodeMap({ onPick, picked }) {
  const { answer } = useAnswer("map", ["nodes"], 1_000);
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const size = useSize(frame);
  const dark = useDark();
  const paint = useMemo(() => paintOf(dark), [dark]);
  const [told, setTold] = useState("");
  /** @type {Array<[string, string, string, number, string[], number[]]>} id, name, state, part of the CPUs that is held, states of devices, held parts */
  const nodes = answer?.nodes ?? [];
  const shape = grid(nodes.length, Math.max(60, size.width));
  useLayoutEffect(() => {
    const target = canvas.current;
    const pen = target?.getContext("2d");
    if (!target || !pen || size.width === 0) return;
    const scale = devicePixelRatio || 1;
    target.width = Math.round(size.width * scale);
    target.height = Math.round(shape.rows * shape.cell * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    nodes.forEach((node, number) => drawCell(pen, paint, node, (number % shape.columns) * shape.cell, Math.floor(number / shape.columns) * shape.cell, shape.cell, node[0] === picked));
  });
  const under = (/** @type {{offsetX: number, offsetY: number}} */ event) => {
    const column = Math.floor(event.offsetX / shape.cell);
    return column < shape.columns ? nodes[Math.floor(event.offsetY / shape.cell) * shape.columns + column] : undefined;
  };
  const alive = nodes.filter((node) => node[2] !== "DEAD").length;
  return html`<div class="map" ref=${frame}>
    <canvas ref=${canvas} role="img" aria-label=${`A map of ${nodes.length} nodes, ${alive} of them alive. The table says the same.`} style=${{ height: `${shape.rows * shape.cell}px` }}
      onPointerMove=${(/** @type {any} */ event) => setTold(sentence(under(event)))} onPointerLeave=${() => setTold("")}
      onClick=${(/** @type {any} */ event) => { const node = under(event); if (node) onPick(node[0]); }}></canvas>
    <p class="map-told">${told || (nodes.length > 0 ? "A cell is a node; its stripes are its devices, filled as they are held. Grey stripes stand for CPUs where a node has no devices." : "")}</p>
  </div>`;
}

/** @param {[string, string, string, number, string[], number[]] | undefined} node */
function sentence(node) {
  if (!node) return "";
  const held = node[5].reduce((sum, part) => sum + part, 0);
  return `${node[1]}: ${node[2].toLowerCase()}, ${percent(node[3], 1)} of its CPUs held${node[4].length ? `, ${Math.round(held * 100) / 100} of ${node[4].length} devices held` : ""}`;
}

/** @param {CanvasRenderingContext2D} pen @param {import("../timeline/draw.js").Paint} paint @param {any} node @param {number} left @param {number} top @param {number} cell @param {boolean} isPicked */
function drawCell(pen, paint, node, left, top, cell, isPicked) {
  const [, , state, cpu, states, held] = node;
  const space = cell > 30 ? 6 : cell > 14 ? 3 : 1;
  const [wide, high] = [cell - space, cell - space];
  pen.fillStyle = paint.rest;
  pen.fillRect(left, top, wide, high);
  if (cell > 14) {
    pen.strokeStyle = paint.line;
    pen.lineWidth = 1;
    pen.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
  }
  if (state === "DEAD") {
    pen.strokeStyle = paint.line;
    pen.beginPath();
    pen.moveTo(left, top);
    pen.lineTo(left + wide, top + high);
    pen.stroke();
  } else if (states.length === 0) {
    pen.fillStyle = paint.soft;
    pen.fillRect(left, top + high * (1 - cpu), wide, high * cpu);
  } else {
    const stripe = wide / states.length;
    states.forEach((/** @type {string} */ one, /** @type {number} */ number) => {
      pen.fillStyle = one === "quarantined" ? paint.bad : one === "checking" ? paint.waits : paint.accent;
      const tall = one === "quarantined" || one === "checking" ? high : high * held[number];
      pen.fillRect(left + number * stripe, top + high - tall, Math.max(0.6, stripe - (stripe > 3 ? 1 : 0)), tall);
    });
  }
  if (state === "DRAINING" || isPicked) {
    pen.strokeStyle = isPicked ? paint.ink : paint.waits;
    pen.lineWidth = 2;
    pen.strokeRect(left + 1, top + 1, wide - 2, high - 2);
  }
}

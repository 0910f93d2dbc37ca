/**
 * Draws the timeline upon a canvas.
 * @module
 */
import { clock, colours, day } from "../format.js";
import { AXIS, KIND, seen, ticks, within } from "./layout.js";

/** @typedef {import("./layout.js").Bar} Bar @typedef {import("./layout.js").Row} Row @typedef {import("./layout.js").Device} Device */

/**
 * @typedef {object} Scene
 * @property {import("./layout.js").Holdings} holdings
 * @property {Row[]} rows
 * @property {import("./layout.js").Span} span
 * @property {number} gutter the width of the names
 * @property {number} width
 * @property {number} height
 * @property {number} scroll
 * @property {Paint} paint
 * @property {Set<string>} folded
 * @property {string} picked the key of a bar
 * @property {Bar | null} pointed
 * @property {number} until until when all is known
 */

/**
 * @typedef {object} Paint
 * @property {boolean} dark
 * @property {string} ink
 * @property {string} soft
 * @property {string} line
 * @property {string} rest
 * @property {string} surface
 * @property {string} bad
 * @property {string} badInk
 * @property {string} waits
 * @property {string} accent
 * @property {string} text the family of letters
 */

/** For how long what was measured last is shown. */
const MEASURED_MS = 20_000;

/** The colours of the page as a canvas needs them. @param {boolean} dark @returns {Paint} */
export function paintOf(dark) {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  return {
    dark, ink: of("ink"), soft: of("soft"), line: of("line"), rest: of("rest"), surface: of("surface"), bad: of("bad-fill"),
    badInk: of("bad-ink"), waits: of("waits"), accent: of("accent"), text: getComputedStyle(document.body).fontFamily,
  };
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
export function draw(pen, scene) {
  const { width, height, gutter, paint } = scene;
  pen.clearRect(0, 0, width, height);
  pen.font = `12px ${paint.text}`;
  pen.textBaseline = "middle";
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, width, height - AXIS);
  pen.clip();
  const rows = seen(scene.rows, scene.scroll, scene.scroll + height - AXIS);
  for (const row of rows) drawRow(pen, scene, row, row.top - scene.scroll + AXIS);
  drawUnknown(pen, scene);
  drawNow(pen, scene);
  for (const row of rows) drawName(pen, scene, row, row.top - scene.scroll + AXIS);
  pen.restore();
  drawAxis(pen, scene);
  pen.fillStyle = paint.line;
  pen.fillRect(gutter - 1, 0, 1, height);
}

/** @param {Scene} scene @param {number} at */
function x(scene, at) {
  const { span, gutter, width } = scene;
  return gutter + ((at - span.from) / (span.to - span.from)) * (width - gutter);
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {Row} row @param {number} top */
function drawRow(pen, scene, row, top) {
  if (row.type === "node") {
    pen.fillStyle = scene.paint.line;
    pen.fillRect(scene.gutter, top + row.height - 1, scene.width, 1);
    return;
  }
  const devices = row.device ? [row.device] : row.node.devices;
  const high = row.bar / Math.max(1, devices.length);
  devices.forEach((device, lane) => {
    const from = top + lane * high;
    const isThin = high < 14;
    pen.fillStyle = scene.paint.rest;
    pen.fillRect(scene.gutter, from, scene.width - scene.gutter, Math.max(1, high - (isThin && high > 3 ? 1 : 0)));
    for (const bar of within(device.bars, scene.span)) drawBar(pen, scene, bar, from, isThin && high > 3 ? high - 1 : high, device);
  });
  if (row.device && row.device.use.length > 0) drawUse(pen, scene, row.device, top + row.bar + 1);
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {Bar} bar @param {number} top @param {number} high @param {Device} device */
function drawBar(pen, scene, bar, top, high, device) {
  const [begin, end, offset, share, kind, name, count, key] = bar;
  const left = Math.max(scene.gutter, x(scene, begin), x(scene, scene.holdings.begun_ms));
  const right = Math.min(scene.width, x(scene, end ?? scene.until));
  if (right < scene.gutter || left > scene.width) return;
  const wide = Math.max(1, right - left);
  const tall = Math.max(1, share * high);
  const y = top + (1 - offset - share) * high;
  const text = scene.holdings.names[name] ?? "";
  const { paint } = scene;
  const tone = kind === KIND.held ? colours(text, paint.dark) : kind === KIND.checking
    ? { fill: paint.rest, edge: paint.waits, ink: paint.ink } : { fill: paint.bad, edge: paint.bad, ink: paint.badInk };
  pen.fillStyle = tone.fill;
  pen.fillRect(left, y, wide, tall);
  if (kind === KIND.checking) hatch(pen, left, y, wide, tall, paint.waits, 5);
  if (count > 1 && wide > 3) hatch(pen, left, y, wide, tall, paint.dark ? "rgb(255 255 255 / 12%)" : "rgb(0 0 0 / 8%)", 3);
  if (kind === KIND.held && wide > 2) {
    pen.fillStyle = tone.edge;
    pen.fillRect(left, y, Math.min(2, wide / 3), tall);
  }
  if (wide > 3 && tall > 3) {
    pen.strokeStyle = paint.surface;
    pen.lineWidth = 1;
    pen.strokeRect(left + 0.5, y + 0.5, wide - 1 > 0 ? wide : wide, tall - 1);
  }
  const isPicked = key !== null && key === scene.picked;
  if (isPicked || bar === scene.pointed) {
    pen.strokeStyle = isPicked ? paint.accent : paint.ink;
    pen.lineWidth = 2;
    pen.strokeRect(left + 1, y + 1, Math.max(1, wide - 2), Math.max(1, tall - 2));
  }
  const label = kind === KIND.quarantined ? `out of service: ${device.reason ?? text}` : kind === KIND.checking ? "is checked" : text;
  if (tall >= 9 && wide > 30) {
    pen.font = `${tall >= 16 ? 12 : tall >= 11 ? 10.5 : 9}px ${paint.text}`;
    const shown = count > 1 ? `${count} × ${label || "several"}` : share < 0.999 && share > 0 ? `${label}  ${Math.round(share * 100)} %` : label;
    write(pen, shown, left + 6, y + tall / 2 + 0.5, wide - 10, tone.ink);
    pen.font = `12px ${paint.text}`;
  }
}

/** @param {CanvasRenderingContext2D} pen @param {number} left @param {number} top @param {number} wide @param {number} high @param {string} colour @param {number} gap */
function hatch(pen, left, top, wide, high, colour, gap) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, wide, high);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  const first = Math.floor((left - high) / gap) * gap;
  for (let at = first; at < left + wide; at += gap) {
    pen.moveTo(at, top + high);
    pen.lineTo(at + high, top);
  }
  pen.stroke();
  pen.restore();
}

/** Busy as a line, memory as what lies beneath it. @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {Device} device @param {number} top */
function drawUse(pen, scene, device, top) {
  const high = 6;
  const { paint, span } = scene;
  pen.fillStyle = paint.rest;
  pen.fillRect(scene.gutter, top, scene.width - scene.gutter, high);
  const points = device.use;
  for (let at = 0; at < points.length; at += 1) {
    const [from, busy, memory] = points[at];
    const to = points[at + 1]?.[0] ?? Math.min(scene.until, from + MEASURED_MS);
    if (to < span.from || from > span.to) continue;
    const left = Math.max(scene.gutter, x(scene, from));
    const wide = Math.max(0.5, Math.min(x(scene, to), scene.width) - left);
    if (memory !== null) {
      pen.fillStyle = paint.dark ? "rgb(120 170 200 / 35%)" : "rgb(70 120 150 / 28%)";
      pen.fillRect(left, top + high * (1 - memory), wide, high * memory);
    }
    if (busy !== null && busy > 0) {
      pen.fillStyle = paint.accent;
      pen.fillRect(left, top + Math.max(0, high * (1 - busy) - 0.75), wide, 1.5);
    }
  }
}

/** What nobody recorded, and what is not known yet. @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawUnknown(pen, scene) {
  const { holdings, paint, height } = scene;
  /** @type {Array<[number, number, string]>} */
  const stretches = holdings.gaps.map(([from, to]) => [from, to, "not recorded"]);
  if (holdings.begun_ms > scene.span.from) stretches.push([scene.span.from, holdings.begun_ms, "before the record begins"]);
  for (const [from, to, text] of stretches) {
    const left = Math.max(scene.gutter, x(scene, from));
    const right = Math.min(scene.width, x(scene, to));
    if (right <= left) continue;
    pen.fillStyle = paint.surface;
    pen.fillRect(left, AXIS, right - left, height);
    hatch(pen, left, AXIS, right - left, height, paint.line, 9);
    if (right - left > 150) {
      const wide = pen.measureText(text).width;
      pen.fillStyle = paint.surface;
      pen.fillRect((left + right - wide) / 2 - 6, AXIS + 6, wide + 12, 20);
      write(pen, text, (left + right - wide) / 2, AXIS + 16, right - left, paint.soft);
    }
  }
  const after = Math.max(scene.gutter, x(scene, scene.until));
  pen.fillStyle = paint.surface;
  if (after < scene.width) pen.fillRect(after, AXIS, scene.width - after, height);
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawNow(pen, scene) {
  const at = x(scene, scene.until);
  if (at < scene.gutter || at > scene.width) return;
  pen.fillStyle = scene.paint.accent;
  pen.fillRect(Math.round(at), AXIS, 1, scene.height);
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {Row} row @param {number} top */
function drawName(pen, scene, row, top) {
  const { paint, gutter } = scene;
  pen.fillStyle = paint.surface;
  pen.fillRect(0, top, gutter - 1, row.height);
  const middle = top + (row.type === "node" ? row.height : row.bar) / 2;
  if (row.type !== "device") {
    pen.font = `600 12px ${paint.text}`;
    const gone = row.node.state === "ALIVE" ? "" : `  ${row.node.state.toLowerCase()}`;
    write(pen, `${row.type === "folded" ? "▸" : "▾"} ${row.node.name}${gone}`, 8, middle, gutter - 16, paint.ink);
    pen.font = `12px ${paint.text}`;
    return;
  }
  const bad = row.device?.state === "quarantined";
  if (bad) {
    pen.fillStyle = paint.bad;
    pen.fillRect(0, top, 3, row.bar);
  }
  write(pen, row.device?.label ?? "", 22, middle, gutter - 30, bad ? paint.ink : paint.soft);
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawAxis(pen, scene) {
  const { paint, span, gutter, width } = scene;
  pen.fillStyle = paint.surface;
  pen.fillRect(0, 0, width, AXIS);
  pen.fillStyle = paint.line;
  pen.fillRect(0, AXIS - 1, width, 1);
  const offset = -new Date(span.to).getTimezoneOffset() * 60_000;
  const { step, marked } = ticks(span, Math.max(2, (width - gutter) / 92), offset);
  pen.font = `11px ${paint.text}`;
  for (const at of marked) {
    const left = Math.round(x(scene, at));
    if (left < gutter + 2) continue;
    pen.fillStyle = paint.line;
    pen.fillRect(left, AXIS - 6, 1, 5);
    const text = step < 1_000 ? `${clock(at)}.${String(Math.floor(at % 1_000)).padStart(3, "0")}` : step >= 43_200_000 ? day(at)
      : step >= 60_000 ? clock(at).slice(0, 5) : clock(at);
    write(pen, text, left + 4, AXIS / 2, width - left, paint.soft);
  }
  pen.font = `12px ${paint.text}`;
}

/** Words that end where there is no room for more. @param {CanvasRenderingContext2D} pen @param {string} text @param {number} left @param {number} middle @param {number} room @param {string} ink */
function write(pen, text, left, middle, room, ink) {
  let shown = text.length > 200 ? text.slice(0, 200) : text;
  if (pen.measureText(shown).width > room) {
    let [low, high] = [0, shown.length];
    while (low < high) {
      const middleOf = (low + high + 1) >> 1;
      if (pen.measureText(`${shown.slice(0, middleOf)}…`).width <= room) low = middleOf;
      else high = middleOf - 1;
    }
    if (low === 0) return;
    shown = `${shown.slice(0, low)}…`;
  }
  pen.fillStyle = ink;
  pen.fillText(shown, left, middle);
}

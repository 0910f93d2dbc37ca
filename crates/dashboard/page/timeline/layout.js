/**
 * Where the rows of the timeline lie, and what lies at a point of it. Pure: no canvas, no clock.
 * @module
 */

/**
 * A bar of an answer: from, to (null: still so), offset and height as parts of the device, kind, number of its name, how many
 * grants were merged into it, and its key (null where it was merged of several).
 * @typedef {[number, number | null, number, number, number, number, number, string | null]} Bar
 * @typedef {{key: string, label: string, state: string, reason: string | null, bars: Bar[], use: Array<[number, number | null, number | null]>, cores?: number}} Device
 * A node whose devices are not told has placeholders in their places. A row that stands for CPUs is as high as there are `cores`.
 * @typedef {{id: string, name: string, state: string, devices: Device[], isTold: boolean}} Node
 * @typedef {{unit: string, from: number, to: number, begun_ms: number, until_ms: number, gaps: Array<[number, number]>, names: string[], nodes: Node[]}} Holdings
 * @typedef {{type: "node" | "device" | "folded", place: number, top: number, height: number, bar: number, node: Node, device: Device | null}} Row
 * @typedef {{from: number, to: number}} Span
 */

export const KIND = { held: 0, checking: 1, quarantined: 2 };
const NODE_HEIGHT = 24;
const DEVICE_BAR = 24;
const USE_HEIGHT = 6;
const SPACE = 5;
/** How high a core is, and how high the row of a node's cores is at most. */
const CORE_BAR = 14;
const CORES_BAR_MAX = 168;
export const AXIS = 26;
export const FOLDED_AT = 64;

/** What stands for a device that is not told, without and with a line of its use. @type {Device[]} */
const UNTOLD = [[], [/** @type {[number, null, null]} */ ([0, null, null])]].map((use) => ({ key: "", label: "", state: "free", reason: null, bars: [], use }));

/** An answer whose nodes all have devices: placeholders where they are not told, which take the same room. @param {any} answer @returns {Holdings} */
export function filled(answer) {
  const nodes = answer.nodes.map((/** @type {any} */ node) => (node.devices ? { ...node, isTold: true }
    : { ...node, isTold: false, devices: Array.from({ length: node.count }, (_, number) => ({ ...UNTOLD[number < node.measured ? 1 : 0], cores: node.cores })) }));
  return { ...answer, nodes };
}

/** How many nodes are told beyond those that are seen, at least. */
const BEYOND = 8;
const STEP = 16;

/** Which nodes' devices are asked for where these are seen, so that small moves need no new answer. @param {number} first @param {number} last */
export function nodesAsked(first, last) {
  const from = Math.max(0, Math.floor((first - BEYOND) / STEP) * STEP);
  return { first: from, count: Math.max(2 * STEP, Math.ceil((last + 1 + BEYOND - from) / STEP) * STEP) };
}

/** How high a device's bar is. @param {Device} device */
function barOf(device) {
  return device.cores === undefined ? DEVICE_BAR : Math.max(DEVICE_BAR, Math.min(CORES_BAR_MAX, Math.round(device.cores * CORE_BAR)));
}

/** @param {Holdings} holdings @param {Set<string>} folded @returns {{rows: Row[], height: number}} */
export function layout(holdings, folded) {
  /** @type {Row[]} */
  const rows = [];
  let top = 4;
  holdings.nodes.forEach((node, place) => {
    const isFolded = folded.has(node.id);
    const height = isFolded ? DEVICE_BAR + SPACE : NODE_HEIGHT;
    rows.push({ type: isFolded ? "folded" : "node", place, top, height, bar: isFolded ? DEVICE_BAR : 0, node, device: null });
    top += height;
    if (isFolded) return;
    for (const device of node.devices) {
      const used = device.use.length > 0 ? USE_HEIGHT + 1 : 0;
      const bar = barOf(device);
      rows.push({ type: "device", place, top, height: bar + used + SPACE, bar, node, device });
      top += bar + used + SPACE;
    }
  });
  return { rows, height: top + 4 };
}

/** The rows that are seen. @param {Row[]} rows @param {number} from @param {number} to */
export function seen(rows, from, to) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].top + rows[middle].height < from) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < rows.length && rows[end].top <= to) end += 1;
  return rows.slice(low, end);
}

/** The bars that may be seen: they are in the order of their begin. @param {Bar[]} bars @param {Span} span */
export function within(bars, span) {
  return bars.filter((bar) => bar[0] <= span.to && (bar[1] === null || bar[1] >= span.from));
}

/**
 * What lies at a point.
 * @param {Row[]} rows @param {number} y from the top of the first row @param {number} at the moment
 * @param {number} slack how far beside a bar still counts, in ms @param {number} until
 * @returns {{row: Row, bar: Bar | null, device: Device | null} | null}
 */
export function hit(rows, y, at, slack, until) {
  const row = rows.find((one) => y >= one.top && y < one.top + one.height);
  if (!row) return null;
  if (row.type === "node") return { row, bar: null, device: null };
  let device = row.device;
  let part = (y - row.top) / row.bar;
  if (row.type === "folded") {
    const lane = Math.min(row.node.devices.length - 1, Math.max(0, Math.floor(part * row.node.devices.length)));
    device = row.node.devices[lane] ?? null;
    part = part * row.node.devices.length - lane;
  }
  const from = 1 - Math.min(1, part);
  const bar = device?.bars.findLast(([begin, end, offset, share]) =>
    at >= begin - slack && at <= (end ?? until) + slack && from >= offset - 0.02 && from <= offset + share + 0.02) ?? null;
  return { row, bar, device };
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3,
  3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3];

/** Moments to mark, in whole steps of the reader's zone. @param {Span} span @param {number} most @param {number} offset of the zone, in ms */
export function ticks(span, most, offset) {
  const step = STEPS.find((one) => (span.to - span.from) / one <= most) ?? STEPS[STEPS.length - 1];
  const marked = [];
  for (let at = Math.ceil((span.from + offset) / step) * step - offset; at <= span.to; at += step) marked.push(at);
  return { step, marked };
}

/** A span that is longer or shorter around a moment. @param {Span} span @param {number} around @param {number} factor @returns {Span} */
export function zoomed(span, around, factor) {
  const long = Math.min(14 * 86_400_000, Math.max(50, (span.to - span.from) * factor));
  const part = (around - span.from) / (span.to - span.from);
  return { from: around - part * long, to: around + (1 - part) * long };
}

/** What is asked for, so that small moves need no new answer. @param {Span} span @param {number} width in pixels */
export function asked(span, width) {
  const long = span.to - span.from;
  const step = 2 ** Math.ceil(Math.log2(long / 2));
  const from = Math.floor(span.from / step) * step - step;
  const to = Math.ceil(span.to / step) * step + step;
  return { from, to, pixels: Math.min(4_000, Math.ceil(((to - from) / long) * width / 100) * 100) };
}

/**
 * A flame graph: each frame is as wide as it weighs and lies beneath what called it. A click makes a frame the widest one, and
 * Escape or a button goes back. Beside it stands a table of functions that says the same.
 * @module
 */
import { html, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { useDark } from "../cluster.js";
import { bytes, colours } from "../format.js";
import { useSize } from "../timeline/timeline.js";

/** What is narrower is not drawn, and from which width on a frame has its name written in it, in pixels. */
const WIDTH_MIN = 2;
const NAMED_FROM = 26;
const ROW_PX = 20;
const FUNCTIONS_MAX = 50;

/**
 * What was called at one place, and what that weighs with all that it calls.
 * @typedef {{id: number, name: string, place: string, weight: number, parent: Frame | null, children: Frame[], depth: number}} Frame
 */
/** @typedef {{function: string, file: string, line: number}} Call */
/** @typedef {{pid: number | null, name: string, stacks: Array<{name: string, weight: number, frames: Call[]}>}} Process */
/** @typedef {{function: string, file: string, line: number, own: number, total: number}} Weighed */
/** @typedef {{frame: Frame, left: number, wide: number, outer: boolean}} Box */

/** Where a call is. @param {Call} call */
function placeOf(call) {
  return call.file ? `${call.file}:${call.line}` : "";
}

/**
 * All stacks as one tree, the heaviest first: process, thread, and each call within the one before.
 * @param {Process[]} processes
 * @returns {Frame}
 */
export function tree(processes) {
  let count = 0;
  const made = (/** @type {string} */ name, /** @type {string} */ place, /** @type {Frame | null} */ parent) =>
    /** @type {Frame} */ ({ id: count++, name, place, weight: 0, parent, children: [], depth: parent ? parent.depth + 1 : 0 });
  const root = made("all", "", null);
  /** @type {Map<string, Frame>} */
  const known = new Map();
  const within = (/** @type {Frame} */ parent, /** @type {string} */ name, /** @type {string} */ place) => {
    const key = JSON.stringify([parent.id, name, place]);
    let frame = known.get(key);
    if (!frame) {
      frame = made(name, place, parent);
      known.set(key, frame);
      parent.children.push(frame);
    }
    return frame;
  };
  for (const process of processes) {
    for (const stack of process.stacks) {
      const path = [root];
      const enter = (/** @type {string} */ name, /** @type {string} */ place) => path.push(within(path[path.length - 1], name, place));
      if (processes.length > 1) enter(`PID ${process.pid ?? "?"} ${process.name}`, "");
      if (stack.name) enter(stack.name, "");
      for (const call of [...stack.frames].reverse()) enter(call.function, placeOf(call));
      for (const frame of path) frame.weight += stack.weight;
    }
  }
  for (const frame of [root, ...known.values()]) frame.children.sort((one, other) => other.weight - one.weight);
  return root;
}

/**
 * The functions of all stacks, those that weigh most themselves first. One that calls itself counts once. Memory is told by lines of
 * source, which are no functions: two that read the same are two.
 * @param {Process[]} processes @param {string} unit
 * @returns {Weighed[]}
 */
export function functions(processes, unit) {
  /** @type {Map<string, Weighed>} */
  const known = new Map();
  for (const stack of processes.flatMap((process) => process.stacks)) {
    const seen = new Set();
    stack.frames.forEach((call, at) => {
      const key = JSON.stringify([call.function, call.file, unit === "bytes" ? call.line : 0]);
      const found = known.get(key) ?? { ...call, own: 0, total: 0 };
      known.set(key, found);
      found.line = Math.min(found.line, call.line);
      if (at === 0) found.own += stack.weight;
      if (!seen.has(key)) found.total += stack.weight;
      seen.add(key);
    });
  }
  return [...known.values()].sort((one, other) => other.own - one.own || other.total - one.total);
}

/**
 * Which frames are drawn where, in parts of the width: the callers of the widest one, that one, and what it calls.
 * @param {Frame} widest @param {number} pixels
 * @returns {Box[]}
 */
export function boxes(widest, pixels) {
  /** @type {Box[]} */
  const drawn = [];
  for (let frame = widest.parent; frame; frame = frame.parent) drawn.unshift({ frame, left: 0, wide: 1, outer: true });
  const draw = (/** @type {Frame} */ frame, /** @type {number} */ left) => {
    const wide = frame.weight / Math.max(1, widest.weight);
    if (wide * pixels < WIDTH_MIN) return;
    drawn.push({ frame, left, wide, outer: false });
    let from = left;
    for (const child of frame.children) {
      draw(child, from);
      from += child.weight / Math.max(1, widest.weight);
    }
  };
  draw(widest, 0);
  return drawn;
}

/** @param {string} unit @param {number} weight */
export function amountOf(unit, weight) {
  return unit === "bytes" ? bytes(weight) : `${(weight / 1e6).toFixed(3)} s`;
}

/** @param {number} part @param {number} whole */
function part(part, whole) {
  return `${((100 * part) / Math.max(1, whole)).toFixed(1)} %`;
}

/**
 * Where a key leads from a frame, among those that are drawn.
 * @param {string} key @param {Frame} from @param {Set<Frame>} drawn
 * @returns {Frame | undefined}
 */
export function stepped(key, from, drawn) {
  if (key === "ArrowUp") return from.parent ?? undefined;
  if (key === "ArrowDown") return from.children.find((child) => drawn.has(child));
  const beside = (from.parent?.children ?? []).filter((one) => drawn.has(one));
  const at = beside.indexOf(from);
  if (key === "ArrowRight") return beside[at + 1];
  if (key === "ArrowLeft") return beside[at - 1];
  if (key !== "Home") return undefined;
  let root = from;
  while (root.parent) root = root.parent;
  return root;
}

/** @param {{told: {title: string, unit: string, total: number, processes: Process[]}}} given */
export function Flame({ told }) {
  const root = useMemo(() => tree(told.processes), [told]);
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const size = useSize(frame);
  const dark = useDark();
  const [widest, setWidest] = useState(root);
  const [current, setCurrent] = useState(root);
  const [pointed, setPointed] = useState(/** @type {Frame | null} */ (null));
  const moved = useRef(false);
  const drawn = useMemo(() => boxes(widest, size.width), [widest, size.width]);
  const shown = useMemo(() => new Set(drawn.map((box) => box.frame)), [drawn]);
  const focused = shown.has(current) ? current : widest;
  const say = (/** @type {Frame} */ one) => `${one.name}${one.place ? ` (${one.place})` : ""}: ${amountOf(told.unit, one.weight)}, ${part(one.weight, root.weight)}`;
  useLayoutEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    const item = /** @type {HTMLElement | null} */ (frame.current?.querySelector("[tabindex='0']"));
    item?.focus({ preventScroll: true });
    item?.scrollIntoView({ block: "nearest" });
  });
  const zoom = (/** @type {Frame} */ to) => {
    moved.current = true;
    setCurrent(to);
    setWidest(to);
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && widest === root) return;
    const to = stepped(event.key, focused, shown);
    if (event.key === "Escape") zoom(root);
    else if (event.key === "Enter" || event.key === " ") zoom(focused);
    else if (to) {
      moved.current = true;
      setCurrent(to);
    } else if (!event.key.startsWith("Arrow")) return;
    // The sheet and the page's own keys are not meant.
    event.preventDefault();
    event.stopPropagation();
  };
  const rows = Math.max(1, ...drawn.map((box) => box.frame.depth + 1));
  return html`<figure class="flame">
    <div class="flame-frame"><div class="flame-rows" ref=${frame} role="tree" aria-label=${`${told.title}: a flame graph. Arrow keys walk, Enter zooms in, Escape zooms out.`} style=${{ height: `${rows * ROW_PX}px` }}
      onKeyDown=${onKey} onPointerLeave=${() => setPointed(null)}>
      ${drawn.map((box) => html`<${Piece} key=${box.frame.id} box=${box} pixels=${size.width} dark=${dark} label=${say(box.frame)} isWidest=${box.frame === widest} isFocused=${box.frame === focused}
        onPick=${() => zoom(box.frame)} onFocus=${() => setCurrent(box.frame)} onPoint=${() => setPointed(box.frame)} />`)}
    </div></div>
    <figcaption class="flame-told">${say(pointed ?? focused)}</figcaption>
    ${widest !== root && html`<button type="button" onClick=${() => zoom(root)}>Reset</button>`}
  </figure>`;
}

/** @param {{box: Box, pixels: number, dark: boolean, label: string, isWidest: boolean, isFocused: boolean, onPick: () => void, onFocus: () => void, onPoint: () => void}} given */
function Piece({ box, pixels, dark, label, isWidest, isFocused, onPick, onFocus, onPoint }) {
  const { frame, left, wide, outer } = box;
  const { fill, ink } = colours(frame.name, dark);
  const place = { left: `${left * 100}%`, width: `${wide * 100}%`, top: `${frame.depth * ROW_PX}px`, ...(outer ? {} : { background: fill, color: ink }) };
  return html`<div class=${outer ? "flame-piece outer" : "flame-piece"} role="treeitem" aria-level=${frame.depth + 1} aria-selected=${isWidest} aria-label=${label} title=${label}
    tabindex=${isFocused ? 0 : -1} style=${place} onClick=${onPick} onFocus=${onFocus} onPointerEnter=${onPoint}>${wide * pixels >= NAMED_FROM && frame.name}</div>`;
}

/** The functions, as a table. @param {{told: {unit: string, total: number, processes: Process[]}}} given */
export function Functions({ told }) {
  const found = useMemo(() => functions(told.processes, told.unit), [told]);
  const cell = (/** @type {number} */ weight) => html`<td class="numeric">${amountOf(told.unit, weight)} <span class="soft">${part(weight, told.total)}</span></td>`;
  return html`<details class="twin"><summary>The same as a table</summary>
    <div class="table-frame" tabindex="0" role="region" aria-label="Functions, those that weigh most themselves first"><table aria-label="Functions">
      <thead><tr><th scope="col">Function</th><th scope="col" class="numeric">Itself</th><th scope="col" class="numeric">With calls</th></tr></thead>
      <tbody>${found.slice(0, FUNCTIONS_MAX).map((one) => html`<tr key=${`${one.function}\n${placeOf(one)}`}><td class="grow">${one.function}<div class="soft">${placeOf(one)}</div></td>${cell(one.own)}${cell(one.total)}</tr>`)}</tbody>
    </table></div>
    ${found.length > FUNCTIONS_MAX && html`<p class="soft">and ${found.length - FUNCTIONS_MAX} more: the downloads have all of them</p>`}
  </details>`;
}

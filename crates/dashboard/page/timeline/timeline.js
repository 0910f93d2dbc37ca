/**
 * The timeline of devices: a canvas that is zoomed, dragged and walked through with keys.
 * @module
 */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { moment, span as spanText } from "../format.js";
import { useDark } from "../cluster.js";
import { draw, paintOf } from "./draw.js";
import { AXIS, KIND, hit, layout, seen, within, zoomed } from "./layout.js";

/** @typedef {import("./layout.js").Holdings} Holdings @typedef {import("./layout.js").Span} Span @typedef {import("./layout.js").Bar} Bar */

/**
 * @typedef {object} Given
 * @property {Holdings} holdings
 * @property {Span} span
 * @property {boolean} follows
 * @property {number} until
 * @property {(span: Span | null) => void} onSpan null follows now
 * @property {Set<string>} folded
 * @property {(node: string) => void} onFold
 * @property {string} picked
 * @property {(bar: Bar, device: string) => void} onPick
 * @property {(first: number, last: number) => void} onSeen from which node to which the rows are that are seen
 */

/** A box's size, followed. @param {{current: HTMLElement | null}} box */
export function useSize(box) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    if (!box.current) return undefined;
    const measure = () => box.current && setSize({ width: box.current.clientWidth, height: box.current.clientHeight });
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  return size;
}

/** @param {Holdings} holdings @param {Bar} bar @param {number} until */
export function sentence(holdings, bar, until) {
  const [begin, end, , share, kind, name, count] = bar;
  const what = kind === KIND.quarantined ? "out of service" : kind === KIND.checking ? "being checked for free memory" : holdings.names[name];
  const long = spanText((end ?? until) - begin);
  const many = count > 1 ? `${count} grants, merged: ` : "";
  return `${many}${what || "several"}, ${Math.round(share * 100)} %, ${moment(begin)} – ${end ? moment(end) : "now"} (${long})`;
}

/** @param {Given} given */
export function Timeline(given) {
  const { holdings, span, folded, picked, until } = given;
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const size = useSize(frame);
  const dark = useDark();
  const [pointed, setPointed] = useState(/** @type {{bar: Bar | null, text: string, x: number, y: number} | null} */ (null));
  const [said, setSaid] = useState("");
  const { rows, height } = useMemo(() => layout(holdings, folded), [holdings, folded]);
  const gutter = size.width < 560 ? 92 : 176;
  const paint = useMemo(() => paintOf(dark), [dark]);
  const [scroll, setScroll] = useState(0);

  useLayoutEffect(() => {
    const target = canvas.current;
    const pen = target?.getContext("2d");
    if (!target || !pen || size.width === 0) return;
    const scale = devicePixelRatio || 1;
    const [wide, high] = [Math.round(size.width * scale), Math.round(size.height * scale)];
    if (target.width !== wide) target.width = wide;
    if (target.height !== high) target.height = high;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    draw(pen, { holdings, rows, span, gutter, width: size.width, height: size.height, scroll, paint, folded, picked, pointed: pointed?.bar ?? null, until });
  });

  useEffect(() => {
    const shown = seen(rows, scroll, scroll + size.height - AXIS);
    if (shown.length > 0) given.onSeen(shown[0].place, shown[shown.length - 1].place);
  }, [rows, scroll, size.height]);

  const at = (/** @type {number} */ x) => span.from + ((x - gutter) / Math.max(1, size.width - gutter)) * (span.to - span.from);
  const under = (/** @type {{offsetX: number, offsetY: number}} */ event) => {
    const slack = (2 * (span.to - span.from)) / Math.max(1, size.width - gutter);
    return event.offsetY < AXIS ? null : hit(rows, event.offsetY - AXIS + scroll, at(event.offsetX), slack, until);
  };
  useWheel(frame, (event) => {
    if (event.offsetX < gutter) frame.current?.scrollBy(0, event.deltaY);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) given.onSpan(moved(span, (event.deltaX || event.deltaY) / Math.max(1, size.width - gutter)));
    else given.onSpan(zoomed(span, given.follows ? until : at(event.offsetX), Math.exp(Math.max(-80, Math.min(80, event.deltaY)) * 0.004)));
  });
  const drag = useDrag(frame, { span, wide: size.width - gutter, onSpan: given.onSpan });

  const onMove = (/** @type {PointerEvent} */ event) => {
    if (drag.onMove(event)) return;
    const found = event.offsetX < gutter ? null : under(event);
    if (!found?.bar || !found.device) setPointed(null);
    else setPointed({ bar: found.bar, text: `${found.device.label}: ${sentence(holdings, found.bar, until)}`, x: event.offsetX, y: event.offsetY });
  };
  const onClick = (/** @type {MouseEvent} */ event) => {
    if (drag.wasDragged()) return;
    const found = under(event);
    if (found && (event.offsetX < gutter || found.row.type === "node")) {
      if (found.row.type !== "device") given.onFold(found.row.node.id);
    } else if (found?.bar && found.device) choose(given, found.bar, found.device.key);
  };
  const walk = useWalk(given, rows, frame, (text) => setSaid(text), setPointed);

  return html`<div class="timeline" ref=${frame} style=${{ height: `min(${height + AXIS + 2}px, 62vh)` }} onScroll=${(/** @type {any} */ event) => setScroll(event.target.scrollTop)}>
    <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="timeline"
      aria-label="Who held which device when. Arrows go from bar to bar, plus and minus zoom, shift and arrows move in time, f follows now, Enter tells more. The table beneath says the same."
      onPointerDown=${drag.onDown} onPointerMove=${onMove} onPointerUp=${drag.onUp} onPointerLeave=${() => setPointed(null)}
      onClick=${onClick} onDblClick=${(/** @type {MouseEvent} */ event) => given.onSpan(zoomed(span, at(event.offsetX), 0.4))} onKeyDown=${walk}></canvas>
    <div class="timeline-room" style=${{ height: `${Math.max(0, height + AXIS - size.height)}px` }}></div>
    ${pointed && html`<div class="tip" aria-hidden="true" style=${{ left: `${Math.min(pointed.x + 14, Math.max(0, size.width - 330))}px`, top: `${scroll + Math.min(pointed.y + 16, size.height - 54)}px` }}>${pointed.text}</div>`}
    <p class="unseen" role="status">${said}</p>
  </div>`;
}

/** @param {Given} given @param {Bar} bar @param {string} device */
function choose(given, bar, device) {
  if (bar[7] !== null) given.onPick(bar, device);
  else {
    // Several grants lie within one pixel: nearer by, each is a bar of its own.
    const middle = (bar[0] + (bar[1] ?? given.until)) / 2;
    given.onSpan(zoomed({ from: middle - (given.span.to - given.span.from) / 2, to: middle + (given.span.to - given.span.from) / 2 }, middle, 0.1));
  }
}

/** @param {Span} span @param {number} part @returns {Span} */
export function moved(span, part) {
  const by = part * (span.to - span.from);
  return { from: span.from + by, to: span.to + by };
}

/** A wheel that may keep the page from scrolling. @param {{current: HTMLElement | null}} frame @param {(event: WheelEvent) => void} turn */
function useWheel(frame, turn) {
  const latest = useRef(turn);
  latest.current = turn;
  useEffect(() => {
    const onWheel = (/** @type {WheelEvent} */ event) => {
      event.preventDefault();
      latest.current(event);
    };
    const target = frame.current;
    target?.addEventListener("wheel", onWheel, { passive: false });
    return () => target?.removeEventListener("wheel", onWheel);
  }, []);
}

/** @param {{current: HTMLElement | null}} frame @param {{span: Span, wide: number, onSpan: (span: Span) => void}} given */
function useDrag(frame, { span, wide, onSpan }) {
  const drag = useRef(/** @type {{x: number, y: number, span: Span, top: number, far: boolean} | null} */ (null));
  const far = useRef(false);
  return {
    onDown: (/** @type {PointerEvent} */ event) => {
      far.current = false;
      drag.current = { x: event.clientX, y: event.clientY, span, top: frame.current?.scrollTop ?? 0, far: false };
    },
    onMove: (/** @type {PointerEvent} */ event) => {
      const begun = drag.current;
      if (!begun) return false;
      const [right, down] = [event.clientX - begun.x, event.clientY - begun.y];
      if (!begun.far && Math.hypot(right, down) < 5) return true;
      if (!begun.far) /** @type {Element} */ (event.target).setPointerCapture(event.pointerId);
      begun.far = true;
      far.current = true;
      if (Math.abs(right) > 2) onSpan(moved(begun.span, -right / Math.max(1, wide)));
      if (frame.current) frame.current.scrollTop = begun.top - down;
      return true;
    },
    onUp: () => {
      drag.current = null;
    },
    wasDragged: () => far.current,
  };
}

/**
 * Keys within the timeline: which bar they are at, and where they go from there.
 * @param {Given} given @param {import("./layout.js").Row[]} rows @param {{current: HTMLElement | null}} frame
 * @param {(text: string) => void} say @param {(pointed: any) => void} point
 */
function useWalk(given, rows, frame, say, point) {
  const place = useRef({ row: 0, begin: 0 });
  const { holdings, span, until } = given;
  const stops = rows.filter((row) => row.type !== "node");
  const barsOf = (/** @type {import("./layout.js").Row} */ row) => (row.device ? [row.device] : row.node.devices)
    .flatMap((device) => within(device.bars, span).map((bar) => ({ bar, device }))).sort((left, right) => left.bar[0] - right.bar[0]);
  const show = (/** @type {number} */ number, /** @type {number} */ direction) => {
    const row = stops[Math.max(0, Math.min(stops.length - 1, number))];
    if (!row) return;
    const bars = barsOf(row);
    const from = place.current.begin;
    const next = direction > 0 ? bars.find(({ bar }) => bar[0] > from) : direction < 0 ? bars.findLast(({ bar }) => bar[0] < from)
      : bars.findLast(({ bar }) => bar[0] <= from) ?? bars[0];
    place.current = { row: stops.indexOf(row), begin: next ? next.bar[0] : from };
    const name = `${row.node.name}, ${next?.device.label ?? row.device?.label ?? ""}`;
    say(!row.node.isTold ? `${name}: asking` : next ? `${name}: ${sentence(holdings, next.bar, until)}` : `${name}: nothing ${direction > 0 ? "later" : direction < 0 ? "earlier" : "in this span"}`);
    const top = row.top - (frame.current?.scrollTop ?? 0);
    if (frame.current && (top < 0 || top > frame.current.clientHeight - AXIS - row.height)) frame.current.scrollTop = row.top - 40;
    if (next) point({ bar: next.bar, text: `${name}: ${sentence(holdings, next.bar, until)}`, x: 200, y: row.top - (frame.current?.scrollTop ?? 0) + AXIS });
    return next;
  };
  return (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = given.follows ? until : (span.from + span.to) / 2;
    const { row } = place.current;
    const keys = /** @type {Record<string, () => void>} */ ({
      ArrowRight: () => (event.shiftKey ? given.onSpan(moved(span, 0.2)) : show(row, 1)),
      ArrowLeft: () => (event.shiftKey ? given.onSpan(moved(span, -0.2)) : show(row, -1)),
      ArrowDown: () => show(row + 1, 0),
      ArrowUp: () => show(row - 1, 0),
      "+": () => given.onSpan(zoomed(span, middle, 0.5)),
      "=": () => given.onSpan(zoomed(span, middle, 0.5)),
      "-": () => given.onSpan(zoomed(span, middle, 2)),
      f: () => given.onSpan(null),
      Enter: () => {
        const stop = stops[row];
        const found = stop && barsOf(stop).findLast(({ bar }) => bar[0] <= place.current.begin);
        if (found) choose(given, found.bar, found.device.key);
      },
    });
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  };
}

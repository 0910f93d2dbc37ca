/**
 * A chart of numbers over time, drawn by uPlot.
 * @module
 */
import { html, useEffect, useMemo, useRef } from "../vendor/preact.js";
import { bytes, clock, colours, number } from "../format.js";
import { useDark } from "../cluster.js";
import { paintOf } from "../timeline/draw.js";
import { useSize } from "../timeline/timeline.js";

const HIGH = 132;
const DASH = [5, 3];

/**
 * @param {object} given
 * @param {string} given.title
 * @param {{times: number[], lines: Array<{name: string, values: Array<number | null>, dashed?: boolean}>} | null} given.series times in ms
 * @param {boolean} [given.counts] whether `times` count something instead: reports
 * @param {"bytes" | "rate" | "part" | "number" | "any"} given.unit `any` may be less than nothing, and is drawn from its least to its most
 */
export function Chart({ title, series, unit, counts = false }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const size = useSize(box);
  const dark = useDark();
  const paint = useMemo(() => paintOf(dark), [dark]);
  const names = (series?.lines ?? []).map((line) => line.name).join("\n");
  const show = (/** @type {number | null} */ value) => (value === null ? "–" : unit === "bytes" ? bytes(value) : unit === "rate" ? `${bytes(value)}/s` : unit === "part" ? `${Math.round(value * 100)} %` : number(value));
  useEffect(() => {
    if (!series || size.width === 0 || !box.current) return undefined;
    const axis = { stroke: paint.soft, grid: { stroke: paint.line, width: 1 }, ticks: { stroke: paint.line, width: 1 }, font: `11px ${paint.text}` };
    const line = (/** @type {{name: string, dashed?: boolean}} */ one) => ({ label: one.name, stroke: colours(one.name, dark).edge, width: 1.5, dash: one.dashed ? DASH : undefined, points: { show: false }, spanGaps: false });
    plot.current = new (/** @type {any} */ (globalThis)).uPlot({
      width: size.width, height: HIGH, legend: { show: false }, cursor: { y: false, points: { size: 6 } },
      scales: { x: { time: !counts }, y: { range: (/** @type {any} */ _, /** @type {number} */ least, /** @type {number} */ most) => bounds(unit, least, most) } },
      series: [{}, ...series.lines.map(line)],
      axes: [{ ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((one) => (counts ? number(one) : clock(one * 1_000).slice(0, 5))) }, { ...axis, size: 64, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(show) }],
    }, data(series, counts), box.current);
    return () => {
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, size.width, dark]);
  useEffect(() => {
    if (series) plot.current?.setData(data(series, counts));
  }, [series]);
  const last = (series?.lines ?? []).map((line) => `${line.name} ${show(line.values.findLast((value) => value !== null) ?? null)}`).join(", ");
  return html`<figure class="chart"><figcaption>${title}</figcaption>
    <div ref=${box} role="img" aria-label=${`${title}; now ${last || "nothing"}`}></div>
    <ul class="chart-names">${(series?.lines ?? []).slice(0, 12).map((line) => html`<li><svg class="swatch" viewBox="0 0 10 4" aria-hidden="true"><path d=${line.dashed ? "M0 2h4m2 0h4" : "M0 2h10"} stroke-width="4" stroke=${colours(line.name, dark).edge} /></svg>${line.name}</li>`)}</ul>
  </figure>`;
}

/** From where to where values are drawn. @param {string} unit @param {number} least @param {number} most */
function bounds(unit, least, most) {
  if (unit !== "any") return [0, unit === "part" ? 1 : Math.max(1, most * 1.1)];
  const room = (most - least) * 0.08 || Math.abs(most) * 0.08 || 1;
  return [least - room, most + room];
}

/** @param {{times: number[], lines: Array<{values: Array<number | null>}>}} series @param {boolean} counts */
function data(series, counts) {
  return [counts ? series.times : series.times.map((at) => at / 1_000), ...series.lines.map((line) => line.values)];
}

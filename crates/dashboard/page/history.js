/**
 * The line beneath the head where the page shows a history: which moment it is of, and how another is chosen.
 * @module
 */
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { report } from "./report.js";
import { moment, span, utc } from "./format.js";

const PAUSE_MS = 150;
const STEPS = 1_000;

/**
 * @param {{history: any, onMoment: (at: number) => void}} given
 */
export function Scrubber({ history, onMoment }) {
  const { begun_ms: begun, until_ms: until, seams } = history;
  const [at, setAt] = useState(history.at_ms);
  const timer = useRef(0);
  useEffect(() => setAt(history.at_ms), [history.at_ms]);
  const choose = (/** @type {number} */ wanted) => {
    const within = Math.max(begun, Math.min(until, wanted));
    setAt(within);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onMoment(within), PAUSE_MS);
  };
  const step = Math.max(1, Math.round((until - begun) / STEPS));
  const said = `${moment(at)}, ${span(at - begun)} after the begin`;
  return html`<section class="scrubber" aria-label="Moment of the history">
    <span class="badge waits">${report ? "report" : "history"}</span>
    ${report ? html`<span>as it was at <time title=${utc(until)}>${moment(until)}</time>, recorded since <time title=${utc(begun)}>${moment(begun)}</time></span>`
      : html`<label><span>Moment</span>
        <input type="range" min=${begun} max=${until} step=${step} value=${at} list="seams" aria-valuetext=${said}
          onInput=${(/** @type {any} */ event) => choose(Number(event.target.value))} /></label>
      <datalist id="seams">${seams.map((/** @type {number} */ seam) => html`<option value=${seam}></option>`)}</datalist>
      <output class="figures" title=${utc(at)}>${moment(at)}</output>
      <button type="button" class="quiet" onClick=${() => choose(until)} disabled=${at >= until}>Latest</button>`}
    ${seams.map((/** @type {number} */ seam) => html`<button type="button" class="quiet seam" title=${utc(seam)} disabled=${Boolean(report)} onClick=${() => choose(seam)}>head came back ${moment(seam)}</button>`)}
  </section>`;
}

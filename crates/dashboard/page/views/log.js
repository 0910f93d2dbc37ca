/**
 * What a worker's process printed, to its standard output and error: the last lines first, followed, and older ones where one
 * scrolls up to them.
 * @module
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { get, query, Refusal } from "../api.js";
import { useCluster } from "../cluster.js";
import { Choice, Trouble } from "../parts.js";

export const LINES_KEPT = 5_000;
/** With the older lines that were asked for. */
const WORKER_LINES_KEPT = 20_000;
const PERIOD_MS = 1_000;
/** So near to an end of the box counts as being there, in pixels. */
const NEAR_PX = 30;

/** Without codes that would colour a terminal. @param {string} text */
export function plain(text) {
  return text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, "");
}

/**
 * What is known of a file: its text from one byte to another.
 * @typedef {{file: string | null, text: string, from: number, next: number, begin: number, ended: boolean, shared: boolean}} Known
 */

/**
 * What is known once an answer has come: newer lines are added below, and too many lines leave above. Another file begins anew.
 * @param {Known | null} before @param {any} told
 * @returns {Known}
 */
export function newer(before, told) {
  if (!told.file) return { file: null, text: "", from: 0, next: 0, begin: 0, ended: false, shared: false };
  const follows = before && before.file === told.file && told.from === before.next;
  const lines = ((follows ? before.text : "") + plain(told.text)).split("\n");
  const left = follows ? lines.slice(0, Math.max(0, lines.length - WORKER_LINES_KEPT)) : [];
  const from = left.length > 0 ? null : follows ? before.from : told.from;
  // Where lines have left, what is above cannot be asked for by its bytes any more: their codes were taken out.
  return { file: told.file, text: lines.slice(left.length).join("\n"), from: from ?? told.begin, next: told.next, begin: told.begin, ended: told.ended, shared: told.shared };
}

/** The same with older lines above. @param {Known} before @param {any} told @returns {Known} */
export function older(before, told) {
  if (told.file !== before.file || told.next !== before.from) return before;
  return { ...before, text: plain(told.text) + before.text, from: told.from, begin: told.begin };
}

/**
 * Asks for what a log has more, at once where there is some and else each second, until it has ended or the signal aborts.
 * @param {AbortSignal} signal @param {() => Promise<any>} ask the answer, once it is shown
 * @param {(error: Refusal | null) => void} setError
 */
export async function followLog(signal, ask, setError) {
  while (!signal.aborted) {
    try {
      const told = await ask();
      setError(null);
      if (told.ended) return;
      if (told.more) continue;
    } catch (trouble) {
      if (signal.aborted) return;
      setError(trouble instanceof Refusal ? trouble : new Refusal(String(trouble), 0));
    }
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
}

/** Both of its outputs, one at a time. @param {{of: Record<string, any>}} given */
export function WorkerLog({ of }) {
  const { overview } = useCluster();
  const [suffix, setSuffix] = useState("out");
  if (!overview || overview.history) return null;
  return html`<section class="log-part"><h3>Log</h3>
    <${Choice} label="Stream" value=${suffix} onChoose=${setSuffix} options=${[["out", "standard output"], ["err", "standard error"]]} />
    <${Lines} key=${suffix + JSON.stringify(of)} of=${of} suffix=${suffix} />
  </section>`;
}

/** @param {{of: Record<string, any>, suffix: string}} given */
function Lines({ of, suffix }) {
  const [known, setKnown] = useState(/** @type {Known | null} */ (null));
  const [error, setError] = useState(/** @type {Refusal | null} */ (null));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const place = useRef({ atEnd: true, height: 0, grew: false, asks: false });
  const last = useRef(known);
  last.current = known;
  const path = (/** @type {Record<string, number>} */ more) => `logs${query({ ...of, suffix, ...more })}`;
  useEffect(() => {
    const cut = new AbortController();
    let before = /** @type {Known | null} */ (null);
    const ask = async () => {
      const told = await get(path(before?.file ? { from: before.next } : {}), cut.signal);
      if (before?.file && told.file !== before.file) {
        // Its last process is another one now, whose log begins with its last lines.
        before = null;
        return { more: true };
      }
      before = newer(last.current, told);
      last.current = before;
      setKnown(before);
      return told;
    };
    void followLog(cut.signal, ask, setError);
    return () => cut.abort();
  }, []);
  useLayoutEffect(() => {
    if (!box.current) return;
    if (place.current.atEnd) box.current.scrollTop = box.current.scrollHeight;
    else if (place.current.grew) box.current.scrollTop += box.current.scrollHeight - place.current.height;
    place.current.grew = false;
  }, [known?.text]);
  const more = async () => {
    const before = last.current;
    if (!before || before.from <= before.begin || place.current.asks) return;
    place.current.asks = true;
    try {
      const told = await get(path({ before: before.from }));
      place.current.height = box.current?.scrollHeight ?? 0;
      place.current.grew = true;
      last.current = last.current && older(last.current, told);
      setKnown(last.current);
    } catch (trouble) {
      setError(trouble instanceof Refusal ? trouble : new Refusal(String(trouble), 0));
    }
    place.current.asks = false;
  };
  const onScroll = () => {
    if (!box.current) return;
    place.current.atEnd = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < NEAR_PX;
    if (box.current.scrollTop < NEAR_PX && !place.current.atEnd) void more();
  };
  const name = suffix === "err" ? "Standard error" : "Standard output";
  return html`<${Trouble} error=${error} />
    ${known?.shared && html`<p class="soft">Others printed to the same file meanwhile: their lines are among these.</p>`}
    ${known && known.from > known.begin && html`<button type="button" class="quiet" onClick=${more}>Older lines</button>`}
    ${known?.text ? html`<pre class=${suffix === "err" ? "log bad-log" : "log"} ref=${box} tabindex="0" role="region" aria-label=${name} onScroll=${onScroll}>${known.text}</pre>`
      : known && !error && html`<p class="soft">It has printed nothing to its ${name.toLowerCase()}${known.ended ? "" : " yet"}.</p>`}`;
}

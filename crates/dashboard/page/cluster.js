/**
 * What all views share: how the cluster is, what changed last, and answers that follow it.
 * @module
 */
import { createContext, useContext, useEffect, useRef, useState } from "./vendor/preact.js";
import { follow, get, lookAt, Refusal } from "./api.js";

/**
 * @typedef {object} Cluster
 * @property {any} overview the last answer to `overview`; null before the first
 * @property {number} until until when all is known, in ms since 1970
 * @property {Refusal | null} lost why nothing is heard now
 * @property {Record<string, number>} changed for each kind, the sequence of its last change
 */

/** @type {Cluster} */
const NOTHING = { overview: null, until: 0, lost: null, changed: {} };

const Shared = createContext(NOTHING);
export const ClusterProvider = Shared.Provider;

/** By how much the cluster's clock is ahead of the reader's, in ms. */
let ahead = 0;
/** Less than that is the time that an answer takes. */
const SKEW_MS = 3_000;

/** The moment that is looked at, where the page shows what was recorded; 0 where it shows what is. */
let stopped = 0;

/** The moment by the cluster's clock: what lasts is counted by that, wherever it is read. @returns {number} ms since 1970 */
export function now() {
  return stopped || Date.now() + ahead;
}

/** @param {number} told the cluster's clock, in a line that was just heard */
function compareClocks(told) {
  const by = told - Date.now();
  ahead = Math.abs(by) > SKEW_MS ? by : 0;
}

/** @returns {Cluster} */
export function useCluster() {
  return useContext(Shared);
}

/** All that answers are asked for again by, where another moment is looked at. */
const KINDS = ["devices", "holdings", "grants", "waiting", "jobs", "tasks", "actors", "placement_groups", "nodes", "workers", "objects", "events", "runs", "overview", "series"];

/** Follows the cluster; used once, by the shell. @returns {Cluster & {look: (at: number) => void}} */
export function useFollowedCluster() {
  const [cluster, setCluster] = useState(NOTHING);
  const look = async (/** @type {number} */ at) => {
    lookAt(at);
    stopped = at;
    try {
      const overview = await get("overview");
      // Another moment may have been chosen meanwhile.
      if (stopped === at) setCluster((before) => ({ overview, until: at, lost: null, changed: Object.fromEntries(KINDS.map((kind) => [kind, (before.changed[kind] ?? 0) + 1])) }));
    } catch (error) {
      setCluster((before) => ({ ...before, lost: error instanceof Refusal ? error : new Refusal(String(error), 0) }));
    }
  };
  useEffect(() => {
    const onLine = (/** @type {any} */ line) => {
      if (line.overview?.history) stopped ||= line.overview.history.at_ms;
      compareClocks(line.now_ms);
      setCluster((before) => {
        if (stopped && before.overview) return { ...before, lost: null };
        const changed = { ...before.changed };
        for (const kind of line.changed ?? []) changed[kind] = line.seq;
        return {
          overview: line.overview ?? before.overview,
          until: line.until_ms ?? before.until,
          lost: null,
          changed,
        };
      });
    };
    return follow(onLine, (lost) => setCluster((before) => ({ ...before, lost })));
  }, []);
  return { ...cluster, look };
}

/**
 * An answer, asked for again when one of these kinds changed, and at most once in `pause` ms. The last one stays while the
 * next is on its way.
 * @param {string | null} path below ox/v1/; null asks nothing
 * @param {string[]} kinds
 * @param {number} [pause]
 * @returns {{answer: any, error: Refusal | null, again: () => void}}
 */
export function useAnswer(path, kinds, pause = 1_000) {
  const { changed, lost } = useCluster();
  const [state, setState] = useState({ answer: /** @type {any} */ (null), error: /** @type {Refusal | null} */ (null) });
  const current = useRef(/** @type {Asker | null} */ (null));
  const version = kinds.map((kind) => changed[kind] ?? 0).join() + (lost ? "!" : "");
  useEffect(() => {
    if (path === null) return undefined;
    const asker = new Asker(path, pause, (told) => setState((before) => ({ ...before, ...told })));
    current.current = asker;
    return () => asker.end();
  }, [path, pause]);
  useEffect(() => current.current?.again(), [path, version]);
  // What another path answered is shown until its own answer is there: a table does not blink while one types.
  return { answer: path === null ? null : state.answer, error: state.error, again: () => current.current?.again() };
}

/** Asks for one path again and again: never twice at once, and at most once in a while. */
class Asker {
  /** @param {string} path @param {number} pause @param {(told: {answer?: any, error: Refusal | null}) => void} tell */
  constructor(path, pause, tell) {
    this.path = path;
    this.pause = pause;
    this.tell = tell;
    this.cut = new AbortController();
    this.at = 0;
    this.busy = false;
    this.wanted = false;
  }

  again() {
    this.wanted = true;
    if (this.busy || this.cut.signal.aborted) return;
    this.busy = true;
    setTimeout(() => void this.ask(), Math.max(0, this.at + this.pause - Date.now()));
  }

  async ask() {
    this.at = Date.now();
    this.wanted = false;
    try {
      const answer = await get(this.path, this.cut.signal);
      if (!this.cut.signal.aborted) this.tell({ answer, error: null });
    } catch (error) {
      if (!this.cut.signal.aborted) this.tell({ error: error instanceof Refusal ? error : new Refusal(String(error), 0) });
    }
    this.busy = false;
    if (this.wanted) this.again();
  }

  end() {
    this.cut.abort();
  }
}

/** Runs at each interval while the page is seen. @param {() => void} run @param {number} ms */
export function useEvery(run, ms) {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, ms);
    return () => clearInterval(timer);
  }, [ms]);
}

/** Whether the page is dark now. @returns {boolean} */
export function useDark() {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const onChange = () => setDark(isDark());
    media.addEventListener("change", onChange);
    addEventListener("oxiray-theme", onChange);
    return () => {
      media.removeEventListener("change", onChange);
      removeEventListener("oxiray-theme", onChange);
    };
  }, []);
  return dark;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** @param {"light" | "dark" | ""} theme empty follows the system */
export function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    if (theme) localStorage.setItem("oxiray-theme", theme);
    else localStorage.removeItem("oxiray-theme");
  } catch {
    // It holds until the page is left.
  }
  dispatchEvent(new Event("oxiray-theme"));
}

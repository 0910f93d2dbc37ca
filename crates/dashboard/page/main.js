/**
 * The shell: who may see the page, what stands around each view, and the keys that work everywhere.
 * @module
 */
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./vendor/preact.js";
import { enter, keepSessionKey, sessionKey, get, Refusal } from "./api.js";
import { ClusterProvider, now, setTheme, useCluster, useDark, useEvery, useFollowedCluster } from "./cluster.js";
import { clock, span, utc } from "./format.js";
import { Scrubber } from "./history.js";
import { KEYS, useKeys } from "./keys.js";
import { link, usePlace } from "./place.js";
import { Devices } from "./views/devices.js";
import { Waiting } from "./views/waiting.js";
import { Jobs } from "./views/jobs.js";
import { Tasks } from "./views/tasks.js";
import { Actors } from "./views/actors.js";
import { Groups } from "./views/groups.js";
import { Nodes } from "./views/nodes.js";
import { Objects } from "./views/objects.js";
import { Events } from "./views/events.js";
import { Train } from "./views/train.js";
import { Processes } from "./views/processes.js";

/** Each view: its name in the address, its title, the letter after `g`, and the number beside it. */
const VIEWS = /** @type {Array<[string, string, string, any, (overview: any) => any]>} */ ([
  ["devices", "Devices", "d", Devices, (o) => o.devices?.total || ""],
  ["waiting", "Waiting", "w", Waiting, (o) => o.waiting || ""],
  ["jobs", "Jobs", "j", Jobs, (o) => o.jobs?.RUNNING || ""],
  ["tasks", "Tasks", "t", Tasks, () => ""],
  ["actors", "Actors", "a", Actors, (o) => o.actors || ""],
  ["groups", "Placement groups", "p", Groups, (o) => o.groups || ""],
  ["nodes", "Nodes", "n", Nodes, (o) => o.nodes?.alive || ""],
  ["objects", "Objects", "o", Objects, () => ""],
  ["processes", "Processes", "r", Processes, (o) => o.processes || ""],
  ["train", "Training", "l", Train, () => ""],
  ["events", "Events", "e", Events, () => ""],
]);

/** @param {{onIn: () => void, said: string}} given */
function Entry({ onIn, said }) {
  const [error, setError] = useState(said);
  const onSubmit = async (/** @type {any} */ event) => {
    event.preventDefault();
    keepSessionKey(new FormData(event.target).get("token")?.toString().trim() ?? "");
    try {
      await get("overview");
      onIn();
    } catch (refused) {
      keepSessionKey("");
      setError(refused instanceof Refusal && refused.status !== 0 ? `The token was not taken: ${refused.message}` : String(refused));
    }
  };
  return html`<main class="entry">
    <form onSubmit=${onSubmit}>
      <p class="brand"><${Mark} /> Oxiray</p>
      <h1>This page needs a key</h1>
      <p>Run <code>oxiray dashboard</code> on the head's machine and open the link that it prints. Or give the token that <code>oxiray dashboard token</code> prints:</p>
      <label>Token <input name="token" type="password" autocomplete="off" required minlength="8" /></label>
      <button type="submit" class="filled">Open</button>
      ${error && html`<p class="trouble" role="alert">${error}</p>`}
    </form>
  </main>`;
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="3.5" /><path d="M3 5h7M3 8h10M3 11h5" /></svg>`;
}

/** Until when all is known: always in sight. */
function Until() {
  const { until, lost, overview } = useCluster();
  const [, again] = useState(0);
  useEvery(() => again((count) => count + 1), 1_000);
  const old = until ? now() - until : 0;
  const isOld = Boolean(lost) || old > 10_000;
  const silent = overview?.nodes?.silent ?? 0;
  return html`<p class=${`until ${isOld || silent > 0 ? "late" : ""}`} role="status" title=${utc(until)}>
    <span class="dot" aria-hidden="true"></span>
    ${until ? html`data until <time class="figures">${clock(until)}</time>` : "no data yet"}
    ${isOld && until ? html`, ${span(old)} ago` : ""}
    ${silent > 0 && html`, <a class="silent" href=${link("nodes", { state: "silent" })} title="They have measured nothing new for longer than they should">${silent} ${silent === 1 ? "node" : "nodes"} silent</a>`}
    ${lost && html` <span class="lost">${lost.status === 401 || lost.status === 403 ? "the key is not valid any more" : "reconnecting"}</span>`}
  </p>`;
}

function Theme() {
  const dark = useDark();
  return html`<button type="button" class="quiet theme" aria-label=${dark ? "Switch to light" : "Switch to dark"} title=${dark ? "Light (t)" : "Dark (t)"}
    onClick=${() => setTheme(dark ? "light" : "dark")}>${dark ? "☀" : "☾"}</button>`;
}

/** @param {{view: string}} given */
function Menu({ view }) {
  const { overview } = useCluster();
  const menu = useRef(/** @type {HTMLElement | null} */ (null));
  // Where the menu is a line that scrolls, the view that is open stays in sight.
  useEffect(() => menu.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [view]);
  return html`<nav class="menu" ref=${menu} aria-label="Views">
    ${VIEWS.map(([name, title, key, , figure]) => html`<a href=${link(name)} aria-current=${name === view ? "page" : undefined} title=${`g ${key}`}>
      <span>${title}</span>${overview && figure(overview) !== "" && html`<span class="figure">${figure(overview)}</span>`}
    </a>`)}
  </nav>`;
}

/** @param {{dialog: any}} given */
function Keys({ dialog }) {
  return html`<dialog ref=${dialog} class="keys" aria-label="Keys">
    <h2>Keys</h2>
    <dl>${[...VIEWS.map(([, title, key]) => [`g ${key}`, title]), ...KEYS].map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    <form method="dialog"><button class="filled">Close</button></form>
  </dialog>`;
}

/** @param {{what: any, given: Record<string, string>}} props */
function Guarded({ what, given }) {
  const [error, reset] = useErrorBoundary();
  if (error) {
    return html`<div class="trouble" role="alert"><span>This view broke off: ${String(error)}</span>
      <button type="button" onClick=${reset}>Draw it again</button></div>`;
  }
  return html`<${what} given=${given} />`;
}

/** @param {{onOut: (said: string) => void}} given */
function Shell({ onOut }) {
  const cluster = useFollowedCluster();
  const { view, given } = usePlace();
  const keys = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useKeys(VIEWS.map(([name, , key]) => [key, name]), () => keys.current?.showModal());
  const found = VIEWS.find(([name]) => name === view) ?? VIEWS[0];
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${found[1]} · Oxiray`;
    if (!isFirst.current) main.current?.querySelector("h1")?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [found[0]]);
  useEffect(() => {
    if (cluster.lost?.status === 401 || cluster.lost?.status === 403) onOut("The key is not valid any more.");
  }, [cluster.lost]);
  const { overview } = cluster;
  return html`<${ClusterProvider} value=${cluster}>
    <a class="skip" href="#main" onClick=${(/** @type {any} */ event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the view</a>
    <header class="top">
      <a class="brand" href=${link("devices")}><${Mark} /> Oxiray</a>
      <p class="session">${overview && html`<span title=${overview.session}>${overview.address || overview.session}</span> <span class="version">${overview.version}</span>`}</p>
      <${Until} />
      <button type="button" class="quiet" aria-label="Keys" title="Keys (?)" onClick=${() => keys.current?.showModal()}>?</button>
      <${Theme} />
    </header>
    <${Menu} view=${found[0]} />
    <main ref=${main} id="main" tabindex="-1">
      ${overview?.history && html`<${Scrubber} history=${overview.history} onMoment=${cluster.look} />`}
      ${(overview?.warnings ?? []).map((/** @type {string} */ text) => html`<p class="note">${text}</p>`)}
      <${Guarded} key=${found[0]} what=${found[3]} given=${given} />
    </main>
    <${Keys} dialog=${keys} />
  <//>`;
}

/** @param {{said: string}} given */
function Page({ said }) {
  const [state, setState] = useState({ inside: sessionKey() !== "", said });
  if (!state.inside) return html`<${Entry} said=${state.said} onIn=${() => setState({ inside: true, said: "" })} />`;
  return html`<${Shell} onOut=${(/** @type {string} */ text) => { keepSessionKey(""); setState({ inside: false, said: text }); }} />`;
}

let said = "";
try {
  await enter();
} catch (error) {
  said = error instanceof Error ? error.message : String(error);
}
render(html`<${Page} said=${said} />`, /** @type {HTMLElement} */ (document.getElementById("page")));

/**
 * Devices over time: what waits, the timeline, and its twin as a table.
 * @module
 */
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { query } from "../api.js";
import { now, useAnswer, useCluster, useEvery } from "../cluster.js";
import { clock, number, span as spanText } from "../format.js";
import { useKey } from "../keys.js";
import { change, link } from "../place.js";
import { Badge, Empty, Head, Moment, Trouble } from "../parts.js";
import { Table, useRows } from "../table.js";
import { Timeline } from "../timeline/timeline.js";
import { FOLDED_AT, asked, filled, nodesAsked, zoomed } from "../timeline/layout.js";
import { Subject } from "./subject.js";
import { demandText } from "./waiting.js";

const SPANS = /** @type {Array<[number, string]>} */ ([[60e3, "1 min"], [600e3, "10 min"], [3600e3, "1 h"], [21600e3, "6 h"], [86400e3, "1 d"]]);
const AHEAD = 0.03;

/** How long a span is shown where none is chosen: all of what was recorded, where that is shown. @param {any} overview */
function usual(overview) {
  const recorded = overview?.history;
  return recorded ? Math.max(10e3, Math.min(86400e3, recorded.until_ms - recorded.begun_ms)) : 600e3;
}

/** The span that the address says, and how it is changed. @param {Record<string, string>} given @param {number} until @param {any} overview */
function useSpan(given, until, overview) {
  const long = Math.max(50, Number(given.span) || usual(overview));
  const [seen, setSeen] = useState(0);
  const at = seen || until || now();
  const follows = !given.from;
  const isCalm = useMemo(() => matchMedia("(prefers-reduced-motion: reduce)").matches, []);
  // Before the overview is there, it is not known what the cluster's clock says, or of which time the history is.
  useEvery(() => follows && overview && setSeen(now()), isCalm ? 2_000 : Math.max(100, Math.min(1_000, long / 600)));
  const span = follows ? { from: at - long * (1 - AHEAD), to: at + long * AHEAD } : { from: Number(given.from), to: Number(given.to) || Number(given.from) + long };
  const setSpan = (/** @type {{from: number, to: number} | null} */ wanted) => {
    if (!wanted) change({ from: null, to: null, span: Math.round(span.to - span.from) });
    else if (follows && wanted.to >= at && Math.abs(wanted.to - wanted.from - (span.to - span.from)) > 1) change({ span: Math.round(wanted.to - wanted.from) });
    else change({ from: Math.round(wanted.from), to: Math.round(wanted.to), span: null });
  };
  return { span, follows, setSpan };
}

/** @param {{given: Record<string, string>}} props */
export function Devices({ given }) {
  const { until, overview } = useCluster();
  const { span, follows, setSpan } = useSpan(given, until, overview);
  const [nodes, setNodes] = useState(nodesAsked(0, 0));
  const wanted = { ...asked(span, Math.max(200, innerWidth - 380)), ...nodes };
  // What tasks hold changes without a word of the record of devices.
  const { answer: told, error, again } = useAnswer(overview ? `holdings${query(wanted)}` : null, overview?.devices?.total ? ["holdings"] : ["holdings", "tasks"], 1_000);
  const answer = useMemo(() => told && filled(told), [told]);
  const onSeen = (/** @type {number} */ first, /** @type {number} */ last) => setNodes((before) => {
    const now = nodesAsked(first, last);
    return now.first === before.first && now.count === before.count ? before : now;
  });
  const folded = useFolded(answer, given);
  useKey("f", () => setSpan(null));
  const hasNone = answer?.unit === "CPU";
  // Where there were devices before, and in a history, only how much of the CPUs was held is drawn.
  const hasHolders = hasNone && answer.nodes.some((/** @type {any} */ node) => node.cores !== undefined);
  return html`<${Head} title="Devices" count=${overview?.devices?.total ?? null}>
      <${Figures} overview=${overview} />
      <div class="segments" role="group" aria-label="Span">
        ${SPANS.map(([long, text]) => html`<button type="button" aria-pressed=${Math.abs(span.to - span.from - long) < long * 0.01}
          onClick=${() => (follows ? change({ span: long }) : setSpan(zoomed(span, (span.from + span.to) / 2, long / (span.to - span.from))))}>${text}</button>`)}
      </div>
      <button type="button" aria-pressed=${follows} onClick=${() => setSpan(follows ? span : null)} title="Follow now (f)">${follows ? "Following" : "Follow"}</button>
    <//>
    <${Band} />
    ${hasNone && html`<p class="note">No devices on this cluster: nodes are shown with ${hasHolders ? "who holds their CPUs" : "how much of their CPUs is held"} instead.</p>`}
    ${answer?.note && html`<p class="note">${answer.note}</p>`}
    <${Trouble} error=${error} again=${again} />
    ${answer && answer.nodes.length > 0 ? html`<${Timeline} holdings=${answer} span=${span} follows=${follows} until=${Math.max(answer.until_ms, until)} onSpan=${setSpan}
        folded=${folded.set} onFold=${folded.toggle} onSeen=${onSeen} picked=${given.pick?.replace(/^grant:/, "") ?? ""}
        onPick=${(/** @type {any} */ bar) => change({ pick: pickOf(bar[7]) }, true)} />`
      : answer ? html`<${Empty} title="No nodes have joined yet">Start one with <code>oxiray start --address=…</code>; it will appear here.<//>` : !error && html`<p class="soon" role="status">Asking…</p>`}
    <${Legend} cpu=${hasNone} holders=${hasHolders} />
    <${Twin} span=${span} given=${given} follows=${follows} cpu=${hasHolders} />
    <${Subject} pick=${given.pick} />`;
}

/** Nodes that are shown as one row: all where there are many devices, and what the reader folded. @param {any} answer @param {Record<string, string>} given */
function useFolded(answer, given) {
  const [turned, setTurned] = useState(/** @type {Set<string>} */ (new Set()));
  const nodes = answer?.nodes ?? [];
  const many = nodes.reduce((/** @type {number} */ sum, /** @type {any} */ node) => sum + node.devices.length, 0) > FOLDED_AT;
  const ids = nodes.map((/** @type {any} */ node) => node.id).join();
  const set = useMemo(() => new Set(nodes.map((/** @type {any} */ node) => node.id).filter((/** @type {string} */ id) => many !== turned.has(id) && id !== given.node)), [ids, many, turned, given.node]);
  const toggle = (/** @type {string} */ id) => setTurned((before) => {
    const after = new Set(before);
    if (!after.delete(id)) after.add(id);
    return after;
  });
  return { set, toggle };
}

/** @param {{overview: any}} given */
function Figures({ overview }) {
  const devices = overview?.devices;
  if (!devices?.total) return null;
  return html`<p class="figures-line"><b>${number(Math.round(devices.held * 100) / 100)}</b> held${devices.checking > 0 && html`, <b>${devices.checking}</b> being checked`}${devices.quarantined > 0 && html`, <b class="bad-word">${devices.quarantined} out of service</b>`}</p>`;
}

/** What waits, above all: the oldest demands, each with why. */
function Band() {
  const { answer } = useAnswer(`rows/waiting${query({ limit: 3, columns: "name,kind,demand,count,seconds,why,id" })}`, ["waiting"], 1_000);
  const rows = answer?.rows ?? [];
  if (rows.length === 0) return null;
  return html`<section class="band" aria-label="What waits">
    ${rows.map((/** @type {any} */ row) => html`<a key=${row.key} href=${link("waiting", { pick: row.key })}>
      <span class="band-what"><b>${row.count > 1 ? `${number(row.count)} × ` : ""}${row.name || row.kind}</b> ${demandText(row)}</span>
      <span class="figures">${spanText(row.seconds * 1_000)}</span>
      <span class="band-why">${row.why}</span>
    </a>`)}
    ${answer.total > rows.length && html`<a href=${link("waiting")} class="band-more">and ${answer.total - rows.length} more kinds of demands</a>`}
  </section>`;
}

/** What a bar's key picks: who holds CPUs is a task or an actor, and its key says so. @param {string} key */
function pickOf(key) {
  return /^(task|actor):/.test(key) ? key : `grant:${key}`;
}

/** @param {{cpu: boolean, holders: boolean}} given */
function Legend({ cpu, holders }) {
  if (cpu) {
    return html`<ul class="legend" aria-label="Signs">
      <li><span class="sign held"></span>${holders ? "a task or an actor: as high as its CPUs, coloured by its name" : "held: height is the part of the CPUs"}</li>
      <li><span class="sign gap"></span>${holders ? "not known any more" : "not recorded"}</li>
    </ul>`;
  }
  return html`<ul class="legend" aria-label="Signs">
    <li><span class="sign held"></span>held: height is the share, colour the name</li>
    <li><span class="sign checking"></span>returned, being checked for free memory</li>
    <li><span class="sign quarantined"></span>out of service</li>
    <li><span class="sign use"></span>busy and memory of the whole device, not of one holder</li>
    <li><span class="sign gap"></span>not recorded</li>
  </ul>`;
}

const TWIN = [
  { key: "node_name", title: "Node", show: (/** @type {any} */ row) => row.node_name, minor: true },
  { key: "label", title: "Device", show: (/** @type {any} */ row) => row.label },
  { key: "name", title: "Held by", grow: true, show: (/** @type {any} */ row) => row.name || html`<${Badge} state=${row.state} />` },
  { key: "share", title: "Share", numeric: true, show: (/** @type {any} */ row) => `${Math.round(row.share * 100)} %` },
  { key: "from_ms", title: "From", numeric: true, show: (/** @type {any} */ row) => html`<${Moment} at=${row.from_ms} />` },
  { key: "to_ms", title: "Till", numeric: true, minor: true, show: (/** @type {any} */ row) => (row.to_ms ? html`<${Moment} at=${row.to_ms} />` : "now") },
  { key: "long", title: "For", numeric: true, order: (/** @type {any} */ row) => (row.to_ms ?? now()) - row.from_ms, show: (/** @type {any} */ row) => spanText((row.to_ms ?? now()) - row.from_ms) },
  { key: "pid", title: "PID", numeric: true, minor: true, show: (/** @type {any} */ row) => row.pid ?? "–" },
];

/** The same of CPUs. */
const CPU_TWIN = TWIN.filter(({ key }) => key !== "label").map((column) => (column.key !== "share" ? column
  : { ...column, key: "amount", title: "CPUs", show: (/** @type {any} */ row) => (row.amount === undefined ? `${Math.round(row.share * 100)} %` : number(row.amount)) }));

/** The same as a table: holdings between two moments. @param {{span: {from: number, to: number}, given: Record<string, string>, follows: boolean, cpu: boolean}} props */
function Twin({ span, given, follows, cpu }) {
  const [open, setOpen] = useState(false);
  return html`<details class="twin" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary>The same as a table: holdings between <span class="figures">${clock(span.from)}</span> and <span class="figures">${follows ? "now" : clock(span.to)}</span></summary>
    ${open && html`<${TwinTable} span=${span} given=${given} follows=${follows} cpu=${cpu} />`}
  </details>`;
}

/** @param {{span: {from: number, to: number}, given: Record<string, string>, follows: boolean, cpu: boolean}} props */
function TwinTable({ span, given, follows, cpu }) {
  const long = span.to - span.from;
  const step = Math.max(1_000, long / 20);
  const [bounds, setBounds] = useState({ from: 0, to: /** @type {number | undefined} */ (undefined) });
  const wanted = { from: Math.floor(span.from / step) * step, to: follows ? undefined : Math.ceil(span.to) };
  useEffect(() => {
    const timer = setTimeout(() => setBounds(wanted), 150);
    return () => clearTimeout(timer);
  }, [wanted.from, wanted.to]);
  const data = useRows("grants", bounds, ["node_name", "label", "name", "state", "share", "amount", "from_ms", "to_ms", "pid"]);
  return html`<${Table} label=${cpu ? "Holdings of CPUs" : "Holdings of devices"} data=${data} columns=${cpu ? CPU_TWIN : TWIN} picked=${given.pick?.replace(/^grant:/, "")}
    onPick=${(/** @type {any} */ row) => change({ pick: pickOf(row.key) }, true)} empty=${html`<${Empty} title=${cpu ? "Nobody held a CPU in this span" : "Nobody held a device in this span"} />`} />`;
}


/**
 * Jobs: submissions and drivers, what each printed, and their end by hand.
 * @module
 */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { act, get, query, Refusal } from "../api.js";
import { useAnswer, useCluster } from "../cluster.js";
import { number, span } from "../format.js";
import { change, link } from "../place.js";
import { Badge, Choice, Confirmed, Empty, Facts, Head, Id, Meter, Moment, Search, Sheet, Trouble } from "../parts.js";
import { Table, useRows } from "../table.js";
import { STARTED, STATE, TOOK } from "./columns.js";
import { progress } from "./tasks.js";
import { followLog, LINES_KEPT, plain } from "./log.js";

/** How many of a job's tasks are how far. @param {any} counts */
function tasksOf(counts) {
  if (!counts) return "–";
  const { parts, told } = progress(counts);
  return html`<span class="metered" title=${told}><span class="figures">${number(counts.total)}</span><${Meter} whole=${counts.total} parts=${parts} label=${told} /></span>`;
}

/** @param {Map<string, any>} counts by job */
const columns = (counts) => [
  { key: "submission", title: "Job", show: (/** @type {any} */ row) => html`<b>${row.submission || row.job_id || "–"}</b>${row.past && html` <span class="soft" title="The head that runs now does not know of it">before the head came back</span>`}` },
  STATE,
  { key: "entrypoint", title: "Entrypoint", grow: true, show: (/** @type {any} */ row) => (row.entrypoint ? html`<code>${row.entrypoint}</code>` : html`<span class="soft">a program, PID ${row.pid ?? "?"}</span>`) },
  { key: "devices", title: "Devices", numeric: true, show: (/** @type {any} */ row) => (row.devices ? number(row.devices) : "–") },
  { key: "device_seconds", title: "Device time", numeric: true, minor: true, show: (/** @type {any} */ row) => (row.device_seconds ? span(row.device_seconds * 1_000) : "–") },
  { key: "tasks", title: "Tasks", order: (/** @type {any} */ row) => counts.get(row.job_id)?.total ?? 0, show: (/** @type {any} */ row) => tasksOf(counts.get(row.job_id)) },
  STARTED, TOOK,
];
const ASKED = ["submission", "job_id", "state", "entrypoint", "message", "error", "started_ms", "ended_ms", "node_id", "node_name", "pid", "ip", "exit_code", "metadata", "devices", "device_seconds", "past"];

/** @param {{given: Record<string, string>}} props */
export function Jobs({ given }) {
  const data = useRows("jobs", { search: given.search, state: given.state }, ASKED);
  // Of themselves: processes may take their time to answer, and the jobs are there without them.
  const { answer } = useAnswer("names/jobs", ["tasks"], 2_000);
  const counts = useMemo(() => new Map((answer?.rows ?? []).map((/** @type {any} */ row) => [row.job_id, row])), [answer]);
  const picked = data.rows.find((row) => row.key === given.pick);
  return html`<${Head} title="Jobs" count=${data.total}>
      <${Choice} label="State" value=${given.state ?? ""} onChoose=${(/** @type {string} */ state) => change({ state })} options=${[["", "all"], ["RUNNING", "running"], ["PENDING", "pending"], ["SUCCEEDED", "succeeded"], ["FAILED", "failed"], ["STOPPED", "stopped"]]} />
      <${Search} label="Search jobs" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Table} label="Jobs" data=${data} columns=${columns(counts)} picked=${given.pick} onPick=${(/** @type {any} */ row) => change({ pick: row.key }, true)}
      empty=${given.search || given.state ? html`<${Empty} title="No job is like this" />` : html`<${Empty} title="No jobs yet">Submit one with <code>oxiray job submit -- python program.py</code>, or connect a program with <code>ray.init("auto")</code>.<//>`} />
    ${picked && html`<${Job} key=${picked.key} row=${picked} tasks=${counts.get(picked.job_id)} again=${data.again} />`}`;
}

/** @param {{row: any, tasks: any, again: () => void}} given */
function Job({ row, tasks, again }) {
  const { overview } = useCluster();
  const runs = ["RUNNING", "PENDING"].includes(row.state);
  const path = `jobs/${encodeURIComponent(row.submission)}`;
  const why = overview?.may_write ? undefined : "This key only reads";
  return html`<${Sheet} title=${row.submission || row.job_id} kind="Job" onClose=${() => change({ pick: null })}>
    ${row.submission && !row.past && !overview?.history && html`<div class="acts">
      ${runs ? html`<${Confirmed} label="Stop" question=${`Stop the job ${row.submission}?`} detail="Its program gets SIGTERM, and 5 seconds to leave. What it holds returns." disabled=${Boolean(why)} title=${why} act=${() => act(`${path}/stop`)} done=${again} />`
        : html`<${Confirmed} label="Delete" question=${`Delete the job ${row.submission}?`} detail="Its row and what it printed are removed for good." disabled=${Boolean(why)} title=${why} act=${() => act(`${path}/delete`)} done=${() => { change({ pick: null }); again(); }} />`}
    </div>`}
    ${row.message && html`<p class=${row.state === "FAILED" ? "trouble" : "why"}>${row.message}</p>`}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Entrypoint", row.entrypoint && html`<code>${row.entrypoint}</code>`], ["Driver's job", row.job_id && html`<${Id} id=${row.job_id} />`],
      ["Driver", row.pid ? `PID ${row.pid}${row.ip ? ` at ${row.ip}` : ""}` : ""], ["Node", row.node_id && html`<${Id} id=${row.node_id} href=${link("nodes", { pick: `node:${row.node_id}` })} />`],
      ["Error", row.error], ["Exit code", row.exit_code], ["Began", html`<${Moment} at=${row.started_ms} />`], ["Ended", row.ended_ms ? html`<${Moment} at=${row.ended_ms} />` : ""],
      ["Tasks", tasks && progress(tasks).told], ["Devices now", row.devices ? number(row.devices) : ""], ["Device time", row.device_seconds ? span(row.device_seconds * 1_000) : ""],
      ...Object.entries(row.metadata ?? {}).map(([name, value]) => /** @type {[string, any]} */ ([name, value]))]} />
    ${row.job_id && html`<p class="links"><a href=${link("tasks", { job_id: row.job_id })}>Its tasks</a><a href=${link("actors", { job_id: row.job_id })}>Its actors</a></p>`}
    ${row.past || overview?.history ? html`<p class="soft">What it printed is not in the history; <code>oxiray logs</code> finds it among the files of its session.</p>` : row.submission ? html`<${Log} id=${row.submission} runs=${runs} />` : html`<p class="soft">What a program that connected by itself prints goes to its own terminal.</p>`}
  <//>`;
}

/** What a job printed, followed. @param {{id: string, runs: boolean}} given */
function Log({ id, runs }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(/** @type {Refusal | null} */ (null));
  const [isCut, setCut] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const atEnd = useRef(true);
  useEffect(() => {
    const cut = new AbortController();
    let from = /** @type {number | undefined} */ (undefined);
    const ask = async () => {
      const told = await get(`jobs/${encodeURIComponent(id)}/log${query({ from })}`, cut.signal);
      if (from === undefined && told.from > 0) setCut(true);
      from = told.next;
      if (told.text) setText((before) => bounded(before + told.text));
      return told;
    };
    void followLog(cut.signal, ask, setError);
    return () => cut.abort();
  }, [id]);
  useEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  const onScroll = () => {
    if (box.current) atEnd.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 30;
  };
  return html`<section class="log-part"><h3>Output ${runs && html`<span class="live">live</span>`}</h3>
    <${Trouble} error=${error} />
    ${isCut && html`<p class="soft">The beginning is left out; <code>oxiray job logs ${id}</code> prints all.</p>`}
    ${text ? html`<pre class="log" ref=${box} tabindex="0" role="region" aria-label="Output" onScroll=${onScroll}>${text}</pre>` : !error && html`<p class="soft">It has printed nothing yet.</p>`}
  </section>`;
}

/** The last lines. @param {string} text */
function bounded(text) {
  const lines = plain(text).split("\n");
  return lines.length > LINES_KEPT ? lines.slice(-LINES_KEPT).join("\n") : lines.join("\n");
}

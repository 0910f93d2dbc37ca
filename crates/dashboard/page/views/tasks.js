/**
 * Tasks: by name with counts, and the rows of one name.
 * @module
 */
import { html } from "../vendor/preact.js";
import { query } from "../api.js";
import { useAnswer } from "../cluster.js";
import { number } from "../format.js";
import { change } from "../place.js";
import { Choice, Empty, Head, Meter, Search, Trouble } from "../parts.js";
import { Table, useRows } from "../table.js";
import { NODE, PID, STARTED, STATE, TOOK } from "./columns.js";
import { Subject } from "./subject.js";

const COLUMNS = [
  { key: "name", title: "Name", grow: true, show: (/** @type {any} */ row) => html`<b>${row.name}</b>${row.attempt > 0 && html` <span class="soft">attempt ${row.attempt + 1}</span>`}` },
  STATE,
  { key: "error", title: "Error", minor: true, show: (/** @type {any} */ row) => (row.error ? html`<span class="bad-word">${row.error}</span>` : "–") },
  STARTED, TOOK, NODE, PID,
];
const ASKED = ["task_id", "name", "attempt", "state", "error", "started_ms", "ended_ms", "node_id", "node_name", "pid"];
const STATES = ["", "RUNNING", "FINISHED", "FAILED", "PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER"];

/** @param {{given: Record<string, string>}} props */
export function Tasks({ given }) {
  const filters = { search: given.search, state: given.state, name: given.name, job_id: given.job_id, actor_id: given.actor_id };
  const data = useRows("tasks", filters, ASKED, 2_000);
  return html`<${Head} title="Tasks" count=${data.total === null ? null : number(data.total)}>
      <${Choice} label="State" value=${given.state ?? ""} onChoose=${(/** @type {string} */ state) => change({ state })} options=${STATES.map((state) => [state, state ? state.toLowerCase().replaceAll("_", " ") : "all"])} />
      <${Search} label="Search tasks" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Filters} given=${given} />
    <${Names} given=${given} />
    <${Table} label="Tasks" data=${data} columns=${COLUMNS} picked=${given.pick?.replace(/^task:/, "")} onPick=${(/** @type {any} */ row) => change({ pick: `task:${row.key}` }, true)}
      empty=${Object.values(filters).some(Boolean) ? html`<${Empty} title="No task is like this" />` : html`<${Empty} title="No tasks yet">Calls of remote functions and of actors' methods appear here as they run.<//>`} />
    <${Subject} pick=${given.pick} />`;
}

/** What the rows are narrowed to, each with a way out. @param {{given: Record<string, string>}} props */
export function Filters({ given }) {
  const set = ["name", "job_id", "actor_id", "node_id"].filter((key) => given[key]);
  if (set.length === 0) return null;
  return html`<p class="filters">${set.map((key) => html`<button type="button" class="filter" title="Show all again" onClick=${() => change({ [key]: null })}>${key.replace("_id", "")}: ${given[key]} <span aria-hidden="true">✕</span></button>`)}</p>`;
}

/** @param {Record<string, number>} states @param {RegExp} like */
function count(states, like) {
  return Object.entries(states).reduce((sum, [state, many]) => sum + (like.test(state) ? many : 0), 0);
}

/** How many of each name are how far. @param {{given: Record<string, string>}} props */
function Names({ given }) {
  const { answer, error, again } = useAnswer(`names/tasks${query({ job_id: given.job_id })}`, ["tasks"], 2_000);
  const rows = answer?.rows ?? [];
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (rows.length === 0 || given.name) return null;
  return html`<section class="names" aria-label="By name">${rows.slice(0, 60).map((/** @type {any} */ row) => {
    const [done, failed, runs] = [count(row.states, /FINISHED/), count(row.states, /FAILED/), count(row.states, /RUNNING/)];
    const waits = row.total - done - failed - runs;
    const told = [[done, "finished"], [failed, "failed"], [runs, "running"], [waits, "waiting"]].filter(([many]) => many).map(([many, word]) => `${number(Number(many))} ${word}`).join(", ");
    return html`<button type="button" class="name" key=${row.name} onClick=${() => change({ name: row.name }, true)}>
      <span class="name-title">${row.name}</span><span class="figure">${number(row.total)}</span>
      <${Meter} whole=${row.total} parts=${[[done, "good"], [failed, "bad"], [runs, "busy"]]} label=${told} />
      <span class="name-told">${told}</span>
    </button>`;
  })}${rows.length > 60 && html`<p class="soft">and ${rows.length - 60} more names</p>`}</section>`;
}

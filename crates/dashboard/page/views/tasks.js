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
const SHOWN_NAMES = 60;
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

/**
 * How many are how far, and the same in words.
 * @param {{total: number, states: Record<string, number>}} counts
 */
export function progress(counts) {
  const [done, failed, runs] = [/FINISHED/, /FAILED/, /RUNNING/].map((like) => count(counts.states, like));
  const waits = counts.total - done - failed - runs;
  const words = /** @type {Array<[number, string]>} */ ([[done, "finished"], [failed, "failed"], [runs, "running"], [waits, "waiting"]]);
  const told = words.filter(([many]) => many).map(([many, word]) => `${number(many)} ${word}`).join(", ");
  return { parts: /** @type {Array<[number, string]>} */ ([[done, "good"], [failed, "bad"], [runs, "busy"]]), told };
}

/** How many of each name are how far. @param {{given: Record<string, string>}} props */
function Names({ given }) {
  const { answer, error, again } = useAnswer(`names/tasks${query({ job_id: given.job_id })}`, ["tasks"], 2_000);
  const rows = (answer?.rows ?? []).slice(0, SHOWN_NAMES);
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!answer || given.name || (rows.length === 0 && !answer.rest)) return null;
  const more = answer.names - rows.length;
  return html`${answer.note && html`<p class="note">${answer.note}</p>`}<section class="names" aria-label="By name">
    ${rows.map((/** @type {any} */ row) => html`<button type="button" class="name" key=${row.name} onClick=${() => change({ name: row.name }, true)}>
      <${Name} title=${row.name} counts=${row} />
    </button>`)}
    ${answer.rest && html`<div class="name rest" title="Names that are counted together"><${Name} title="other names" counts=${answer.rest} /></div>`}
    ${more > 0 && html`<p class="soft">and ${number(more)} more names</p>`}
  </section>`;
}

/** @param {{title: string, counts: any}} given */
function Name({ title, counts }) {
  const { parts, told } = progress(counts);
  return html`<span class="name-title">${title}</span><span class="figure">${number(counts.total)}</span>
    <${Meter} whole=${counts.total} parts=${parts} label=${told} />
    <span class="name-told">${told}</span>`;
}

/**
 * Actors: how far each is, how often it was restarted, and why it died.
 * @module
 */
import { html } from "../vendor/preact.js";
import { amounts, number } from "../format.js";
import { change } from "../place.js";
import { Choice, Empty, Head, Search } from "../parts.js";
import { Table, useRows } from "../table.js";
import { JOB, NODE, PID, STATE } from "./columns.js";
import { Filters } from "./tasks.js";
import { Subject } from "./subject.js";

const COLUMNS = [
  { key: "class", title: "Class", show: (/** @type {any} */ row) => html`<b>${row.class}</b>` },
  { key: "name", title: "Name", minor: true, show: (/** @type {any} */ row) => row.name || "–" },
  STATE,
  { key: "resources", title: "Holds", order: (/** @type {any} */ row) => amounts(row.resources), show: (/** @type {any} */ row) => amounts(row.resources) },
  { key: "restarts", title: "Restarts", numeric: true, show: (/** @type {any} */ row) => number(row.restarts) },
  { key: "cause", title: "Why it ended", grow: true, minor: true, show: (/** @type {any} */ row) => row.cause || "–" },
  NODE, PID, JOB,
];
const ASKED = ["class", "name", "state", "resources", "restarts", "cause", "node_id", "node_name", "pid", "job_id"];

/** @param {{given: Record<string, string>}} props */
export function Actors({ given }) {
  const filters = { search: given.search, state: given.state, job_id: given.job_id };
  const data = useRows("actors", filters, ASKED);
  return html`<${Head} title="Actors" count=${data.total === null ? null : number(data.total)}>
      <${Choice} label="State" value=${given.state ?? ""} onChoose=${(/** @type {string} */ state) => change({ state })} options=${[["", "all"], ["ALIVE", "alive"], ["WAITING", "waiting"], ["STARTING", "starting"], ["RESTARTING", "restarting"], ["DEAD", "dead"]]} />
      <${Search} label="Search actors" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Filters} given=${given} />
    <${Table} label="Actors" data=${data} columns=${COLUMNS} picked=${given.pick?.replace(/^actor:/, "")} onPick=${(/** @type {any} */ row) => change({ pick: `actor:${row.key}` }, true)}
      empty=${Object.values(filters).some(Boolean) ? html`<${Empty} title="No actor is like this" />` : html`<${Empty} title="No actors yet">A class with <code>@ray.remote</code> becomes one with <code>.remote()</code>.<//>`} />
    <${Subject} pick=${given.pick} />`;
}

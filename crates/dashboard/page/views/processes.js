/**
 * Processes: workers and drivers, what each runs, and how those ended that did.
 * @module
 */
import { html } from "../vendor/preact.js";
import { amounts, number } from "../format.js";
import { change } from "../place.js";
import { Choice, Empty, Head, Search } from "../parts.js";
import { Table, useRows } from "../table.js";
import { JOB, NODE, STARTED, STATE, TOOK } from "./columns.js";
import { Subject } from "./subject.js";

const COLUMNS = [
  { key: "pid", title: "PID", numeric: true, show: (/** @type {any} */ row) => html`<b>${row.pid ?? "–"}</b>` },
  { key: "duty", title: "Does", show: (/** @type {any} */ row) => row.duty },
  { key: "name", title: "Runs", grow: true, show: (/** @type {any} */ row) => row.name || "–" },
  STATE,
  { key: "resources", title: "Holds", minor: true, order: (/** @type {any} */ row) => amounts(row.resources), show: (/** @type {any} */ row) => amounts(row.resources) },
  { key: "detail", title: "How it ended", grow: true, minor: true, show: (/** @type {any} */ row) => row.detail || "–" },
  STARTED, TOOK, NODE, JOB,
];
const ASKED = ["pid", "duty", "name", "state", "resources", "detail", "started_ms", "ended_ms", "node_id", "node_name", "job_id"];

/** @param {{given: Record<string, string>}} props */
export function Processes({ given }) {
  const filters = { search: given.search, state: given.state };
  const data = useRows("workers", filters, ASKED, 2_000);
  return html`<${Head} title="Processes" count=${data.total === null ? null : number(data.total)}>
      <${Choice} label="State" value=${given.state ?? ""} onChoose=${(/** @type {string} */ state) => change({ state })} options=${[["", "all"], ["ALIVE", "alive"], ["DEAD", "ended"]]} />
      <${Search} label="Search processes" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Table} label="Processes" data=${data} columns=${COLUMNS} picked=${given.pick?.replace(/^process:/, "")} onPick=${(/** @type {any} */ row) => change({ pick: `process:${row.key}` }, true)}
      empty=${html`<${Empty} title=${given.search || given.state ? "No process is like this" : "No processes yet"}>${!given.search && !given.state && "Workers are forked when a task or an actor needs one."}<//>`} />
    <${Subject} pick=${given.pick} />`;
}

/**
 * What waits, since when, and why.
 * @module
 */
import { html } from "../vendor/preact.js";
import { useAnswer, useCluster } from "../cluster.js";
import { amounts, number, span } from "../format.js";
import { query } from "../api.js";
import { change, link } from "../place.js";
import { Empty, Facts, Head, Sheet, Trouble } from "../parts.js";
import { Table, useRows } from "../table.js";
import { Autoscaler, Verdicts } from "./explanation.js";

/** @param {any} row */
export function demandText(row) {
  return row.demand ? amounts(row.demand) : row.kind === "placement group" ? "placement group" : "";
}

const COLUMNS = [
  { key: "name", title: "Demand", show: (/** @type {any} */ row) => html`<b>${row.name || "–"}</b>` },
  { key: "kind", title: "Kind", minor: true, show: (/** @type {any} */ row) => row.kind },
  { key: "demand", title: "Needs", order: demandText, show: (/** @type {any} */ row) => demandText(row) },
  { key: "count", title: "How many", numeric: true, show: (/** @type {any} */ row) => number(row.count) },
  { key: "seconds", title: "Oldest", numeric: true, show: (/** @type {any} */ row) => span(row.seconds * 1_000) },
  { key: "overtaken", title: "Overtaken", numeric: true, minor: true, show: (/** @type {any} */ row) => number(row.overtaken) },
  { key: "why", title: "Why", grow: true, show: (/** @type {any} */ row) => row.why },
];

/** @param {{given: Record<string, string>}} props */
export function Waiting({ given }) {
  const { overview } = useCluster();
  const data = useRows("waiting", {}, ["name", "kind", "demand", "count", "seconds", "overtaken", "why", "id"]);
  const picked = data.rows.find((row) => row.key === given.pick);
  return html`<${Head} title="Waiting" count=${data.total} />
    <${Table} label="Demands that wait" data=${data} columns=${COLUMNS} picked=${given.pick} onPick=${(/** @type {any} */ row) => change({ pick: row.key }, true)}
      empty=${html`<${Empty} title="Nothing waits">Whatever was asked for is running or has run.<//>`} />
    <${Autoscaler} told=${overview?.autoscaler} />
    ${picked && html`<${Sheet} key=${picked.key} title=${picked.name || picked.kind} kind="Waits" onClose=${() => change({ pick: null })}>
      <p class="why">${picked.why}</p>
      <${Facts} rows=${[["Kind", picked.kind], ["Needs", demandText(picked)], ["How many", number(picked.count)], ["Oldest", span(picked.seconds * 1_000)],
        ["Overtaken", picked.overtaken > 0 ? `${number(picked.overtaken)} times by who asked later` : ""]]} />
      ${picked.id ? html`<${Explained} id=${picked.id} />` : picked.kind === "task" && html`<${ExplainedTask} name=${picked.name} />`}
    <//>`}`;
}

/** The head keeps no list of tasks: one that waits under this name speaks for all. @param {{name: string}} given */
function ExplainedTask({ name }) {
  const { answer } = useAnswer(`rows/tasks${query({ name, state: "PENDING_NODE_ASSIGNMENT", columns: "task_id", limit: 1 })}`, ["waiting"], 3_000);
  const id = answer?.rows[0]?.task_id;
  return id ? html`<${Explained} id=${id} /><p class="links"><a href=${link("tasks", { name, state: "PENDING_NODE_ASSIGNMENT" })}>All that wait under this name</a></p>` : null;
}

/** @param {{id: string}} given */
function Explained({ id }) {
  const { answer, error, again } = useAnswer(`explain/${encodeURIComponent(id)}`, ["waiting", "nodes"], 2_000);
  return html`<${Trouble} error=${error} again=${again} />${answer && html`<${Verdicts} told=${answer} />`}`;
}

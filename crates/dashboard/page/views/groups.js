/**
 * Placement groups: their bundles on nodes, and why one waits.
 * @module
 */
import { html } from "../vendor/preact.js";
import { amounts, number, short } from "../format.js";
import { change } from "../place.js";
import { Empty, Head, Search } from "../parts.js";
import { Table, useRows } from "../table.js";
import { JOB, STATE } from "./columns.js";
import { Subject } from "./subject.js";

const COLUMNS = [
  { key: "name", title: "Name", show: (/** @type {any} */ row) => html`<b>${row.name || short(row.key)}</b>` },
  STATE,
  { key: "strategy", title: "Strategy", minor: true, show: (/** @type {any} */ row) => row.strategy },
  { key: "bundles", title: "Bundles", order: (/** @type {any} */ row) => row.bundles.length, show: (/** @type {any} */ row) => html`<${Bundles} bundles=${row.bundles} />` },
  { key: "reason", title: "Why", grow: true, show: (/** @type {any} */ row) => row.reason || "–" },
  { key: "creation_ms", title: "Set aside in", numeric: true, minor: true, show: (/** @type {any} */ row) => (row.creation_ms ? `${number(Math.round(row.creation_ms))} ms` : "–") },
  JOB,
];

/** A square for each bundle: filled where it has a node. @param {{bundles: any[]}} given */
function Bundles({ bundles }) {
  const shown = bundles.slice(0, 24);
  return html`<span class="bundles">${shown.map((bundle, number) => html`<span class=${`bundle ${bundle.node_id ? "placed" : ""}`} title=${`bundle ${number}: ${amounts(bundle.resources)}${bundle.node_id ? ` on ${short(bundle.node_id)}` : ", no node"}`}></span>`)}
    ${bundles.length > shown.length ? `+${bundles.length - shown.length}` : ""} <span class="soft">${amounts(bundles[0]?.resources)}</span></span>`;
}

/** @param {{given: Record<string, string>}} props */
export function Groups({ given }) {
  const data = useRows("placement_groups", { search: given.search }, ["name", "state", "strategy", "bundles", "reason", "creation_ms", "job_id"]);
  return html`<${Head} title="Placement groups" count=${data.total}>
      <${Search} label="Search groups" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Table} label="Placement groups" data=${data} columns=${COLUMNS} picked=${given.pick?.replace(/^group:/, "")} onPick=${(/** @type {any} */ row) => change({ pick: `group:${row.key}` }, true)}
      empty=${html`<${Empty} title=${given.search ? "No group is like this" : "No placement groups"}>${!given.search && html`<code>ray.util.placement_group</code> sets resources aside together.`}<//>`} />
    <${Subject} pick=${given.pick} />`;
}


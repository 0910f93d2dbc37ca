/**
 * Objects: who refers to them and for what, by call site, and the store of each node.
 * @module
 */
import { html } from "../vendor/preact.js";
import { useAnswer, useCluster } from "../cluster.js";
import { bytes, number } from "../format.js";
import { change } from "../place.js";
import { Empty, Facts, Head, Id, Meter, Search } from "../parts.js";
import { Table, useRows } from "../table.js";
import { Chart } from "./chart.js";

const COLUMNS = [
  { key: "object", title: "Object", show: (/** @type {any} */ row) => html`<${Id} id=${row.object} />` },
  { key: "size", title: "Size", numeric: true, show: (/** @type {any} */ row) => bytes(row.size) },
  { key: "used", title: "Held as", show: (/** @type {any} */ row) => row.used },
  { key: "state", title: "Made by a task that", minor: true, show: (/** @type {any} */ row) => row.state },
  { key: "site", title: "Where it was made", grow: true, show: (/** @type {any} */ row) => row.site || "–" },
  { key: "pid", title: "Process", numeric: true, minor: true, show: (/** @type {any} */ row) => `${row.pid} ${row.is_worker ? "" : "driver"}` },
  { key: "ip", title: "Address", minor: true, show: (/** @type {any} */ row) => row.ip },
];

/** @param {{given: Record<string, string>}} props */
export function Objects({ given }) {
  const { overview } = useCluster();
  const data = useRows("objects", { search: given.search }, ["object", "size", "used", "state", "site", "pid", "is_worker", "ip"], 3_000);
  const series = useAnswer("series?of=store", ["series"], 5_000);
  const store = overview?.store;
  return html`<${Head} title="Objects" count=${data.total === null ? null : number(data.total)}>
      <${Search} label="Search objects" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    ${store && html`<section class="panel two">
      <div><h2>Store of the head's machine</h2>
        <${Meter} whole=${store.capacity} parts=${[[store.used, "busy"], [store.pooled, "soft"]]} label=${`${bytes(store.used)} of ${bytes(store.capacity)} in use`} />
        <${Facts} rows=${[["In use", `${bytes(store.used)} of ${bytes(store.capacity)}`], ["Kept for the next", bytes(store.pooled)], ["Written to disk", bytes(store.spilled)], ["Objects here", number(store.objects)], ["Known in the cluster", number(store.published)]]} />
      </div>
      <${Chart} title="In use, by node" series=${series.answer} unit="bytes" />
    </section>`}
    <${Table} label="References to objects" data=${data} columns=${COLUMNS}
      empty=${html`<${Empty} title=${given.search ? "No object is like this" : "Nobody refers to an object now"}>${!given.search && html`Results and what <code>ray.put</code> stored are listed as long as a process refers to them.`}<//>`} />`;
}

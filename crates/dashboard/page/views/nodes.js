/**
 * Nodes: a map, a table, and what one is in numbers over time.
 * @module
 */
import { html } from "../vendor/preact.js";
import { bytes, number, percent } from "../format.js";
import { change } from "../place.js";
import { Badge, Choice, Empty, Head, Meter, Search } from "../parts.js";
import { Table, useRows } from "../table.js";
import { NodeMap } from "./map.js";
import { Cells } from "./cells.js";
import { Subject } from "./subject.js";

/** @param {any} row @param {string} resource */
function used(row, resource) {
  const whole = row.resources?.[resource] ?? 0;
  return { whole, part: whole - (row.available?.[resource] ?? 0) };
}

/** @param {string} resource */
function share(resource) {
  return {
    key: resource, title: resource === "memory" ? "Memory" : resource, order: (/** @type {any} */ row) => used(row, resource).part,
    show: (/** @type {any} */ row) => {
      const { whole, part } = used(row, resource);
      if (!whole) return "–";
      const text = resource === "memory" ? `${bytes(part)} of ${bytes(whole)}` : `${number(Math.round(part * 100) / 100)} of ${number(whole)}`;
      return html`<span class="metered"><span class="figures">${text}</span><${Meter} whole=${whole} parts=${[[part, "busy"]]} label=${`${percent(part, whole)} held`} /></span>`;
    },
  };
}

const ASKED = ["name", "address", "hostname", "state", "head", "resources", "available", "devices", "store_used", "store_size", "draining", "death", "cpu_busy", "memory_used", "memory_size"];

/** @param {{given: Record<string, string>}} props */
export function Nodes({ given }) {
  const data = useRows("nodes", { search: given.search, state: given.state }, ASKED);
  const hasDevices = data.rows.some((row) => row.devices?.length > 0);
  const columns = [
    { key: "name", title: "Node", show: (/** @type {any} */ row) => html`<b>${row.name || row.hostname}</b>${row.head && html` <span class="soft">head</span>`}` },
    { key: "state", title: "State", show: (/** @type {any} */ row) => html`<${Badge} state=${row.state} />` },
    { key: "address", title: "Address", minor: true, show: (/** @type {any} */ row) => row.address },
    share("CPU"), share("memory"),
    ...(hasDevices ? [{
      key: "devices", title: "Devices", order: (/** @type {any} */ row) => row.devices.length,
      show: (/** @type {any} */ row) => html`<${Cells} devices=${row.devices} />`,
    }] : []),
    { key: "store_used", title: "Object store", numeric: true, minor: true, show: (/** @type {any} */ row) => bytes(row.store_used) },
    { key: "draining", title: "Remarks", grow: true, minor: true, show: (/** @type {any} */ row) => row.draining || row.death || "–" },
  ];
  return html`<${Head} title="Nodes" count=${data.total === null ? null : number(data.total)}>
      <${Choice} label="State" value=${given.state ?? ""} onChoose=${(/** @type {string} */ state) => change({ state })} options=${[["", "all"], ["ALIVE", "alive"], ["DRAINING", "draining"], ["DEAD", "dead"]]} />
      <${Search} label="Search nodes" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${NodeMap} onPick=${(/** @type {string} */ id) => change({ pick: `node:${id}` }, true)} picked=${given.pick?.replace(/^node:/, "")} />
    <${Table} label="Nodes" data=${data} columns=${columns} picked=${given.pick?.replace(/^node:/, "")} onPick=${(/** @type {any} */ row) => change({ pick: `node:${row.key}` }, true)}
      empty=${html`<${Empty} title=${given.search || given.state ? "No node is like this" : "No nodes have joined yet"} />`} />
    <${Subject} pick=${given.pick} />`;
}

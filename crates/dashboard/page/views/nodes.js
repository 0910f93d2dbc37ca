/**
 * Nodes: a map, a table, and what one is in numbers over time.
 * @module
 */
import { html } from "../vendor/preact.js";
import { bytes, number, percent, span } from "../format.js";
import { change } from "../place.js";
import { Badge, Choice, Empty, Head, Meter, Moment, Search } from "../parts.js";
import { Table, useRows } from "../table.js";
import { NodeMap } from "./map.js";
import { Cells } from "./cells.js";
import { Subject } from "./subject.js";

/** @param {any} row @param {string} resource */
function used(row, resource) {
  const whole = row.resources?.[resource] ?? 0;
  return { whole, part: whole - (row.available?.[resource] ?? 0) };
}

/** A part of a whole, with both in words. @param {string} text @param {number} part @param {number} whole @param {string} label */
function metered(text, part, whole, label) {
  return html`<span class="metered"><span class="figures">${text}</span><${Meter} whole=${whole} parts=${[[part, "busy"]]} label=${`${percent(part, whole)} ${label}`} /></span>`;
}

/** @param {string} resource */
function share(resource) {
  return {
    key: resource, title: resource === "memory" ? "Memory held" : `${resource} held`, order: (/** @type {any} */ row) => used(row, resource).part,
    show: (/** @type {any} */ row) => {
      const { whole, part } = used(row, resource);
      if (!whole) return "–";
      const text = resource === "memory" ? `${bytes(part)} of ${bytes(whole)}` : `${number(Math.round(part * 100) / 100)} of ${number(whole)}`;
      return metered(text, part, whole, "held");
    },
  };
}

/** What is in use of something that has a size: empty where a node does not know. @param {string} key @param {string} title @param {boolean} minor */
function inUse(key, title, minor) {
  return {
    key: `${key}_used`, title, minor, order: (/** @type {any} */ row) => row[`${key}_used`],
    show: (/** @type {any} */ row) => {
      const [part, whole] = [row[`${key}_used`], row[`${key}_size`]];
      if (!whole || part === null || part === undefined) return "";
      return metered(`${bytes(part)} of ${bytes(whole)}`, part, whole, "in use");
    },
  };
}

/** Bytes in each second. @param {number | null | undefined} value */
function rate(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

const CPU_BUSY = {
  key: "cpu_busy", title: "CPU in use", show: (/** @type {any} */ row) => (row.cpu_busy === null || row.cpu_busy === undefined ? ""
    : metered(`${percent(row.cpu_busy, 1)} of ${number(Math.round(row.cpu_count * 100) / 100)}`, row.cpu_busy, 1, "in use")),
};
const NETWORK = {
  key: "received", title: "Network in, out", numeric: true, minor: true, order: (/** @type {any} */ row) => (row.received ?? 0) + (row.sent ?? 0),
  show: (/** @type {any} */ row) => ([row.received, row.sent].every((value) => value === null || value === undefined) ? "" : `${rate(row.received)}, ${rate(row.sent)}`),
};

/** What is less may be the time that a measurement takes to be heard: what is measured each 5 s is asked for as often. */
const CLOCK_MS = 7_000;

/** How far a node's clock differs from that of the page's server. @param {number | null | undefined} ahead in ms */
export function clockText(ahead) {
  if (ahead === null || ahead === undefined) return "";
  return Math.abs(ahead) < CLOCK_MS ? `within ${CLOCK_MS / 1_000} s` : `${span(Math.abs(ahead))} ${ahead > 0 ? "ahead" : "behind"}`;
}

const CLOCK = {
  key: "clock_ms", title: "Clock", minor: true, order: (/** @type {any} */ row) => Math.abs(row.clock_ms ?? 0),
  show: (/** @type {any} */ row) => (Math.abs(row.clock_ms ?? 0) < CLOCK_MS ? clockText(row.clock_ms) : html`<span class="bad-word">${clockText(row.clock_ms)}</span>`),
};

const ASKED = ["name", "address", "hostname", "state", "head", "resources", "available", "devices", "store_used", "store_size", "draining", "drain_deadline_ms", "death", "cpu_busy", "cpu_count", "memory_used", "memory_size",
  "disk_used", "disk_size", "received", "sent", "version", "silent", "clock_ms"];

/** @param {{given: Record<string, string>}} props */
export function Nodes({ given }) {
  const data = useRows("nodes", { search: given.search, ...(given.state === "silent" ? { silent: true } : { state: given.state }) }, ASKED);
  const hasDevices = data.rows.some((row) => row.devices?.length > 0);
  const hasDeadlines = data.rows.some((row) => row.drain_deadline_ms);
  const columns = [
    { key: "name", title: "Node", show: (/** @type {any} */ row) => html`<b>${row.name || row.hostname}</b>${row.head && html` <span class="soft">head</span>`}` },
    { key: "state", title: "State", show: (/** @type {any} */ row) => html`<${Badge} state=${row.state} />${row.silent && html` <span class="bad-word">silent</span>`}` },
    { key: "address", title: "Address", minor: true, show: (/** @type {any} */ row) => row.address },
    share("CPU"), CPU_BUSY, share("memory"), inUse("memory", "Memory in use", false),
    ...(hasDevices ? [{
      key: "devices", title: "Devices", order: (/** @type {any} */ row) => row.devices.length,
      show: (/** @type {any} */ row) => html`<${Cells} devices=${row.devices} />`,
    }] : []),
    inUse("store", "Object store", true), inUse("disk", "Disk", true), NETWORK,
    CLOCK,
    ...(hasDeadlines ? [{ key: "drain_deadline_ms", title: "Drained by", numeric: true, show: (/** @type {any} */ row) => (row.drain_deadline_ms ? html`<${Moment} at=${row.drain_deadline_ms} />` : "") }] : []),
    { key: "version", title: "Version", minor: true, show: (/** @type {any} */ row) => row.version ?? "" },
    { key: "draining", title: "Remarks", grow: true, minor: true, show: (/** @type {any} */ row) => row.draining || row.death || "–" },
  ];
  return html`<${Head} title="Nodes" count=${data.total === null ? null : number(data.total)}>
      <${Choice} label="State" value=${given.state ?? ""} onChoose=${(/** @type {string} */ state) => change({ state })} options=${[["", "all"], ["ALIVE", "alive"], ["DRAINING", "draining"], ["silent", "silent"], ["DEAD", "dead"]]} />
      <${Search} label="Search nodes" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${NodeMap} onPick=${(/** @type {string} */ id) => change({ pick: `node:${id}` }, true)} picked=${given.pick?.replace(/^node:/, "")} />
    <${Table} label="Nodes" data=${data} columns=${columns} picked=${given.pick?.replace(/^node:/, "")} onPick=${(/** @type {any} */ row) => change({ pick: `node:${row.key}` }, true)}
      empty=${html`<${Empty} title=${given.search || given.state ? "No node is like this" : "No nodes have joined yet"} />`} />
    <${Subject} pick=${given.pick} />`;
}

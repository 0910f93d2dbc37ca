/**
 * Events: what happened, newest first.
 * @module
 */
import { html } from "../vendor/preact.js";
import { number } from "../format.js";
import { change } from "../place.js";
import { Badge, Choice, Empty, Head, Moment, Search, Time } from "../parts.js";
import { Table, useRows } from "../table.js";
import { NODE } from "./columns.js";
import { Subject } from "./subject.js";

const COLUMNS = [
  { key: "at_ms", title: "When", numeric: true, show: (/** @type {any} */ row) => html`<${Moment} at=${row.at_ms} />` },
  { key: "level", title: "Level", show: (/** @type {any} */ row) => html`<${Badge} state=${row.level} />` },
  { key: "event", title: "What", show: (/** @type {any} */ row) => row.event.replaceAll("_", " ") },
  { key: "subject", title: "Of", grow: true, show: (/** @type {any} */ row) => html`<b>${row.subject || "–"}</b>` },
  { key: "text", title: "Why", grow: true, show: (/** @type {any} */ row) => row.text || "–" },
  NODE,
];
/** Moments are chosen to the second, and the last one is meant whole. */
const REST_OF_SECOND_MS = 999;
const KINDS = ["", "device", "node", "job", "actor", "placement_group", "worker", "autoscaler", "head"];

/** @param {{given: Record<string, string>}} props */
export function Events({ given }) {
  const filters = { search: given.search, kind: given.kind, level: given.level, from: given.from, to: given.to };
  const data = useRows("events", filters, ["at_ms", "level", "event", "kind", "subject", "text", "node_id", "node_name", "pick"]);
  return html`<${Head} title="Events" count=${data.total === null ? null : number(data.total)}>
      <${Choice} label="Of" value=${given.kind ?? ""} onChoose=${(/** @type {string} */ kind) => change({ kind })} options=${KINDS.map((kind) => [kind, kind ? kind.replace("_", " ") : "all"])} />
      <${Choice} label="Level" value=${given.level ?? ""} onChoose=${(/** @type {string} */ level) => change({ level })} options=${[["", "all"], ["warning", "warning and error"], ["error", "error"]]} />
      <${Time} label="Since" value=${given.from} onChoose=${(/** @type {number | null} */ from) => change({ from })} />
      <${Time} label="Until" value=${given.to} onChoose=${(/** @type {number | null} */ to) => change({ to: to && to + REST_OF_SECOND_MS })} />
      <${Search} label="Search events" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Table} label="Events" data=${data} columns=${COLUMNS} onPick=${(/** @type {any} */ row) => row.pick && change({ pick: row.pick }, true)}
      empty=${html`<${Empty} title=${Object.values(filters).some(Boolean) ? "No event is like this" : "Nothing has happened yet"} />`} />
    <${Subject} pick=${given.pick} />`;
}

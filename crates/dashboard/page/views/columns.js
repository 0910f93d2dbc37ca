/**
 * Columns that several tables have.
 * @module
 */
import { html } from "../vendor/preact.js";
import { now } from "../cluster.js";
import { span } from "../format.js";
import { Badge, Id, Moment } from "../parts.js";
import { link } from "../place.js";

/** @typedef {import("../table.js").Column} Column */

/** @type {Column} */
export const STATE = { key: "state", title: "State", show: (row) => html`<${Badge} state=${row.state} />` };
/** @type {Column} */
export const STARTED = { key: "started_ms", title: "Began", numeric: true, show: (row) => html`<${Moment} at=${row.started_ms} />` };
/** @type {Column} */
export const TOOK = {
  key: "took", title: "For", numeric: true,
  order: (row) => (row.started_ms ? (row.ended_ms || now()) - row.started_ms : null),
  show: (row) => (row.started_ms ? span((row.ended_ms || now()) - row.started_ms) : "–"),
};
/** @type {Column} */
export const NODE = {
  key: "node_name", title: "Node", minor: true,
  show: (row) => (row.node_id ? html`<a href=${link("nodes", { pick: `node:${row.node_id}` })}>${row.node_name || row.node_id.slice(0, 8)}</a>` : "–"),
};
/** @type {Column} */
export const JOB = { key: "job_id", title: "Job", minor: true, show: (row) => html`<${Id} id=${row.job_id} />` };
/** @type {Column} */
export const PID = { key: "pid", title: "PID", numeric: true, minor: true, show: (row) => row.pid ?? "–" };

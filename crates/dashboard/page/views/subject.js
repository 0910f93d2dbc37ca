/**
 * The side sheet of whatever was picked: `kind:key`.
 * @module
 */
import { html, useMemo } from "../vendor/preact.js";
import { query } from "../api.js";
import { now, useAnswer } from "../cluster.js";
import { amount, amounts, bytes, number, percent, short, span } from "../format.js";
import { change, link } from "../place.js";
import { Badge, Facts, Id, Moment, Sheet, Trouble } from "../parts.js";
import { ActorActs, DeviceActs, GrantActs, NodeActs, TaskActs } from "./acts.js";
import { Chart } from "./chart.js";
import { Verdicts } from "./explanation.js";
import { WorkerLog } from "./log.js";
import { Profile } from "./profile.js";
import { Cells } from "./cells.js";

/** Each kind of subject: the list that its row is in, what it is called, and its sheet. */
const KINDS = /** @type {Record<string, [string, string, any]>} */ ({
  task: ["tasks", "Task", Task], actor: ["actors", "Actor", Actor], node: ["nodes", "Node", Node], grant: ["grants", "Held device", Grant],
  group: ["placement_groups", "Placement group", Group], process: ["workers", "Process", Process], device: ["devices", "Device", Device],
});

/** @param {{pick: string | undefined}} given */
export function Subject({ pick }) {
  const [kind, ...rest] = (pick ?? "").split(":");
  const key = rest.join(":");
  if (!KINDS[kind] || !key) return null;
  return html`<${One} key=${pick} kind=${kind} id=${key} />`;
}

/** @param {{kind: string, id: string}} given */
function One({ kind, id }) {
  const [list, title, sheet] = KINDS[kind];
  const { answer, error, again } = useAnswer(`rows/${list}${query({ key: id })}`, [list], 2_000);
  const row = answer?.rows?.[0];
  return html`<${Sheet} title=${row ? row.name || row.class || row.label || (row.pid ? `PID ${row.pid}` : short(id)) : short(id)} kind=${title} onClose=${() => change({ pick: null })}>
    <${Trouble} error=${error} again=${again} />
    ${answer && !row && html`<p class="soft">It is not known any more: only the last ones that ended are remembered.</p>`}
    ${row && html`<${sheet} row=${row} />`}
  <//>`;
}

/** @param {any} row */
function common(row) {
  return /** @type {Array<[string, any]>} */ ([
    ["Node", row.node_id && html`<a href=${link("nodes", { pick: `node:${row.node_id}` })}>${row.node_name || short(row.node_id)}</a>`],
    ["Process", row.pid ? row.worker_id ? html`<a href=${link("processes", { pick: `process:${row.worker_id}` })}>PID ${row.pid}</a>` : `PID ${row.pid}` : ""],
    ["Job", row.job_id && html`<${Id} id=${row.job_id} />`],
  ]);
}

/** @param {any} row */
function times(row) {
  const end = row.ended_ms || now();
  return /** @type {Array<[string, any]>} */ ([
    ["Called", row.created_ms ? html`<${Moment} at=${row.created_ms} />` : ""],
    ["Waited", row.created_ms && row.started_ms ? span(row.started_ms - row.created_ms) : ""],
    ["Began", row.started_ms ? html`<${Moment} at=${row.started_ms} />` : ""],
    ["Ended", row.ended_ms ? html`<${Moment} at=${row.ended_ms} />` : ""],
    ["Ran for", row.started_ms ? span(end - row.started_ms) : ""],
  ]);
}

/** @param {{row: any}} given */
function Task({ row }) {
  const waits = /^PENDING_NODE|^PENDING_ARGS/.test(row.state);
  return html`<${TaskActs} row=${row} />
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Function", row.function], ["Kind", row.type?.toLowerCase().replaceAll("_", " ")], ["Attempt", row.attempt > 0 ? row.attempt + 1 : ""],
      ["Needs", amounts(row.resources)], ...times(row), ...common(row), ["Actor", row.actor_id && html`<${Id} id=${row.actor_id} href=${link("actors", { pick: `actor:${row.actor_id}` })} />`],
      ["Called by", row.parent_task_id && html`<${Id} id=${row.parent_task_id} href=${link("tasks", { pick: `task:${row.parent_task_id}:0` })} />`],
      ["Group", row.group && html`<${Id} id=${row.group} href=${link("groups", { pick: `group:${row.group}` })} />`], ["Id", html`<${Id} id=${row.task_id} />`]]} />
    ${row.error && html`<h3>${row.error}</h3>`}
    ${row.message && html`<pre class="log bad-log" tabindex="0" role="region" aria-label="The error">${row.message}</pre>`}
    ${waits && html`<${Why} id=${row.task_id} />`}
    ${row.started_ms > 0 && html`<${Profile} of=${{ task_id: row.task_id, attempt_number: row.attempt, node_id: row.node_id }} runs=${row.state === "RUNNING"} />`}
    ${row.started_ms > 0 && html`<${WorkerLog} of=${{ task_id: row.task_id, attempt_number: row.attempt, node_id: row.node_id }} />`}
    <${TaskList} title="What it called" given=${{ parent_task_id: row.task_id }} />`;
}

/** @param {{id: string}} given */
function Why({ id }) {
  const { answer } = useAnswer(`explain/${encodeURIComponent(id)}`, ["waiting", "nodes"], 2_000);
  return answer && html`<${Verdicts} told=${answer} />`;
}

/** @param {{title: string, given: Record<string, string>}} props */
function TaskList({ title, given }) {
  const { answer } = useAnswer(`rows/tasks${query({ ...given, columns: "name,state,started_ms,ended_ms,error", limit: 30 })}`, ["tasks"], 2_000);
  if (!answer || answer.rows.length === 0) return null;
  return html`<section><h3>${title} <span class="count">${number(answer.total)}</span></h3><ul class="lines">${answer.rows.map((/** @type {any} */ row) => html`<li key=${row.key}>
    <a href=${link("tasks", { pick: `task:${row.key}` })}>${row.name}</a> <${Badge} state=${row.state} /> <span class="figures">${row.started_ms ? span((row.ended_ms || now()) - row.started_ms) : ""}</span>
  </li>`)}</ul></section>`;
}

/** @param {{row: any}} given */
function Actor({ row }) {
  return html`<${ActorActs} row=${row} />
    ${row.cause && html`<p class=${row.state === "DEAD" ? "trouble" : "why"}>${row.cause}</p>`}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Class", row.class], ["Name", row.name], ["Namespace", row.namespace], ["Holds", amounts(row.resources)], ["Restarts", number(row.restarts)],
      ["Outlives its job", row.detached ? "yes" : ""], ...common(row), ["Group", row.group && html`<${Id} id=${row.group} href=${link("groups", { pick: `group:${row.group}` })} />`], ["Id", html`<${Id} id=${row.key} />`]]} />
    ${["WAITING", "RESTARTING"].includes(row.state) && html`<${Why} id=${row.key} />`}
    ${!row.never_ran && row.pid && html`<${Profile} of=${{ actor_id: row.key }} runs=${row.state === "ALIVE"} />`}
    ${!row.never_ran && row.pid && html`<${WorkerLog} of=${{ actor_id: row.key, node_id: row.node_id }} />`}
    <${TaskList} title="Its calls" given=${{ actor_id: row.key }} />`;
}

/** @param {{row: any}} given */
function Grant({ row }) {
  const long = (row.to_ms ?? now()) - row.from_ms;
  return html`<${GrantActs} row=${row} />
    ${row.reason && html`<p class="trouble">${row.reason}</p>`}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Device", html`<a href=${link("devices", { pick: `device:${row.device}` })}>${row.label}</a>`], ["Share", `${Math.round(row.share * 100)} %`],
      ["From", html`<${Moment} at=${row.from_ms} />`], ["Till", row.to_ms ? html`<${Moment} at=${row.to_ms} />` : "now"], ["For", span(long)], ...common(row),
      ["Actor", row.actor_id && html`<${Id} id=${row.actor_id} href=${link("actors", { pick: `actor:${row.actor_id}` })} />`], ["Group", row.group && html`<${Id} id=${row.group} href=${link("groups", { pick: `group:${row.group}` })} />`]]} />
    ${row.worker_id && html`<${Profile} of=${{ worker_id: row.worker_id }} runs=${row.to_ms === null && row.state === "held"} />`}
    ${row.worker_id && html`<${WorkerLog} of=${{ worker_id: row.worker_id, node_id: row.node_id }} />`}
    ${row.worker_id && html`<${TaskList} title="Tasks of this process" given=${{ worker_id: row.worker_id }} />`}`;
}

/** @param {{row: any}} given */
function Device({ row }) {
  return html`<${DeviceActs} row=${row} />
    ${row.reason && html`<p class="trouble">${row.reason}</p>`}
    ${(row.notes ?? []).map((/** @type {string} */ text) => html`<p class="note">${text}</p>`)}${(row.violations ?? []).map((/** @type {string} */ text) => html`<p class="trouble">${text}</p>`)}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Held", percent(row.held, 1)], ["Busy", row.busy === null || row.busy === undefined ? "" : percent(row.busy, 1)],
      ["Memory", row.memory_size ? `${bytes(row.memory_used)} of ${bytes(row.memory_size)}` : ""], ["Id", row.id], ...common(row)]} />
    ${(row.holders ?? []).length > 0 && html`<h3>Held by</h3><ul class="lines">${row.holders.map((/** @type {any} */ one) => html`<li><b>${one.name}</b> ${percent(one.share, 1)} ${one.pid ? `PID ${one.pid}` : ""}</li>`)}</ul>`}
    ${(row.foreign ?? []).length > 0 && html`<h3>Used by others than this cluster</h3><ul class="lines">${row.foreign.map((/** @type {any} */ one) => html`<li>PID ${one.pid} ${one.name} ${one.used_bytes ? bytes(one.used_bytes) : ""}</li>`)}</ul>`}`;
}

/** @param {{row: any}} given */
function Group({ row }) {
  return html`${row.reason && html`<p class="why">${row.reason}</p>`}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Scheduling", row.scheduling], ["Strategy", row.strategy], ["Outlives its job", row.detached ? "yes" : ""], ["Job", html`<${Id} id=${row.job_id} />`], ["Id", html`<${Id} id=${row.key} />`]]} />
    <h3>Bundles</h3><ul class="lines">${row.bundles.map((/** @type {any} */ bundle, /** @type {number} */ at) => html`<li><b>${at}</b> ${amounts(bundle.resources)} ${bundle.node_id ? html`on <a href=${link("nodes", { pick: `node:${bundle.node_id}` })}>${short(bundle.node_id)}</a>` : html`<span class="bad-word">no node</span>`}</li>`)}</ul>
    ${["PENDING", "RESCHEDULING"].includes(row.state) && html`<${Why} id=${row.key} />`}`;
}

/** The memory that a process has, and what of it nobody else has. @param {any} row */
function memoryOf(row) {
  if (row.memory === undefined || row.memory === null) return "";
  return row.own_memory ? `${bytes(row.memory)}, ${bytes(row.own_memory)} of it its own` : bytes(row.memory);
}

/** @param {{row: any}} given */
function Process({ row }) {
  return html`${row.detail && html`<p class="why">${row.detail}</p>`}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Does", row.duty], ["Runs", row.name], ["PID", row.pid], ["Holds", amounts(row.resources)], ["Memory", memoryOf(row)],
      ["CPU", row.cpu === undefined || row.cpu === null ? "" : `${percent(row.cpu, 1)} of one`], ["Open files", row.files === undefined ? "" : number(row.files)], ["How it ended", row.exit], ...times(row),
      ["Node", row.node_id && html`<a href=${link("nodes", { pick: `node:${row.node_id}` })}>${row.node_name || short(row.node_id)}</a>`], ["Job", row.job_id && html`<${Id} id=${row.job_id} />`], ["Id", html`<${Id} id=${row.key} />`]]} />
    ${row.pid && html`<${Profile} of=${{ worker_id: row.key }} runs=${!row.ended_ms} />`}
    ${row.pid && html`<${WorkerLog} of=${{ worker_id: row.key, node_id: row.node_id }} />`}
    <${TaskList} title="What it runs and ran" given=${{ worker_id: row.key }} />`;
}

/** The charts of a node: title, unit, and the lines of the series with what they are called there. */
const CHARTS = /** @type {Array<[string, "part" | "rate", Array<[string, string]>]>} */ ([
  ["CPU", "part", [["CPU held", "held"], ["CPU in use", "in use"]]], ["Memory", "part", [["memory held", "held"], ["memory in use", "in use"]]],
  ["Devices", "part", [["devices held", "held"]]], ["Disk", "part", [["disk in use", "in use"]]],
  ["Disk traffic", "rate", [["read", "read"], ["written", "written"]]], ["Network", "rate", [["received", "received"], ["sent", "sent"]]],
]);

/** Some lines of a series; nothing where it has none of them. @param {any} series @param {Array<[string, string]>} names */
function linesOf(series, names) {
  const lines = names.flatMap(([name, title]) => {
    const found = series?.lines.find((/** @type {any} */ line) => line.name === name);
    return found ? [{ ...found, name: title, dashed: title === "held" }] : [];
  });
  return lines.length > 0 ? { times: series.times, lines } : null;
}

/** @param {{row: any}} given */
function Node({ row }) {
  const told = useAnswer(`series${query({ of: "node", node: row.key })}`, ["series"], 5_000);
  const charts = useMemo(() => CHARTS.map(([title, unit, names]) => ({ title, unit, series: linesOf(told.answer, names) })), [told.answer]);
  const names = Object.keys(row.resources ?? {}).filter((name) => !name.startsWith("node:"));
  return html`<${NodeActs} row=${row} />
    ${row.silent && html`<p class="why">It has measured nothing new for longer than it should.</p>`}${row.draining && html`<p class="why">${row.draining}</p>`}${row.death && html`<p class="trouble">${row.death}</p>`}
    <${Facts} rows=${[["State", html`<${Badge} state=${row.state} />`], ["Address", row.address], ["Host", row.hostname], ["Head", row.head ? "yes" : ""], ["Began", html`<${Moment} at=${row.started_ms} />`], ["Ended", row.ended_ms ? html`<${Moment} at=${row.ended_ms} />` : ""],
      ["Ends at the latest", row.drain_deadline_ms ? html`<${Moment} at=${row.drain_deadline_ms} />` : ""],
      ...names.map((name) => /** @type {[string, any]} */ ([name, `${amount(name, row.resources[name] - (row.available?.[name] ?? 0))} of ${amount(name, row.resources[name])}`])),
      ["CPU in use", row.cpu_count ? `${percent(row.cpu_busy, 1)} of ${number(row.cpu_count)}` : ""], ["Memory in use", row.memory_size ? `${bytes(row.memory_used)} of ${bytes(row.memory_size)}` : ""],
      ["Object store", row.store_size ? `${bytes(row.store_used)} of ${bytes(row.store_size)}` : bytes(row.store_used)], ["Disk", row.disk_size ? `${bytes(row.disk_used)} of ${bytes(row.disk_size)}` : ""], ["Version", row.version], ["Id", html`<${Id} id=${row.key} />`]]} />
    ${row.devices?.length > 0 && html`<h3>Devices</h3><${Cells} devices=${row.devices} /><ul class="lines">${row.devices.map((/** @type {any} */ one) => html`<li><a href=${link("devices", { pick: `device:${one.key}` })}>${one.label}</a> <${Badge} state=${one.state} /> ${one.reason ?? ""}</li>`)}</ul>`}
    ${charts.map(({ title, unit, series }) => series && html`<${Chart} key=${title} title=${title} series=${series} unit=${unit} />`)}
    ${Object.keys(row.labels ?? {}).length > 0 && html`<h3>Labels</h3><${Facts} rows=${Object.entries(row.labels)} />`}`;
}

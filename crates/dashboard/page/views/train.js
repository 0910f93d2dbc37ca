/**
 * Training: runs, their ranks, and a curve of each number that they report.
 * @module
 */
import { html, useState } from "../vendor/preact.js";
import { query } from "../api.js";
import { useAnswer } from "../cluster.js";
import { number } from "../format.js";
import { change, link } from "../place.js";
import { Badge, Empty, Facts, Head, Id, Moment, Search, Sheet, Trouble } from "../parts.js";
import { Table, useRows } from "../table.js";
import { Chart } from "./chart.js";
import { Ranks, stateOf, useGroups } from "./ranks.js";

const SHOWN_MAX = 4;
const SHOWN_CHECKPOINTS = 10;

/** The last numbers in short. @param {Record<string, number>} numbers */
function short(numbers) {
  const all = Object.entries(numbers ?? {});
  const shown = all.slice(0, SHOWN_MAX).map(([name, value]) => `${name} ${exact(value)}`);
  return `${shown.join(", ")}${all.length > SHOWN_MAX ? ", …" : ""}` || "–";
}

/** Small numbers keep their digits. @param {number} value */
function exact(value) {
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(3) : number(value);
}

const COLUMNS = [
  { key: "name", title: "Run", grow: true, show: (/** @type {any} */ row) => html`<b>${row.name}</b>` },
  { key: "reports", title: "Reports", numeric: true, order: (/** @type {any} */ row) => row.reports ?? -1, show: (/** @type {any} */ row) => (row.reports === null ? "–" : number(row.reports)) },
  { key: "numbers", title: "Last reported", grow: true, order: (/** @type {any} */ row) => short(row.numbers), show: (/** @type {any} */ row) => short(row.numbers) },
  { key: "started_ms", title: "First report", numeric: true, minor: true, show: (/** @type {any} */ row) => html`<${Moment} at=${row.started_ms} />` },
  { key: "reported_ms", title: "Last report", numeric: true, show: (/** @type {any} */ row) => html`<${Moment} at=${row.reported_ms} />` },
];

/** @param {{given: Record<string, string>}} props */
export function Train({ given }) {
  const data = useRows("runs", { search: given.search }, ["name", "job_id", "reports", "numbers", "started_ms", "reported_ms"]);
  const picked = data.rows.find((row) => row.key === given.pick);
  return html`<${Head} title="Training" count=${data.total}>
      <${Search} label="Search runs" value=${given.search ?? ""} onSearch=${(/** @type {string} */ search) => change({ search })} />
    <//>
    <${Table} label="Training runs" data=${data} columns=${COLUMNS} picked=${given.pick} onPick=${(/** @type {any} */ row) => change({ pick: row.key }, true)}
      empty=${given.search ? html`<${Empty} title="No run is like this" />` : html`<${Empty} title="No run has reported yet">What <code>ray.train.report()</code> reports is drawn here.<//>`} />
    ${picked && html`<${Run} key=${picked.key} row=${picked} />`}`;
}

/** A line by the number of the report: of those that happened again after a restart, the last. @param {any} answer @param {any} line */
function stepped(answer, line) {
  const values = new Map();
  answer.reports.forEach((/** @type {number | null} */ report, /** @type {number} */ place) => {
    if (report !== null && line.values[place] !== null) values.set(report, line.values[place]);
  });
  const times = [...values.keys()].sort((left, right) => left - right);
  return { times, lines: [{ name: line.name, values: times.map((time) => values.get(time)) }] };
}

/** @param {{row: any}} given */
function Run({ row }) {
  const { answer, error, again } = useAnswer(`series${query({ of: "run", run: row.key })}`, ["runs"], 2_000);
  const [byReport, setByReport] = useState(false);
  const ranks = useGroups(row);
  const last = ranks.groups[ranks.groups.length - 1];
  const kept = answer?.checkpoints ?? [];
  return html`<${Sheet} title=${row.name} kind="Training run" onClose=${() => change({ pick: null })}>
    <${Facts} rows=${[["State", last && html`<${Badge} state=${stateOf(last)} />`], ["Restarts", ranks.groups.length > 1 ? number(ranks.groups.length - 1) : ""], ["Job", row.job_id && html`<${Id} id=${row.job_id} href=${link("tasks", { job_id: row.job_id })} />`], ["Reports", row.reports === null ? "" : number(row.reports)],
      ["First report", html`<${Moment} at=${row.started_ms} />`], ["Last report", html`<${Moment} at=${row.reported_ms} />`],
      ["Last checkpoint", kept.length > 0 ? html`of report ${number(kept[kept.length - 1][1])}, <${Moment} at=${kept[kept.length - 1][0]} />` : ""]]} />
    <${Trouble} error=${error ?? ranks.error} again=${error ? again : ranks.again} />
    <${Ranks} run=${row} groups=${ranks.groups} note=${ranks.note} />
    ${(answer?.lines ?? []).length > 0 && html`<div class="segments" role="group" aria-label="Curves">
      <button type="button" aria-pressed=${!byReport} onClick=${() => setByReport(false)}>By time</button>
      <button type="button" aria-pressed=${byReport} onClick=${() => setByReport(true)}>By report</button></div>`}
    ${(answer?.lines ?? []).map((/** @type {any} */ line) => html`<${Chart} key=${`${line.name}:${byReport}`} title=${`${line.name}: ${exact(row.numbers?.[line.name] ?? 0)}`} series=${byReport ? stepped(answer, line) : { times: answer.times, lines: [line] }} unit="any" counts=${byReport} />`)}
    ${kept.length > 0 && html`<h3>Checkpoints</h3><ul class="lines">${kept.slice(-SHOWN_CHECKPOINTS).reverse().map((/** @type {[number, number]} */ [at, report]) => html`<li key=${at}>of report <b>${number(report)}</b> <${Moment} at=${at} /></li>`)}</ul>`}
  <//>`;
}

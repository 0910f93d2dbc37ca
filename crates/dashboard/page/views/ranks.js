/**
 * The ranks of a training run: where each runs, which groups of them there were before and why they ended, and where all are now.
 * A rank is a call that the run makes under a name of its own (`python/oxiray/train/_controller.py`).
 * @module
 */
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, query, Refusal } from "../api.js";
import { now, useAnswer, useCluster } from "../cluster.js";
import { number, span } from "../format.js";
import { link } from "../place.js";
import { Badge, Moment, Trouble } from "../parts.js";

const COLUMNS = "name,state,created_ms,started_ms,ended_ms,error,message,node_id,node_name,worker_id,pid,actor_id";
/** The most rows of an answer. */
const ROWS_MAX = 500;
/** From there on there is only what still lasts. */
const END_OF_TIME_MS = 8.64e15;
/** How many processes are asked for their stacks at once. */
const ASKED_AT_ONCE = 4;

/**
 * A rank of a group.
 * @typedef {{rank: number, state: string, created_ms: number, started_ms: number, ended_ms: number, error: string | null, message: string | null,
 *   node_id: string | null, node_name: string | null, worker_id: string | null, pid: number | null, actor_id: string | null, key: string}} Rank
 */

/**
 * The groups of ranks of a run, oldest first: a rank that comes again begins another one.
 * @param {any[]} rows of tasks @param {string} run
 * @returns {Rank[][]}
 */
export function groupsOf(rows, run) {
  const ranks = rows.flatMap((row) => {
    const found = row.name?.startsWith(`${run}: rank `) ? /^\d+$/.exec(row.name.slice(run.length + 7)) : null;
    return found ? [{ ...row, rank: Number(found[0]) }] : [];
  });
  ranks.sort((left, right) => left.created_ms - right.created_ms || left.rank - right.rank);
  /** @type {Rank[][]} */
  const groups = [];
  let seen = new Set();
  for (const rank of ranks) {
    if (groups.length === 0 || seen.has(rank.rank)) {
      groups.push([]);
      seen = new Set();
    }
    seen.add(rank.rank);
    groups[groups.length - 1].push(rank);
  }
  for (const group of groups) group.sort((left, right) => left.rank - right.rank);
  return groups;
}

/** How a group is, in one word. @param {Rank[]} group */
export function stateOf(group) {
  if (group.some((rank) => rank.state === "FAILED")) return "FAILED";
  if (group.every((rank) => rank.state === "FINISHED")) return "FINISHED";
  return group.some((rank) => rank.state === "RUNNING") ? "RUNNING" : "PENDING";
}

/** What ranks say whose group the run ended: not why it did. */
const ENDED = /killed by `ray\.kill`/;

/** The rank that failed first: the others lose their peer, and are ended then. @param {Rank[]} group */
export function culprit(group) {
  const failed = group.filter((rank) => rank.state === "FAILED" && !ENDED.test(rank.message ?? ""));
  return failed.reduce((/** @type {Rank | null} */ first, rank) => (first === null || rank.ended_ms < first.ended_ms ? rank : first), null);
}

/** The last line of an error, which names it. @param {Rank} rank */
function reason(rank) {
  const lines = (rank.message ?? "").trim().split("\n");
  return lines[lines.length - 1] || rank.error || "it failed";
}

/** @param {any} run the row of a run @returns {{groups: Rank[][], note: string, error: Refusal | null, again: () => void}} */
export function useGroups(run) {
  const asked = { job_id: run.job_id, search: `${run.name}: rank `, columns: COLUMNS, limit: ROWS_MAX };
  const { answer, error, again } = useAnswer(run.job_id ? `rows/tasks${query(asked)}` : null, ["tasks"], 2_000);
  return { groups: groupsOf(answer?.rows ?? [], run.name), note: noteOf(answer, "calls of ranks"), error, again };
}

/** What is missing in an answer that has not all rows, or not all that they are made of. @param {any} answer @param {string} what */
export function noteOf(answer, what) {
  const cut = answer?.next ? `There are ${number(answer.total)} ${what}; the newest ${number(answer.rows.length)} are looked at.` : "";
  return [cut, answer?.note].filter(Boolean).join(" ");
}

/**
 * Of which time the devices of a group are asked for: of what still lasts while one of its ranks runs, and else of when it ran. A job may
 * have held devices more often than an answer has rows.
 * @param {Rank[] | undefined} group
 */
export function spanOf(group) {
  if (!group || group.some((rank) => !rank.ended_ms)) return { from: END_OF_TIME_MS };
  return { from: Math.min(...group.map((rank) => rank.started_ms || rank.ended_ms)), to: Math.max(...group.map((rank) => rank.ended_ms)) };
}

/** @param {{run: any, groups: Rank[][], note: string}} given */
export function Ranks({ run, groups, note }) {
  const last = groups[groups.length - 1];
  const asked = { job_id: run.job_id, ...spanOf(last), columns: "label,worker_id,state", limit: ROWS_MAX };
  const { answer } = useAnswer(run.job_id && last ? `rows/grants${query(asked)}` : null, ["grants"], 2_000);
  if (!last) return null;
  const held = new Map();
  for (const grant of answer?.rows ?? []) {
    if (grant.state === "held" && grant.worker_id && grant.label !== "CPU") held.set(grant.worker_id, [...new Set([...(held.get(grant.worker_id) ?? []), grant.label])].sort());
  }
  const line = (/** @type {Rank} */ rank) => html`<tr key=${rank.key}>
    <td class="numeric"><a href=${link("tasks", { pick: `task:${rank.key}` })}>${rank.rank}</a></td>
    <td><${Badge} state=${rank.state} /></td>
    <td>${rank.node_id ? html`<a href=${link("nodes", { pick: `node:${rank.node_id}` })}>${rank.node_name || rank.node_id.slice(0, 8)}</a>` : "–"}</td>
    <td>${(rank.worker_id && held.get(rank.worker_id)?.join(", ")) || "–"}</td>
    <td class="numeric">${rank.pid ? html`<a href=${rank.actor_id ? link("actors", { pick: `actor:${rank.actor_id}` }) : link("processes", { pick: `process:${rank.worker_id}` })}>${rank.pid}</a>` : "–"}</td>
    <td class="numeric">${rank.started_ms ? span((rank.ended_ms || now()) - rank.started_ms) : "–"}</td>
  </tr>`;
  return html`<section><h3>Ranks <span class="count">${number(last.length)}</span></h3>
    ${[note, noteOf(answer, "holdings of devices")].filter(Boolean).map((text) => html`<p class="note" key=${text}>${text}</p>`)}
    <div class="table-frame"><table aria-label="Ranks"><thead><tr><th scope="col">Rank</th><th scope="col">State</th><th scope="col">Node</th><th scope="col">Devices</th><th scope="col">PID</th><th scope="col">For</th></tr></thead>
      <tbody>${last.map(line)}</tbody></table></div>
    <${AllStacks} ranks=${last.filter((rank) => rank.state === "RUNNING" && rank.worker_id)} />
  </section>
  ${groups.length > 1 && html`<${Restarts} groups=${groups} />`}`;
}

/** Each group before the last one, and why it ended. @param {{groups: Rank[][]}} given */
function Restarts({ groups }) {
  const line = (/** @type {Rank[]} */ group, /** @type {number} */ place) => {
    const first = culprit(group);
    const ended = Math.max(...group.map((rank) => rank.ended_ms));
    return html`<li key=${group[0].key}>${ended ? html`<${Moment} at=${ended} />` : ""} group ${place + 1}:
      ${first ? html` <a href=${link("tasks", { pick: `task:${first.key}` })}>rank ${first.rank}</a> ${reason(first)}` : " the run ended it; its output says why"}</li>`;
  };
  return html`<section><h3>Restarts <span class="count">${groups.length - 1}</span></h3><ul class="lines">${groups.slice(0, -1).map(line).reverse()}</ul></section>`;
}

/** The calls of a process's main thread, the innermost first. @param {any} process */
function mainOf(process) {
  const main = process.stacks.find((/** @type {any} */ stack) => !stack.is_task && stack.name === "MainThread") ?? process.stacks[0];
  return (main?.frames ?? []).map((/** @type {any} */ one) => `  ${one.function} (${one.file}:${one.line})`).join("\n") || `  ${process.note || "no Python code"}`;
}

/**
 * Ranks whose main threads are at the same place, together; where fewest are comes first, since the others may wait for them.
 * @param {Array<{rank: number, text: string}>} told
 * @returns {Array<{ranks: number[], text: string}>}
 */
export function alike(told) {
  const places = new Map();
  for (const { rank, text } of told) places.set(text, [...(places.get(text) ?? []), rank]);
  const groups = [...places].map(([text, ranks]) => ({ text, ranks: ranks.sort((/** @type {number} */ left, /** @type {number} */ right) => left - right) }));
  return groups.sort((left, right) => left.ranks.length - right.ranks.length || left.ranks[0] - right.ranks[0]);
}

/** Where the main threads of all ranks are now. @param {{ranks: Rank[]}} given */
function AllStacks({ ranks }) {
  const { overview } = useCluster();
  const [told, setTold] = useState(/** @type {Array<{rank: number, text: string}> | null} */ (null));
  const [isAsking, setAsking] = useState(false);
  const [error, setError] = useState(/** @type {Refusal | null} */ (null));
  const cut = useRef(new AbortController());
  useEffect(() => () => cut.current.abort(), []);
  if (!overview || overview.history || (ranks.length === 0 && !told)) return null;
  const why = !overview.may_write ? "This key only reads" : ranks.length === 0 ? "No rank runs any more" : undefined;
  const ask = async () => {
    setAsking(true);
    setError(null);
    /** @type {Array<{rank: number, text: string}>} */
    const found = [];
    const waiting = [...ranks];
    const askOn = async () => {
      for (let rank = waiting.shift(); rank; rank = waiting.shift()) {
        try {
          const answer = await get(`stacks${query({ worker_id: rank.worker_id })}`, cut.current.signal);
          found.push({ rank: rank.rank, text: mainOf(answer.processes[0]) });
        } catch (trouble) {
          if (cut.current.signal.aborted) return;
          if (trouble instanceof Refusal && [401, 403].includes(trouble.status)) throw trouble;
          found.push({ rank: rank.rank, text: `  ${trouble instanceof Error ? trouble.message : String(trouble)}` });
        }
      }
    };
    try {
      await Promise.all(Array.from({ length: ASKED_AT_ONCE }, askOn));
      if (!cut.current.signal.aborted) setTold(found);
    } catch (trouble) {
      setError(trouble instanceof Refusal ? trouble : new Refusal(String(trouble), 0));
    }
    setAsking(false);
  };
  const line = (/** @type {{ranks: number[], text: string}} */ { ranks: at, text }) => `Rank ${at.join(", ")}\n${text}`;
  return html`<div class="acts"><button type="button" disabled=${Boolean(why) || isAsking} title=${why} onClick=${ask}>${isAsking ? "Asking…" : "Stacks of all ranks"}</button></div>
    <${Trouble} error=${error} />
    ${told && html`<pre class="log" tabindex="0" role="region" aria-label="Stacks of all ranks">${alike(told).map(line).join("\n\n")}</pre>`}`;
}

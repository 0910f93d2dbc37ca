/**
 * What is done by hand to what a sheet tells of: each button asks once more before it acts.
 * @module
 */
import { html, useRef, useState } from "../vendor/preact.js";
import { act, query } from "../api.js";
import { useAnswer, useCluster } from "../cluster.js";
import { number } from "../format.js";
import { Confirmed } from "../parts.js";

/**
 * @typedef {object} Act
 * @property {string} label
 * @property {string} question
 * @property {string} detail
 * @property {string} [dismiss] what the button says that does nothing
 * @property {string} path below ox/v1/
 * @property {string} told what is said when it is done
 * @property {boolean} [hasDeadline] whether one may say by when
 */

/** @param {string} text */
const part = (text) => encodeURIComponent(text);

/** @param {any} row of a task @returns {Act} */
function cancelOf(row) {
  return {
    label: "Cancel", question: `Cancel the task ${row.name}?`, path: `tasks/${part(row.task_id)}/cancel`, told: "Its owner cancels it.",
    detail: "If it waits, it never runs. If it runs, it is interrupted, and so is what it called. Whoever asks for its result gets an error.",
  };
}

/** @param {string} id @param {string} name @returns {Act} */
function killOf(id, name) {
  return {
    label: "Kill", question: `Kill the actor ${name}?`, path: `actors/${part(id)}/kill`, told: "It is being killed.",
    detail: "Its process is killed, and it is not restarted, whatever restarts it has left. Calls that are under way fail.",
  };
}

/** @param {any} row of a device @returns {Act[]} */
function ofDevice(row) {
  const path = `devices/${row.key.split("/").map(part).join("/")}`;
  const check = { label: "Check", question: `Check ${row.label}?`, path: `${path}/check`, told: "It is being checked.", dismiss: "Not now", detail: "Its driver is asked to compute on it. If it does not pass, it stays out of service." };
  if (row.state === "quarantined") {
    return [{ label: "Put back", question: `Put ${row.label} back into service?`, path: `${path}/undrain`, told: "It is put back when it has passed a check.", dismiss: "Leave it out", detail: "It is checked first. If it does not pass, it stays out of service." }, check];
  }
  const drain = { label: "Drain", question: `Drain ${row.label}?`, path: `${path}/drain`, told: "It is given to nobody any more.", detail: "It is given to nobody any more; whoever holds it keeps it. Afterwards you can put it back." };
  return row.state === "free" ? [drain, check] : [drain];
}

/** @param {any} row of a node @returns {Act[]} */
export function ofNode(row) {
  if (row.state === "DEAD") return [];
  const path = `nodes/${part(row.key)}`;
  if (row.state === "DRAINING") return [{ label: "Stop draining", question: `Stop draining the node ${row.name}?`, path: `${path}/keep`, told: "It is not drained any more.", dismiss: "Let it drain", detail: "The drain is cancelled: the node stays, and gets work again." }];
  return [{
    label: "Drain", question: `Drain the node ${row.name}?`, path: `${path}/drain`, told: "It is being drained.", hasDeadline: true,
    detail: "No new work is placed there. Objects move to other nodes, and the node ends when it is empty, or at the deadline; what runs there then runs again elsewhere.",
  }];
}

/** Buttons, and what came of the last one. @param {{acts: Act[]}} given */
function Buttons({ acts }) {
  const { overview } = useCluster();
  const [told, setTold] = useState("");
  if (!overview || overview.history || (acts.length === 0 && !told)) return null;
  const why = overview.may_write ? undefined : "This key only reads";
  return html`<div class="acts">${acts.map((one) => html`<${Button} key=${one.label} one=${one} why=${why} onDone=${setTold} />`)}
    ${told && html`<span class="soft" role="status">${told}</span>`}</div>`;
}

/** @param {{one: Act, why: string | undefined, onDone: (told: string) => void}} given */
function Button({ one, why, onDone }) {
  const minutes = useRef(/** @type {HTMLInputElement | null} */ (null));
  const run = async () => {
    const given = secondsOf(minutes.current);
    const answer = await act(one.path, given === undefined ? {} : { seconds: given });
    onDone(`${one.told}${left(answer.left)}`);
  };
  return html`<${Confirmed} label=${one.label} question=${one.question} detail=${one.detail} dismiss=${one.dismiss} disabled=${Boolean(why)} title=${why} act=${run}>
    ${one.hasDeadline && html`<label class="choice"><span>Minutes until it ends at the latest; empty: none</span><input ref=${minutes} class="minutes" type="number" min="0" step="any" inputmode="decimal" /></label>`}
  <//>`;
}

/** The longest time until a node ends, in minutes. */
const MINUTES_MAX = 1e7;

/**
 * The seconds until a node ends at the latest, of what is in a field for minutes; nothing where that is empty.
 * @param {{value: string, validity: {badInput: boolean}} | null} field
 * @returns {number | undefined}
 */
export function secondsOf(field) {
  // A browser gives an empty value for what it cannot read as a number.
  if (!field || (field.value === "" && !field.validity.badInput)) return undefined;
  const minutes = Number(field.value);
  if (field.validity.badInput || !(minutes > 0 && minutes <= MINUTES_MAX)) throw new Error(`That is no number of minutes above 0 and up to ${number(MINUTES_MAX)}. Leave the field empty where it may take as long as it takes.`);
  return minutes * 60;
}

/** What is still on a node. @param {Record<string, number> | null | undefined} counts */
function left(counts) {
  const words = Object.entries(counts ?? {}).filter(([, count]) => count > 0).map(([what, count]) => `${number(count)} ${what.replaceAll("_", " ")}`);
  return words.length > 0 ? ` Still there: ${words.join(", ")}.` : "";
}

/** @param {{row: any}} given */
export function TaskActs({ row }) {
  const isOver = ["FINISHED", "FAILED"].includes(row.state);
  return html`<${Buttons} acts=${isOver || row.type === "ACTOR_CREATION_TASK" ? [] : [cancelOf(row)]} />`;
}

/** @param {{row: any}} given */
export function ActorActs({ row }) {
  return html`<${Buttons} acts=${row.state === "DEAD" ? [] : [killOf(row.key, row.name || row.class)]} />`;
}

/** @param {{row: any}} given */
export function NodeActs({ row }) {
  return html`<${Buttons} acts=${ofNode(row)} />`;
}

/** @param {{row: any}} given */
export function DeviceActs({ row }) {
  return html`<${Buttons} acts=${ofDevice(row)} />`;
}

/** What may be done to who holds a device, and to the device. @param {{row: any}} given */
export function GrantActs({ row }) {
  const lasts = row.to_ms === null;
  const asksTask = lasts && row.worker_id && !row.actor_id;
  const runs = useAnswer(asksTask ? `rows/tasks${query({ worker_id: row.worker_id, state: "RUNNING", columns: "task_id,name", limit: 1 })}` : null, ["tasks"], 2_000);
  const device = useAnswer(lasts ? `rows/devices${query({ key: row.device, columns: "label,state" })}` : null, ["devices"], 2_000);
  const task = runs.answer?.rows[0];
  const found = device.answer?.rows[0];
  const acts = !lasts ? [] : [
    ...(row.actor_id ? [killOf(row.actor_id, row.name)] : task ? [cancelOf(task)] : []),
    ...(found ? ofDevice(found).map((one) => ({ ...one, label: one.label === "Check" ? "Check device" : one.label === "Drain" ? "Drain device" : one.label })) : []),
  ];
  return html`<${Buttons} acts=${acts} />`;
}

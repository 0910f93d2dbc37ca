/**
 * What a process does: its stacks now, and profiles of its processor time, of the time that passes and of its memory.
 * @module
 */
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { fetched, get, query, Refusal } from "../api.js";
import { useCluster } from "../cluster.js";
import { Trouble } from "../parts.js";
import { amountOf, Flame, Functions } from "./flame.js";

const SECONDS = 5;
const TICK_MS = 250;
/** What is measured, with the words of its button, and what to say where nothing was seen. */
const KINDS = /** @type {Record<string, [string, string]>} */ ({
  cpu: ["CPU", "No thread of it computed. Wall shows where threads wait."],
  wall: ["Wall", "No thread of it runs Python code."],
  memory: ["Memory", "Nothing was allocated that is still there."],
});
/** @type {Array<[string, string, string]>} format, word and end of a file's name */
const FILES = [["svg", "SVG", "svg"], ["speedscope", "speedscope", "speedscope.json"], ["folded", "Folded stacks", "folded.txt"]];

/**
 * Buttons, and what came of the last one. What was told stays when the process ends.
 * @param {{of: Record<string, any>, runs: boolean}} given
 */
export function Profile({ of, runs }) {
  const { overview } = useCluster();
  const [asked, setAsked] = useState("");
  const [told, setTold] = useState(/** @type {{kind: string, answer: any} | null} */ (null));
  const [error, setError] = useState(/** @type {Refusal | null} */ (null));
  const cut = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => cut.current?.abort(), []);
  if (!overview || overview.history || (!runs && !told && !asked)) return null;
  const why = !overview.may_write ? "This key only reads" : runs ? undefined : "It does not run any more";
  const ask = async (/** @type {string} */ kind) => {
    const cutting = new AbortController();
    cut.current = cutting;
    setAsked(kind);
    setError(null);
    try {
      const path = kind === "stacks" ? `stacks${query(of)}` : `profile${query({ ...of, kind, seconds: SECONDS })}`;
      const answer = await get(path, cutting.signal);
      setTold({ kind, answer });
    } catch (trouble) {
      if (!cutting.signal.aborted) setError(trouble instanceof Refusal ? trouble : new Refusal(String(trouble), 0));
    }
    if (cut.current === cutting) setAsked("");
  };
  const button = (/** @type {string} */ kind, /** @type {string} */ label) => html`<button type="button" disabled=${Boolean(why) || Boolean(asked)} title=${why} onClick=${() => ask(kind)}>${label}</button>`;
  return html`<section class="profile"><h3>Profile</h3>
    <div class="acts">${button("stacks", "Stacks now")}${Object.entries(KINDS).map(([kind, [word]]) => button(kind, `${word} ${SECONDS} s`))}</div>
    ${asked && html`<${Progress} key=${asked} kind=${asked} onCancel=${() => cut.current?.abort()} />`}
    <${Trouble} error=${error} />
    ${told && !asked && (told.kind === "stacks" ? html`<${Stacks} processes=${told.answer.processes} />` : html`<${Shown} key=${told.answer.taken} kind=${told.kind} told=${told.answer} />`)}
  </section>`;
}

/** @param {{kind: string, onCancel: () => void}} given */
function Progress({ kind, onCancel }) {
  const [passed, setPassed] = useState(0);
  useEffect(() => {
    const begun = performance.now();
    const timer = setInterval(() => setPassed((performance.now() - begun) / 1_000), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  if (kind === "stacks") return html`<p class="soft" role="status">The process is asked for its stacks…</p>`;
  const words = passed < SECONDS ? `It is observed for ${SECONDS} s…` : "The process puts together what was seen…";
  return html`<div class="profile-progress"><p class="soft" role="status">${words}</p><progress max=${SECONDS} value=${Math.min(passed, SECONDS)} aria-label="How long it was observed"></progress>
    <button type="button" onClick=${onCancel}>Cancel</button></div>`;
}

/** What is to be known of the answer. @param {{processes: any[]}} given */
function Notes({ processes }) {
  return processes.filter((process) => process.note).map((process) => html`<p class="why">${processes.length > 1 ? `PID ${process.pid}: ` : ""}${process.note}</p>`);
}

/** @param {{kind: string, told: any}} given */
function Shown({ kind, told }) {
  if (told.total === 0) return html`<${Notes} processes=${told.processes} /><p class="soft">${KINDS[kind][1]}</p>`;
  return html`<p class="figures-line"><b>${amountOf(told.unit, told.total)}</b> · ${told.title}</p>
    <${Notes} processes=${told.processes} />
    <${Flame} told=${told} />
    <${Functions} told=${told} />
    <${Downloads} name=${`profile-${kind}-${told.processes[0]?.pid ?? "process"}`} taken=${told.taken} />`;
}

/** The same profile as files. @param {{name: string, taken: number}} given */
function Downloads({ name, taken }) {
  const [error, setError] = useState(/** @type {Refusal | null} */ (null));
  const save = async (/** @type {string} */ format, /** @type {string} */ end) => {
    setError(null);
    try {
      const address = URL.createObjectURL(await fetched(`profile${query({ taken, format })}`));
      Object.assign(document.createElement("a"), { href: address, download: `${name}.${end}` }).click();
      URL.revokeObjectURL(address);
    } catch (trouble) {
      setError(trouble instanceof Refusal ? trouble : new Refusal(String(trouble), 0));
    }
  };
  return html`<div class="acts downloads"><span class="soft">Download</span>${FILES.map(([format, word, end]) => html`<button type="button" onClick=${() => save(format, end)}>${word}</button>`)}</div><${Trouble} error=${error} />`;
}

/** Where threads are, the innermost call first. @param {{processes: any[]}} given */
function Stacks({ processes }) {
  const lines = processes.flatMap((process) => process.stacks).map((/** @type {any} */ stack) => {
    const calls = stack.frames.map((/** @type {any} */ one) => `  ${one.function} (${one.file}:${one.line})`);
    return [`${stack.is_task ? "Asyncio task" : "Thread"} ${stack.name}`, ...(calls.length > 0 ? calls : ["  no Python code"])].join("\n");
  });
  return html`<${Notes} processes=${processes} />
    ${lines.length > 0 && html`<pre class="log" tabindex="0" role="region" aria-label="Stacks">${lines.join("\n\n")}</pre>`}`;
}

/**
 * What the page asks of its server: the session's key, answers that are asked for again only when they changed, and the
 * stream of what changes. docs/formats/page.md has the contract.
 * @module
 */

import { answerOf, report } from "./report.js";

const KEPT = "oxiray-session";
const PATIENCE_MS = 30_000;
const ANSWERS_KEPT = 200;
/** How long the texts of all answers that are kept may be: pictures of large clusters are long. */
const TEXTS_KEPT = 16 << 20;

/** Why the server did not do what it was asked, in words for people. */
export class Refusal extends Error {
  /** @param {string} text @param {number} status 0 where nothing was heard at all */
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

/** The moment that is looked at, where the page shows a history; 0 for the last. */
let moment = 0;

/** @param {number} at in ms since 1970 */
export function lookAt(at) {
  moment = at;
}

/** @type {Map<string, {tag: string, answer: any, long: number}>} */
const answers = new Map();

/** @returns {string} the session's key; empty where there is none */
export function sessionKey() {
  if (report) return "report";
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} key */
export function keepSessionKey(key) {
  answers.clear();
  try {
    if (key) sessionStorage.setItem(KEPT, key);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // A browser that keeps nothing asks for the key again with the next page.
  }
}

/**
 * Trades the one-time key in the address for a session's key, and takes it out of the address.
 * @returns {Promise<void>}
 */
export async function enter() {
  const found = /^#key=([\w.~-]+)(&.*)?$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", `${location.pathname}#${(found[2] ?? "").slice(1)}`);
  const told = await fetch("ox/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${found[1]}` },
    body: "{}",
  });
  if (!told.ok) throw new Refusal("This link was used before, or is older than a minute. `oxiray dashboard` makes another.", told.status);
  keepSessionKey((await told.json()).key);
}

/** @param {Response} response @returns {Promise<Refusal>} */
async function refusal(response) {
  const text = (await response.text()).trim();
  let said = text;
  try {
    said = JSON.parse(text).error ?? text;
  } catch {
    // Not every answer is JSON: the door's are plain text.
  }
  return new Refusal(said.slice(0, 2000) || `The server answered ${response.status}.`, response.status);
}

/** @param {string} path @param {RequestInit} options */
async function ask(path, options) {
  const headers = new Headers(options.headers);
  headers.set("Authorization", `Bearer ${sessionKey()}`);
  try {
    return await fetch(`ox/v1/${path}`, { cache: "no-store", ...options, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal("The page's server does not answer. It may have ended, or be on its way back.", 0);
  }
}

/**
 * @param {string} path below ox/v1/
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  if (report) {
    const told = answerOf(path);
    if (told === undefined) throw new Refusal("This is a report: it has neither what jobs printed nor why something waited.", 404);
    return told;
  }
  if (moment) path += `${path.includes("?") ? "&" : "?"}at=${moment}`;
  const known = answers.get(path);
  const bound = AbortSignal.timeout(PATIENCE_MS);
  const response = await ask(path, {
    headers: known ? { "If-None-Match": known.tag } : {},
    signal: signal ? AbortSignal.any([signal, bound]) : bound,
  });
  if (response.status === 304 && known) return known.answer;
  if (!response.ok) throw await refusal(response);
  const text = await response.text();
  const answer = JSON.parse(text);
  const tag = response.headers.get("ETag");
  answers.delete(path);
  if (tag) answers.set(path, { tag, answer, long: text.length });
  let long = [...answers.values()].reduce((sum, one) => sum + one.long, 0);
  for (const [oldest, one] of answers) {
    if (answers.size <= ANSWERS_KEPT && long <= TEXTS_KEPT) break;
    answers.delete(oldest);
    long -= one.long;
  }
  return answer;
}

/**
 * An answer as a file.
 * @param {string} path below ox/v1/
 * @returns {Promise<Blob>}
 */
export async function fetched(path) {
  const response = await ask(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!response.ok) throw await refusal(response);
  return response.blob();
}

/**
 * Has something done.
 * @param {string} path below ox/v1/
 * @param {object} [body]
 * @returns {Promise<any>}
 */
export async function act(path, body = {}) {
  if (report) throw new Refusal("This is a report: nothing can be done from it.", 404);
  const response = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/**
 * @param {Record<string, string | number | undefined | null>} parameters
 * @returns {string} with the question mark; empty where there are none
 */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}

/**
 * Follows the stream of what changes, and comes back by itself: told are each line, and each time whether it is heard.
 * @param {(line: any) => void} onLine
 * @param {(error: Refusal | null) => void} onState
 * @returns {() => void} ends it
 */
export function follow(onLine, onState) {
  if (report) {
    const { until_ms: until, overview } = report;
    onState(null);
    onLine({ seq: 1, now_ms: until, until_ms: until, changed: [], overview });
    return () => {};
  }
  const ended = new AbortController();
  void (async () => {
    let sequence = 0;
    let pause = 500;
    while (!ended.signal.aborted) {
      try {
        const response = await ask(`live${query({ since: sequence || undefined })}`, { signal: ended.signal });
        if (!response.ok || !response.body) throw await refusal(response);
        onState(null);
        pause = 500;
        for await (const line of lines(response.body)) {
          sequence = line.seq ?? sequence;
          onLine(line);
        }
        throw new Refusal("The stream of changes ended; the page asks for it again.", 0);
      } catch (error) {
        if (ended.signal.aborted) return;
        const said = error instanceof Refusal ? error : new Refusal("The stream of changes broke off.", 0);
        onState(said);
        if (said.status === 401 || said.status === 403) return;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 5_000);
    }
  })();
  return () => ended.abort();
}

/** @param {ReadableStream<Uint8Array>} body */
async function* lines(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}

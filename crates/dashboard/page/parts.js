/**
 * The parts that views are put together of: heads, facts, badges, empty states, errors, the side sheet and confirmations.
 * @module
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { fieldOf, moment, utc } from "./format.js";
import { Refusal } from "./api.js";

/** Each state with the tone that it is shown in; its word is always there too. @type {Record<string, string>} */
const TONES = {
  ALIVE: "good", RUNNING: "busy", SUCCEEDED: "good", FINISHED: "good", CREATED: "good", free: "calm", held: "busy",
  PENDING: "waits", WAITING: "waits", STARTING: "waits", RESTARTING: "waits", RESCHEDULING: "waits", PREPARED: "waits",
  DRAINING: "waits", checking: "waits", FAILED: "bad", DEAD: "ended", STOPPED: "ended", REMOVED: "ended", quarantined: "bad",
  error: "bad", warning: "waits", info: "calm",
};

/** @param {{state: string, tone?: string}} given */
export function Badge({ state, tone }) {
  return html`<span class=${`badge ${tone ?? TONES[state] ?? (/^PENDING|WAIT/.test(state) ? "waits" : "calm")}`}>${state.replaceAll("_", " ")}</span>`;
}

/** @param {{at: number | null | undefined}} given */
export function Moment({ at }) {
  return at ? html`<time datetime=${new Date(at).toISOString()} title=${utc(at)}>${moment(at)}</time>` : "–";
}

/** @param {{title: string, count?: string | number | null, children?: any}} given */
export function Head({ title, count, children }) {
  return html`<header class="head">
    <h1 tabindex="-1">${title}${count !== undefined && count !== null && html`<span class="count">${count}</span>`}</h1>
    <div class="tools">${children}</div>
  </header>`;
}

/** @param {{title: string, children?: any}} given */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

/** @param {{error: Refusal | null, again?: () => void}} given */
export function Trouble({ error, again }) {
  if (!error) return null;
  return html`<div class="trouble" role="alert">
    <span>${error.message}</span>
    ${again && html`<button type="button" onClick=${again}>Try again</button>`}
  </div>`;
}

/** Names with what there is to say of them. @param {{rows: Array<[string, any]>}} given */
export function Facts({ rows }) {
  const told = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== "–");
  return html`<dl class="facts">${told.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A search field that waits for a pause in typing. @param {{value: string, onSearch: (text: string) => void, label: string}} given */
export function Search({ value, onSearch, label }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const onInput = (/** @type {any} */ event) => {
    setText(event.target.value);
    clearTimeout(timer.current);
    const wanted = event.target.value;
    timer.current = setTimeout(() => onSearch(wanted), 200);
  };
  return html`<input class="search" type="search" data-search aria-label=${label} placeholder=${`${label}  /`} value=${text}
    spellcheck=${false} autocomplete="off" onInput=${onInput} />`;
}

/** The last moment that a browser knows. */
const LAST_MS = 8.64e15;

/**
 * A moment that one may choose, to the second, in the reader's zone; none where the field is empty.
 * @param {{label: string, value: string | undefined, onChoose: (ms: number | null) => void}} given
 */
export function Time({ label, value, onChoose }) {
  const onChange = (/** @type {any} */ event) => {
    const wanted = event.target.value ? new Date(event.target.value).getTime() : null;
    if (wanted === null || Number.isFinite(wanted)) onChoose(wanted);
  };
  const at = Math.min(Number(value) || 0, LAST_MS);
  return html`<label class="choice"><span>${label}</span><input class="time" type="datetime-local" step="1" value=${fieldOf(at)} title=${utc(at)} onChange=${onChange} /></label>`;
}

/**
 * A choice of one of a few.
 * @param {{label: string, value: string, options: Array<[string, string]>, onChoose: (value: string) => void}} given
 */
export function Choice({ label, value, options, onChoose }) {
  return html`<label class="choice"><span>${label}</span>
    <select value=${value} onChange=${(/** @type {any} */ event) => onChoose(event.target.value)}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;
}

/**
 * The sheet beside what was picked. Escape closes it, and what was in focus before has the focus again.
 * @param {{title: any, kind?: string, onClose: () => void, children?: any}} given
 */
export function Sheet({ title, kind, onClose, children }) {
  const sheet = useRef(/** @type {HTMLElement | null} */ (null));
  const close = useRef(onClose);
  close.current = onClose;
  // Before it is seen: whoever sees it may press Escape.
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    sheet.current?.focus({ preventScroll: true });
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) close.current();
    };
    addEventListener("keydown", onKey);
    return () => {
      removeEventListener("keydown", onKey);
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  return html`<aside class="sheet" ref=${sheet} tabindex="-1" aria-label=${kind ?? "Details"}>
    <header>
      <div><p class="kind">${kind}</p><h2>${title}</h2></div>
      <button type="button" class="quiet" aria-label="Close" onClick=${onClose}>✕</button>
    </header>
    <div class="sheet-body">${children}</div>
  </aside>`;
}

/**
 * A button that asks once more before it acts, and says what came of it; `dismiss` is what the button says that does nothing.
 * @param {{label: string, question: string, detail?: string, dismiss?: string, act: () => Promise<any>, done?: () => void, disabled?: boolean, title?: string, children?: any}} given
 */
export function Confirmed({ label, question, detail, dismiss = "Keep it", act, done, disabled, title, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [state, setState] = useState({ busy: false, error: "" });
  const onSure = async () => {
    setState({ busy: true, error: "" });
    try {
      await act();
      dialog.current?.close();
      setState({ busy: false, error: "" });
      done?.();
    } catch (error) {
      setState({ busy: false, error: error instanceof Error ? error.message : String(error) });
    }
  };
  return html`<button type="button" class="risky" disabled=${disabled} title=${title} onClick=${() => dialog.current?.showModal()}>${label}</button>
    <dialog ref=${dialog} aria-label=${question} onClose=${() => setState({ busy: false, error: "" })}>
      <p class="question">${question}</p>
      ${detail && html`<p>${detail}</p>`}
      ${children}
      ${state.error && html`<p class="trouble" role="alert">${state.error}</p>`}
      <div class="answers">
        <button type="button" onClick=${() => dialog.current?.close()}>${dismiss}</button>
        <button type="button" class="risky filled" disabled=${state.busy} onClick=${onSure}>${state.busy ? "…" : label}</button>
      </div>
    </dialog>`;
}

/** An identifier: short, whole as the title, and copied with a click. @param {{id: string | null | undefined, href?: string}} given */
export function Id({ id, href }) {
  if (!id) return "–";
  const text = id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
  if (href) return html`<a class="id" href=${href} title=${id}>${text}</a>`;
  return html`<code class="id" title=${id}>${text}</code>`;
}

/** A bar of one or more parts of a whole. @param {{parts: Array<[number, string]>, whole: number, label: string}} given */
export function Meter({ parts, whole, label }) {
  let from = 0;
  const drawn = parts.map(([part, tone]) => {
    const wide = whole > 0 ? Math.max(0, Math.min(100 - from, (100 * part) / whole)) : 0;
    const piece = html`<rect class=${`meter-${tone}`} x=${from} y="0" width=${wide} height="6" />`;
    from += wide;
    return piece;
  });
  return html`<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="meter-rest" x="0" y="0" width="100" height="6" />${drawn}
  </svg>`;
}

/**
 * A table of rows that come page by page: columns, order, arrows between rows, Enter for what is picked.
 * @module
 */
import { html, useMemo, useRef, useState } from "./vendor/preact.js";
import { get, query, Refusal } from "./api.js";
import { useAnswer } from "./cluster.js";
import { Trouble } from "./parts.js";

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {(row: any) => any} show
 * @property {(row: any) => any} [order] what rows are put in order by; absent: the key's value
 * @property {boolean} [numeric]
 * @property {boolean} [grow] takes the width that is left
 * @property {boolean} [minor] left out where the page is narrow
 */

const AT_ONCE = 200;

/**
 * Rows of a kind: those of the first page follow what changes, further pages are asked for.
 * @param {string} kind
 * @param {Record<string, any>} given filters and search
 * @param {string[]} columns
 * @param {number} [pause]
 */
export function useRows(kind, given, columns, pause) {
  const asked = { ...given, columns: columns.join(), limit: AT_ONCE };
  const path = `rows/${kind}${query(asked)}`;
  const { answer, error, again } = useAnswer(path, [kind], pause);
  const [more, setMore] = useState({ path, rows: /** @type {any[]} */ ([]), next: /** @type {string | null | undefined} */ (undefined), error: /** @type {Refusal | null} */ (null) });
  const mine = more.path === path ? more : { path, rows: [], next: undefined, error: null };
  const next = mine.next === undefined ? answer?.next : mine.next;
  const onMore = async () => {
    try {
      const told = await get(`rows/${kind}${query({ ...asked, after: next })}`);
      setMore({ path, rows: [...mine.rows, ...told.rows], next: told.next ?? null, error: null });
    } catch (trouble) {
      setMore({ ...mine, error: trouble instanceof Refusal ? trouble : new Refusal(String(trouble), 0) });
    }
  };
  const rows = useMemo(() => {
    const first = answer?.rows ?? [];
    const known = new Set(first.map((/** @type {any} */ row) => row.key));
    return [...first, ...mine.rows.filter((row) => !known.has(row.key))];
  }, [answer, mine.rows]);
  return { rows, total: answer?.total ?? null, note: answer?.note ?? null, next, onMore, error: error ?? mine.error, again, ready: answer !== null };
}

/** @param {any} left @param {any} right */
function compare(left, right) {
  if (left === right) return 0;
  if (left === null || left === undefined) return 1;
  if (right === null || right === undefined) return -1;
  return typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right), undefined, { numeric: true });
}

/** @param {ReturnType<typeof useRows>} data @param {Column[]} columns */
function useOrder(data, columns) {
  const [order, setOrder] = useState({ key: "", down: false });
  const sorted = useMemo(() => {
    const column = columns.find(({ key }) => key === order.key);
    if (!column) return data.rows;
    const of = column.order ?? ((/** @type {any} */ row) => row[column.key]);
    const rows = [...data.rows].sort((left, right) => compare(of(left), of(right)));
    return order.down ? rows.reverse() : rows;
  }, [data.rows, order.key, order.down]);
  return { order, setOrder, sorted };
}

/**
 * @param {object} given
 * @param {string} given.label what the table is of, for who does not see it
 * @param {ReturnType<typeof useRows>} given.data
 * @param {Column[]} given.columns
 * @param {string} [given.picked] the key of the row that a sheet tells of
 * @param {(row: any) => void} [given.onPick]
 * @param {any} given.empty
 */
export function Table({ label, data, columns, picked, onPick, empty }) {
  const { order, setOrder, sorted } = useOrder(data, columns);
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  const [focus, setFocus] = useState(0);
  const at = Math.min(focus, Math.max(0, sorted.length - 1));
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -sorted.length, End: sorted.length }[event.key];
    if (step !== undefined) {
      const wanted = Math.max(0, Math.min(sorted.length - 1, at + step));
      setFocus(wanted);
      /** @type {HTMLElement | null} */ (body.current?.children[wanted] ?? null)?.focus();
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === " ") && event.target === body.current?.children[at]) {
      onPick?.(sorted[at]);
      event.preventDefault();
    }
  };
  if (!data.ready) return data.error ? html`<${Trouble} error=${data.error} again=${data.again} />` : html`<p class="soon" role="status">Asking…</p>`;
  const row = (/** @type {any} */ one, /** @type {number} */ number) => html`<tr
    key=${one.key} tabindex=${number === at ? 0 : -1} aria-current=${picked !== undefined && one.key === picked ? "true" : undefined}
    class=${onPick ? "pickable" : ""} onFocus=${() => setFocus(number)}
    onClick=${(/** @type {any} */ event) => event.target.closest("a, button, dialog") || onPick?.(one)}>
    ${columns.map((column) => html`<td class=${classes(column)}>${column.show(one)}</td>`)}
  </tr>`;
  return html`<${Trouble} error=${data.error} again=${data.again} />
    ${data.note && html`<p class="note">${data.note}</p>`}
    ${sorted.length === 0 ? empty : html`<div class="table-frame">
      <table aria-label=${label}>
        <thead><tr>${columns.map((column) => html`<${Title} column=${column} order=${order} setOrder=${setOrder} fixed=${Boolean(data.next)} />`)}</tr></thead>
        <tbody ref=${body} onKeyDown=${onKey}>${sorted.map(row)}</tbody>
      </table>
      ${data.next && html`<button type="button" class="more" onClick=${data.onMore}>Show more of ${data.total?.toLocaleString("en-US") ?? "them"}</button>`}
    </div>`}`;
}

/** @param {Column} column */
function classes(column) {
  return `${column.numeric ? "numeric " : ""}${column.grow ? "grow " : ""}${column.minor ? "minor" : ""}`;
}

/** @param {{column: Column, order: {key: string, down: boolean}, setOrder: (order: {key: string, down: boolean}) => void, fixed: boolean}} given */
function Title({ column, order, setOrder, fixed }) {
  const is = order.key === column.key;
  // Rows that are not here yet cannot be put in order with those that are.
  if (fixed) return html`<th scope="col" class=${classes(column)}>${column.title}</th>`;
  return html`<th scope="col" class=${classes(column)} aria-sort=${is ? (order.down ? "descending" : "ascending") : undefined}>
    <button type="button" class="order" onClick=${() => setOrder({ key: column.key, down: is && !order.down })}>
      ${column.title}<span aria-hidden="true">${is ? (order.down ? " ↓" : " ↑") : ""}</span>
    </button>
  </th>`;
}


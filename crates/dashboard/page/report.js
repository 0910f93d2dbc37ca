/**
 * A report: the page in one file, with all answers beside it. What a server would look up is looked up here.
 * @module
 */

/** @returns {any} what the document has of a report; null where it is none */
function embedded() {
  const block = document.getElementById("oxiray-report");
  return block ? JSON.parse(block.textContent ?? "null") : null;
}

/** The answers of this report; null where a server gives them. @type {any} */
export const report = embedded();

const USUAL = 200;
const WORDS = new Set(["columns", "limit", "after", "search", "key", "from", "to", "level", "at"]);
const LEVELS = ["info", "warning", "error"];

/** Whether one of a cell's texts has this in it. @param {any} cell @param {string} searched @returns {boolean} */
function has(cell, searched) {
  if (cell === null || cell === undefined || typeof cell === "boolean") return false;
  if (typeof cell === "object") return Object.entries(cell).some(([name, value]) => (!Array.isArray(cell) && name.toLowerCase().includes(searched)) || has(value, searched));
  return typeof cell === "number" ? String(cell) === searched : String(cell).toLowerCase().includes(searched);
}

/** @param {any[]} rows @param {URLSearchParams} asked */
function listed(rows, asked) {
  const equal = [...asked].filter(([name]) => !WORDS.has(name));
  const search = (asked.get("search") ?? "").toLowerCase();
  const least = LEVELS.indexOf(asked.get("level") ?? "");
  const [from, to] = [Number(asked.get("from") ?? 0), Number(asked.get("to") ?? Infinity)];
  const isMeant = (/** @type {any} */ row) =>
    (!asked.has("key") || row.key === asked.get("key")) &&
    equal.every(([name, value]) => String(row[name] ?? "") === value) &&
    (least < 0 || LEVELS.indexOf(row.level) >= least) &&
    (row.at_ms === undefined || (row.at_ms >= from && row.at_ms <= to)) &&
    (row.from_ms === undefined || (row.from_ms <= to && (row.to_ms ?? Infinity) >= from)) &&
    (!search || Object.values(row).some((cell) => has(cell, search)));
  const found = rows.filter(isMeant);
  const begin = Number(asked.get("after") ?? 0);
  const end = begin + Number(asked.get("limit") ?? USUAL);
  return { total: found.length, rows: found.slice(begin, end), next: end < found.length ? String(end) : null, note: null };
}

/** The picture of devices between two moments. @param {URLSearchParams} asked */
function holdings(asked) {
  const whole = report.holdings;
  const [from, to] = [Number(asked.get("from") ?? whole.from), Number(asked.get("to") ?? whole.to)];
  const isSeen = (/** @type {any} */ bar) => bar[0] <= to && (bar[1] ?? Infinity) >= from;
  const device = (/** @type {any} */ one) => ({ ...one, bars: one.bars.filter(isSeen) });
  const nodes = whole.nodes.map((/** @type {any} */ node) => ({ ...node, devices: node.devices.map(device) }));
  return { ...whole, from, to, nodes };
}

/**
 * What a server would answer.
 * @param {string} path below ox/v1/
 * @returns {any} nothing where a report has no answer
 */
export function answerOf(path) {
  const [name, parameters = ""] = path.split("?");
  const asked = new URLSearchParams(parameters);
  const list = /^rows\/(\w+)$/.exec(name)?.[1];
  if (list) return listed(report.rows[list] ?? [], asked);
  switch (name) {
    case "overview": return report.overview;
    case "holdings": return holdings(asked);
    case "map": return report.map;
    case "names/tasks": return report.names;
    case "names/jobs": return report.job_names;
    case "series": return asked.get("of") === "run" ? report.runs[asked.get("run") ?? ""] ?? { times: [], lines: [] } : asked.get("of") === "store" ? report.store : report.charts[asked.get("node") ?? ""] ?? { times: [], lines: [] };
    default: return undefined;
  }
}

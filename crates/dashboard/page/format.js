/**
 * Moments, spans, amounts and names as people read them. Times are in the reader's zone, with UTC as the title.
 * @module
 */

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const DAY_MS = 86_400_000;

/** @param {number} ms since 1970 */
export function clock(ms) {
  return CLOCK.format(ms);
}

/** @param {number} ms since 1970 */
export function day(ms) {
  return DAY.format(ms);
}

/** @param {number | null | undefined} ms since 1970 @param {number} [now] */
export function moment(ms, now = Date.now()) {
  if (!ms) return "–";
  return Math.abs(now - ms) < DAY_MS / 2 ? clock(ms) : `${day(ms)} ${clock(ms)}`;
}

/** @param {number | null | undefined} ms since 1970 */
export function utc(ms) {
  return ms ? new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC") : "";
}

/** A moment as a field for moments has it, in the reader's zone. @param {number} ms since 1970 */
export function fieldOf(ms) {
  return ms ? new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19) : "";
}

/** @param {number | null | undefined} ms */
export function span(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms) || ms < 0) return "–";
  if (ms < 1) return "<1 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number | null | undefined} bytes */
export function bytes(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let [value, unit] = [bytes, 0];
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** @param {number | null | undefined} value */
export function number(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US", { maximumFractionDigits: 4 });
}

/** @param {string} resource @param {number} value */
export function amount(resource, value) {
  return resource === "memory" || resource === "object_store_memory" ? bytes(value) : number(value);
}

/** @param {Record<string, number> | null | undefined} resources */
export function amounts(resources) {
  const shown = Object.entries(resources ?? {}).filter(([name, value]) => value && !name.startsWith("node:"));
  return shown.length ? shown.map(([name, value]) => `${amount(name, value)} ${name}`).join(", ") : "–";
}

/** @param {string | null | undefined} id */
export function short(id) {
  return id ? id.slice(0, 8) : "–";
}

/** @param {string} text */
function hash(text) {
  let value = 2166136261;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  value ^= value >>> 15;
  value = Math.imul(value, 2246822507);
  return (value ^ (value >>> 13)) >>> 0;
}

const MIXED_MAX = 5_000;
/** @type {Map<string, {fill: string, edge: string, ink: string}>} */
const mixed = new Map();
const HUES = [195, 245, 290, 150, 75, 335, 110, 220, 265, 175, 50, 310];

/**
 * The colours of a name, the same everywhere: of a bar, and of the words on it.
 * @param {string} name @param {boolean} dark
 */
export function colours(name, dark) {
  const key = `${dark ? 1 : 0}${name}`;
  const known = mixed.get(key);
  if (known) return known;
  if (mixed.size >= MIXED_MAX) mixed.clear();
  const made = mix(name, dark);
  mixed.set(key, made);
  return made;
}

/** @param {string} name @param {boolean} dark */
function mix(name, dark) {
  const value = hash(name);
  const hue = HUES[value % HUES.length];
  const step = (value >>> 8) % 2;
  if (dark) return { fill: `oklch(${step ? 0.46 : 0.54} 0.085 ${hue})`, edge: `oklch(0.72 0.09 ${hue})`, ink: "#ffffff" };
  return { fill: `oklch(${step ? 0.8 : 0.87} ${step ? 0.085 : 0.065} ${hue})`, edge: `oklch(0.58 0.1 ${hue})`, ink: "#14181d" };
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

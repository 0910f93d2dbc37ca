/**
 * The place within the page: `#/view?name=value`, so that each is a link.
 * @module
 */
import { useEffect, useState } from "./vendor/preact.js";

/** @typedef {{view: string, given: Record<string, string>}} Place */

const FIRST = "devices";

/** @param {string} [hash] @returns {Place} */
export function read(hash = location.hash) {
  const [path, parameters = ""] = hash.replace(/^#\/?/, "").split("?");
  return { view: decodeURIComponent(path) || FIRST, given: Object.fromEntries(new URLSearchParams(parameters)) };
}

/** @param {string} view @param {Record<string, string | number | undefined | null>} [given] */
export function link(view, given = {}) {
  const kept = Object.entries(given).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${text && `?${text}`}`;
}

/** @param {string} hash */
export function go(hash) {
  location.hash = hash.slice(1);
}

/**
 * Changes what is given to the view that is open, without a step in the history unless asked for.
 * @param {Record<string, string | number | undefined | null>} changed
 * @param {boolean} [asStep]
 */
export function change(changed, asStep = false) {
  const { view, given } = read();
  const hash = link(view, { ...given, ...changed });
  if (hash === location.hash) return;
  if (asStep) location.hash = hash.slice(1);
  else {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

/** @returns {Place} */
export function usePlace() {
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const onChange = () => setPlace(read());
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return place;
}

/**
 * Keys that work everywhere but where one types.
 * @module
 */
import { useEffect, useRef } from "./vendor/preact.js";
import { go, link } from "./place.js";
import { setTheme } from "./cluster.js";

export const KEYS = [
  ["/", "Search in this view"], ["?", "These keys"], ["Esc", "Close what lies beside the view"], ["↑ ↓", "Between rows, and rows of the timeline"],
  ["← →", "Between bars of the timeline"], ["⇧ ← →", "Earlier, later"], ["+ −", "Zoom"], ["f", "Follow now"], ["Enter", "More of what is in focus"], ["t", "Light or dark"],
];

const PATIENCE_MS = 1_200;

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

/** Whether a key is meant for what one does elsewhere: typing, answering a question, the browser. @param {KeyboardEvent} event */
function isElsewhere(event) {
  return event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]") !== null;
}

/** A key of one view, which works wherever the focus is while the view is there. @param {string} key @param {() => void} act */
export function useKey(key, act) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== key || isElsewhere(event) || event.defaultPrevented) return;
      latest.current();
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [key]);
}

/** @param {Array<[string, string]>} places the letter after `g`, and the view @param {() => void} onHelp */
export function useKeys(places, onHelp) {
  useEffect(() => {
    let asked = 0;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (isElsewhere(event)) return;
      const going = Date.now() - asked < PATIENCE_MS;
      asked = 0;
      const place = going && places.find(([letter]) => letter === event.key);
      if (place) go(link(place[1]));
      else if (event.key === "g") asked = Date.now();
      else if (event.key === "?") onHelp();
      else if (event.key === "/") /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"))?.focus();
      else if (event.key === "t") setTheme(document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches) ? "light" : "dark");
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/**
 * The devices of a node, small.
 * @module
 */
import { html } from "../vendor/preact.js";

/** A cell for each device, filled as it is held. @param {{devices: any[]}} given */
export function Cells({ devices }) {
  if (!devices?.length) return "–";
  return html`<span class="cells" role="img" aria-label=${`${devices.length} devices: ${devices.map((one) => one.state).join(", ")}`}>${devices.slice(0, 32).map((one) => html`<svg class="cell" viewBox="0 0 10 14" aria-hidden="true">
    <title>${`${one.label}: ${one.state}${one.reason ? `, ${one.reason}` : ""}`}</title>
    <rect class=${`cell-back ${one.state}`} x="0.5" y="0.5" width="9" height="13" /><rect class="cell-held" x="1" y=${13 - 12 * Math.min(1, one.held)} width="8" height=${12 * Math.min(1, one.held)} />
  </svg>`)}</span>`;
}

/**
 * Why something waits, node by node, and what the autoscaler says.
 * @module
 */
import { html } from "../vendor/preact.js";
import { link } from "../place.js";
import { amounts, span } from "../format.js";

/** @param {{told: any}} given */
export function Verdicts({ told }) {
  const nodes = told.nodes ?? [];
  return html`<section class="verdicts">
    <h3>What each node says</h3>
    ${told.reason && html`<p class="why">${told.reason}</p>`}
    ${told.never && html`<p class="trouble">${told.never}</p>`}
    ${nodes.length > 0 ? html`<ul>${nodes.map((/** @type {any} */ node) => html`<li class=${node.rule ? "" : "room"}>
      <span>${node.node_id ? html`<a href=${link("nodes", { pick: `node:${node.node_id}` })}>${node.address || node.node_id.slice(0, 8)}</a>` : "no node"}${node.bundle !== undefined && node.bundle !== null ? `, bundle ${node.bundle}` : ""}</span>
      <span class="rule">${node.rule ?? "has room"}</span><span>${node.why}</span>
    </li>`)}</ul>` : html`<p class="soon">No node has been asked.</p>`}
    ${told.waited_s !== undefined && told.waited_s !== null && html`<p class="soon">It has waited ${span(told.waited_s * 1_000)}.</p>`}
  </section>`;
}

/** @param {{told: any}} given */
export function Autoscaler({ told }) {
  const isThere = told && !told.absence;
  const replicas = told?.record?.replicas ?? [];
  return html`<section class="panel"><h2>Autoscaler</h2>
    ${!isThere && html`<p class="soon">${told?.absence || "None is connected: the cluster has the nodes that somebody starts."}</p>`}
    ${told?.trouble && html`<p class="trouble">${told.trouble}</p>`}
    ${(told?.groups ?? []).length > 0 && html`<ul class="lines">${told.groups.map((/** @type {any} */ group) => html`<li><b>${group.name}</b> ${groupText(group)}</li>`)}</ul>`}
    ${replicas.length > 0 && html`<h3>Replicas</h3><ul class="lines">${replicas.slice(0, 50).map((/** @type {any} */ one) => html`<li><b>${one.name}</b> ${one.group}: ${one.state}${one.idle_s ? `, idle for ${span(one.idle_s * 1_000)}` : ""}</li>`)}</ul>`}
    ${(told?.unmet ?? []).length > 0 && html`<h3>Served by no group</h3><ul class="lines">${told.unmet.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul>`}
  </section>`;
}

/** @param {any} group */
function groupText(group) {
  const counts = Object.entries(group.counts ?? {}).filter(([, many]) => many).map(([state, many]) => `${many} ${state}`).join(", ");
  return [counts || "no replica", group.limits && `${group.limits.min} to ${group.limits.max} allowed`, group.hosts > 1 && `${group.hosts} machines each`, amounts(group.resources), group.set_aside].filter(Boolean).join("; ");
}

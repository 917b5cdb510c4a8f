/** Names, colours and reasons of requests, the same in all views. */

import { h } from "../base/dom.js";
import { hasText, t, visible } from "../base/text.js";
import { phases } from "./replay.js";
import { selected, select } from "./selection.js";

const COLOURS = 8;

/**
 * Return the class that gives a request its colour. There are eight; where colour matters, the name stands beside it.
 * @param {number} r
 */
export function colour(r) {
  return `r${r % COLOURS}`;
}

/**
 * Return a request's short name: its id without random digits, or without its middle if it is long.
 * @param {import("./data.js").Request} request
 */
export function shortName(request) {
  return visible(request.name ?? request.id);
}

/**
 * Return a request's name for a cell of a few characters: without what the names of all requests begin with.
 * @param {import("./data.js").Request} request
 */
export function tinyName(request) {
  return (request.tiny ?? shortName(request)).replace(/-0$/, "");
}

/**
 * Return a button that shows a request and selects it.
 * @param {import("./data.js").Run} run
 * @param {number} r
 * @param {string} [detail] more in the button
 */
export function requestButton(run, r, detail = "") {
  return h(
    "button",
    {
      class: `request-chip ${colour(r)}`,
      type: "button",
      title: t("page.request", { id: visible(run.requests[r].id) }),
      "aria-pressed": String(selected(run).request === r),
      "data-request": r,
      onclick: () => select(run, { request: selected(run).request === r ? null : r }),
    },
    h("strong", {}, shortName(run.requests[r])),
    detail && ` ${detail}`,
  );
}

/**
 * Return why a request was not scheduled or got fewer tokens than it needed, as a sentence.
 * @param {string} code
 * @param {string} details `name=value name=value`
 * @param {string} id the request's
 */
export function heldReason(code, details, id) {
  /** @type {Record<string, any>} */
  const values = {};
  for (const [, name, value] of details.matchAll(/(\w+)=(\S+)/g)) values[name] = visible(value);
  if (/^\d+$/.test(values.running ?? "")) values.running = Number(values.running);
  if (hasText(`held.cause.${values.cause}`)) values.cause = t(`held.cause.${values.cause}`);
  const key = code === "preempted" && values.by === id ? "held.preempted_itself" : `held.${code}`;
  return hasText(key) ? t(key, values) : visible(details ? `${code} (${details})` : code);
}

/** @param {string} code */
export function finishReason(code) {
  return hasText(`finish.${code}`) ? t(`finish.${code}`) : visible(code);
}

/**
 * Return the tokens that a step computes for a request, and those found in the prefix cache.
 * @param {import("./data.js").Scheduled} row
 * @param {number} blockSize
 */
export function computedTokens([, tokens, computed, , hit], blockSize) {
  const range = t(tokens === 1 ? "page.token.at" : "page.tokens.at", { n: tokens, from: computed, to: computed + tokens - 1 });
  return hit ? `${range} · ${t("page.hit", { n: hit, blocks: Math.floor(hit / (blockSize || hit)) })}` : range;
}

/**
 * Return how many tokens of its budget a step uses, prefill and decode apart.
 * @param {import("./data.js").Step} step
 */
export function tokenSum(step) {
  const [prefill, decode] = phases(step);
  return t("page.budget.sum", { used: prefill + decode, budget: step.budget ?? 0, prefill, decode });
}

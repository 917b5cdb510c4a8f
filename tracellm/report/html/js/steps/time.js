/** Panel of a step's time: its parts as a bar, the usual parts of a step of its kind, and a link to its calls. */

import { h } from "../base/dom.js";
import { duration } from "../base/quantities.js";
import { t } from "../base/text.js";
import { hasCalls, readCalls } from "../calls/calls.js";
import { select, selected } from "../run/selection.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */

/** Number of steps of a kind from which on a usual one is shown. */
const LEAST_STEPS = 3;

/**
 * Return where the step's time went.
 * @param {Run} run
 * @param {Step} step
 * @param {number} whole its time in microseconds
 */
export function timePanel(run, step, whole) {
  const parts = stepParts(step, whole);
  const written = parts.map(([part, us]) => `${t(`page.part.${part}`)} ${duration(us)}`);
  const usual = usualParts(run.engines[selected(run).engine].steps, step.kind);
  return h(
    "section",
    { class: "panel wide", "data-shows": "time" },
    h("h4", {}, t("page.time"), " ", h("small", {}, t("page.time.lead", { time: duration(whole) }))),
    h(
      "div",
      { class: "budget time-bar", role: "img", "aria-label": written.join(", ") },
      ...parts.map(([part, us], i) => h("i", { class: `part ${part}`, style: { width: `${(100 * us) / Math.max(1, whole)}%` }, title: written[i] })),
    ),
    h("ul", { class: "legend" }, ...parts.map(([part], i) => h("li", {}, h("i", { class: `part ${part}` }), written[i]))),
    usual && h("p", { class: "empty usual" }, usual),
    step.outputs !== undefined && h("p", { class: "empty" }, t("page.time.outputs", { time: duration(step.outputs) })),
    hasCalls() && h("p", {}, h("button", { type: "button", class: "link", onclick: () => showCalls(run) }, t("page.time.calls"))),
  );
}

/**
 * Return the parts of a step's time in microseconds: the recorded ones, what is left, and the recording itself.
 * @param {Step} step
 * @param {number} whole
 */
function stepParts(step, whole) {
  const recorded = Object.entries(step.parts ?? {});
  const recording = step.recording ?? 0;
  const known = recorded.reduce((sum, [, us]) => sum + us, recording);
  /** @type {[string, number][]} */
  const parts = [...recorded, ["other", Math.max(0, whole - known)], ["recording", recording]];
  return parts.filter(([, us]) => us > 0);
}

/** @type {WeakMap<Step[], Map<string, string>>} */
const usualOf = new WeakMap();

/**
 * Return the median of each part of the steps of a kind, as a sentence; empty if there are only a few.
 * @param {Step[]} steps
 * @param {string} kind
 */
export function usualParts(steps, kind) {
  const known = usualOf.get(steps) ?? new Map();
  usualOf.set(steps, known);
  const key = `${kind} ${t("step.comma")}`;
  if (!known.has(key)) known.set(key, describeUsual(steps, kind));
  return known.get(key);
}

/**
 * @param {Step[]} steps
 * @param {string} kind
 */
function describeUsual(steps, kind) {
  const alike = steps.filter((step) => step.kind === kind && step.us !== undefined);
  if (alike.length < LEAST_STEPS) return "";
  const all = alike.map((step) => new Map(stepParts(step, step.us ?? 0)));
  const names = new Set(all.flatMap((parts) => [...parts.keys()]));
  const medians = [...names].map((part) => `${t(`page.part.${part}`)} ${duration(median(all.map((parts) => parts.get(part) ?? 0)))}`);
  const values = { n: alike.length, kind: t(`step.kind.${kind}`), time: duration(median(alike.map(({ us }) => us ?? 0))) };
  const sentence = t("page.time.usual", { ...values, parts: medians.join(t("step.comma")) });
  const outputs = alike.flatMap((step) => step.outputs ?? []);
  return outputs.length ? `${sentence} ${t("page.time.usual.outputs", { time: duration(median(outputs)) })}` : sentence;
}

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Select the selected step's call, and show it in the call tree.
 * @param {Run} run
 */
async function showCalls(run) {
  const calls = await readCalls();
  const { engine, step } = selected(run);
  select(run, { call: calls.stepCall(engine, step), step });
  document.getElementById("calls")?.scrollIntoView();
}

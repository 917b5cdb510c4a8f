/** The panel of the selected call: its times, arguments, result, callers and other attributes, with its source below. */

import { h, replaceKeepingFocus } from "../base/dom.js";
import { duration, number } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { requestButton } from "../run/names.js";
import { select } from "../run/selection.js";
import { sourceView } from "../source/source.js";
import { selectedCall } from "./calls.js";
import { callLink, callName, threadName } from "./words.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("../run/data.js").Run} Run */

const MOST_CALLERS = 30;

/** Attributes with a place of their own in the panel or in the source below it. */
const SHOWN = new Set([
  "tracellm.arguments", "tracellm.result", "exception.stacktrace",
  "tracellm.caller.file", "tracellm.caller.line", "tracellm.caller.text",
  "code.function.name", "code.file.path", "code.line.number", "tracellm.lifeline", "tracellm.call.also",
]);

/**
 * Return the panel of the selected call, its source, and a function that brings both up to date.
 * @param {Run} run
 * @param {Calls} calls
 */
export function callPanel(run, calls) {
  const element = h("div", { class: "call-panel", role: "region", "aria-label": t("calls.panel") });
  const source = h("div", { class: "call-source" });
  /** @type {number | null | undefined} */
  let shown;
  const update = () => {
    const call = selectedCall(run, calls);
    if (call === shown) return;
    shown = call;
    replaceKeepingFocus(element, call === null ? [h("p", { class: "empty" }, t("calls.panel.none"))] : callFacts(run, calls, call));
    source.replaceChildren(...(call === null ? [] : [sourceView(run, calls.names[calls.name[call]], calls.attributes(call))]));
  };
  update();
  return { element, source, update };
}

/**
 * @param {Run} run
 * @param {Calls} calls
 * @param {number} i
 */
function callFacts(run, calls, i) {
  const attributes = calls.attributes(i);
  const passed = attributes["tracellm.arguments"];
  const result = attributes["tracellm.result"];
  const others = Object.entries(attributes).filter(([name]) => !SHOWN.has(name));
  return [
    h(
      "h3",
      { class: calls.failed(i) ? "failed" : "" },
      callName(calls, i),
      " ",
      h("span", { class: "tag" }, calls.isRequest(i) ? t("calls.request") : t(`calls.level.${calls.level(i)}`)),
    ),
    callTimes(run, calls, i, attributes["tracellm.call.also"]),
    calls.attributesLeftOut(i) && h("p", { class: "callout" }, t("calls.left_out", { n: calls.leftOut })),
    ...(Array.isArray(passed) && passed.length ? [h("h4", {}, t("calls.arguments")), nameTable(passed.map(argument))] : []),
    ...(result === undefined ? [] : [h("h4", {}, t("calls.result")), h("pre", { class: "call-value" }, visible(String(result)))]),
    ...failure(calls, i, attributes),
    callers(run, calls, i),
    ...(others.length ? [h("h4", {}, t("calls.attributes")), nameTable(others)] : []),
  ].filter((child) => child instanceof Node);
}

/**
 * @param {Run} run
 * @param {Calls} calls
 * @param {number} i
 * @param {any} also another name of the call's method
 */
function callTimes(run, calls, i, also) {
  const step = calls.step(i);
  const request = calls.request(i);
  const shown = step && run.engines[step.engine]?.steps[step.step];
  /** @type {[string, Node | string | false | null][]} */
  const facts = [
    ["also", also !== undefined && visible(String(also))],
    ["number", number(i)],
    ["where", threadName(calls.threads[calls.thread[i]])],
    ["start", duration(calls.start[i])],
    ["total", duration(calls.us[i])],
    ["own", !calls.isRequest(i) && duration(calls.own(i))],
    ["recording", calls.recording[i] > 0 && duration(calls.recording[i])],
    [
      "step",
      shown && h("button", { class: "link", type: "button", onclick: () => showStep(run, step) }, t("page.step", { n: shown.n })),
    ],
    ["request", request !== null && run.requests[request] !== undefined && requestButton(run, request)],
  ];
  return h(
    "dl",
    { class: "call-facts" },
    ...facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, t(`calls.${name}`)), h("dd", {}, value))),
  );
}

/**
 * @param {Run} run
 * @param {{engine: number, step: number}} step
 */
function showStep(run, step) {
  select(run, step);
  document.getElementById("replay")?.scrollIntoView();
}

/**
 * @param {Run} run
 * @param {Calls} calls
 * @param {number} i
 */
function callers(run, calls, i) {
  /** @type {number[]} */
  const path = [];
  for (let at = calls.parent[i]; at >= 0; at = calls.parent[at]) path.unshift(at);
  if (!path.length) return null;
  return h(
    "nav",
    { class: "callers", "aria-label": t("calls.callers") },
    h("h4", {}, t("calls.callers")),
    h("ol", {}, path.length > MOST_CALLERS && h("li", {}, "…"), ...path.slice(-MOST_CALLERS).map((at) => h("li", {}, callLink(run, calls, at)))),
  );
}

/**
 * @param {Calls} calls
 * @param {number} i
 * @param {Record<string, any>} attributes
 */
function failure(calls, i, attributes) {
  if (!calls.failed(i)) return [];
  const stack = attributes["exception.stacktrace"];
  return [
    h("h4", {}, t("calls.error")),
    h("pre", { class: "call-value failed" }, visible(calls.error(i))),
    stack && h("pre", { class: "call-value" }, visible(String(stack))),
  ];
}

/**
 * Return name and value of an argument that is written `name=value`.
 * @param {string} text
 * @returns {[string, any]}
 */
function argument(text) {
  const at = String(text).indexOf("=");
  return at < 0 ? ["", text] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {[string, any][]} rows */
function nameTable(rows) {
  return h(
    "table",
    { class: "call-table" },
    h("tbody", {}, ...rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, visible(name)), h("td", {}, visible(written(name, value)))))),
  );
}

/**
 * @param {string} name
 * @param {any} value
 */
function written(name, value) {
  if (Number.isInteger(value) && !name.endsWith(".number")) return number(value);
  return Array.isArray(value) ? value.join("\n") : String(value);
}

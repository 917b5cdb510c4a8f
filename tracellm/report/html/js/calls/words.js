/** Names of calls and threads as text, and bars of their times, for the tree, the timeline and the panel of a call. */

import { h } from "../base/dom.js";
import { t, visible } from "../base/text.js";
import { select } from "../run/selection.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("../run/data.js").Run} Run */

const MOST_DETAIL = 160;

/**
 * Return a call's name, with a mark if it did not end.
 * @param {Calls} calls
 * @param {number} i
 */
export function callName(calls, i) {
  const name = visible(calls.names[calls.name[i]]);
  return calls.open(i) ? t("calls.open", { name }) : name;
}

/**
 * Return a thread's process and name.
 * @param {import("./calls.js").Thread} thread
 */
export function threadName({ process, pid, thread }) {
  return t("calls.thread", { process: visible(process) || "?", pid, thread: visible(thread) || "MainThread" });
}

/**
 * Return where a call runs that is not in the thread of its caller: `[process EngineCore_0]`.
 * @param {Calls} calls
 * @param {number} i
 */
export function movedTo(calls, i) {
  const { process, pid, thread } = calls.threads[calls.thread[i]];
  const caller = calls.parent[i] < 0 ? null : calls.threads[calls.thread[calls.parent[i]]];
  if (caller ? caller.pid !== pid || caller.process !== process : processes(calls) > 1) {
    return t("calls.in_process", { name: visible(process) || String(pid) });
  }
  if (caller ? caller.thread === thread : !thread) return "";
  return t("calls.in_thread", { name: visible(thread) || "MainThread" });
}

/** @param {Calls} calls */
function processes(calls) {
  return new Set(calls.threads.map(({ process, pid }) => `${pid} ${process}`)).size;
}

/**
 * Return the user's line that made a call, arguments and result or exception, in one line.
 * @param {Calls} calls
 * @param {number} i
 */
export function callDetail(calls, i) {
  const attributes = calls.attributes(i);
  const line = callerLine(attributes);
  const passed = attributes["tracellm.arguments"];
  const result = attributes["tracellm.result"];
  const parts = [
    line,
    Array.isArray(passed) && passed.length ? `(${passed.join(", ")})` : "",
    calls.error(i) ? `✗ ${calls.error(i)}` : result !== undefined && result !== "None" ? `→ ${result}` : "",
  ];
  const text = visible(parts.filter(Boolean).join(" ").replaceAll("\n", " "));
  return text.length > MOST_DETAIL ? `${text.slice(0, MOST_DETAIL - 1)}…` : text;
}

/**
 * Return the user's line that made a call: `hello.py:12  outputs = llm.generate(prompts)`; empty if it is no user's.
 * @param {Record<string, any>} attributes
 */
function callerLine(attributes) {
  const file = attributes["tracellm.caller.file"];
  if (file === undefined) return "";
  const line = `${String(file).split(/[\\/]/).at(-1)}:${attributes["tracellm.caller.line"] ?? "?"}`;
  return `${line}  ${String(attributes["tracellm.caller.text"] ?? "").trim()}`.trim();
}

/**
 * Return a button that selects a call.
 * @param {Run} run
 * @param {Calls} calls
 * @param {number} i
 */
export function callLink(run, calls, i) {
  return h("button", { class: "link call-link", type: "button", "data-call": i, onclick: () => select(run, { call: i }) }, callName(calls, i));
}

/**
 * Return a bar of a time and the part of it that is own.
 * @param {{total: number, own: number}} times
 * @param {number} whole the time of a bar of full width
 */
export function timeBar({ total, own }, whole) {
  const width = (/** @type {number} */ part) => `${whole > 0 ? Math.min(100, Math.round((1000 * part) / whole) / 10) : 0}%`;
  const outer = h("i", { style: { width: width(total) } });
  return h("span", { class: "bar", "aria-hidden": "true" }, outer, h("i", { class: "inner", style: { width: width(own) } }));
}

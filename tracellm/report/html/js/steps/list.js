/** All steps as a list: only the rows in sight are elements, so a run may have any number of steps. */

import { h } from "../base/dom.js";
import { duration, number } from "../base/quantities.js";
import { t, tokenText } from "../base/text.js";
import { heldReason, shortName, tokenSum } from "../run/names.js";
import { select, selected } from "../run/selection.js";
import { changeSentences } from "./steps.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */

const MOST_NAMES = 8;
const MOST_TEXTS = 12;

/**
 * Return the list of the selected engine's steps, and a function that brings it up to date; it may show other steps.
 * @param {Run} run
 * @returns {{element: HTMLElement, update: (run?: Run) => void}}
 */
export function stepList(run) {
  const rows = h("div", { class: "step-rows", role: "rowgroup" });
  const frame = h(
    "div",
    { class: "step-list", role: "table", "aria-label": t("page.list"), tabindex: "0", onscroll: () => fillRows() },
    h(
      "div",
      { class: "step-row head", role: "row" },
      ...["step", "tokens", "running", "waiting", "blocks", "time", "changes", "sampled"].map((column) =>
        h("span", { role: "columnheader", class: `at-${column}` }, t(`page.list.${column}`)),
      ),
    ),
    rows,
  );
  let shown = run;
  /** Return the height of a row in pixels, which depends on the width of the window. */
  const rowHeight = () => parseFloat(getComputedStyle(frame).getPropertyValue("--row-height"));
  const fillRows = () => {
    const { steps } = shown.engines[selected(run).engine];
    const first = Math.max(0, Math.floor(frame.scrollTop / rowHeight()) - 5);
    const last = Math.min(steps.length, first + Math.ceil((frame.clientHeight || 400) / rowHeight()) + 10);
    rows.replaceChildren(...steps.slice(first, last).map((step, i) => stepRow(run, step, first + i)));
  };
  /** @param {Run} [changed] */
  const update = (changed = run) => {
    shown = changed;
    rows.style.setProperty("--count", String(shown.engines[selected(run).engine].steps.length));
    const top = selected(run).step * rowHeight();
    const height = frame.clientHeight - rows.offsetTop;
    if (top < frame.scrollTop || top + rowHeight() > frame.scrollTop + height) {
      frame.scrollTop = Math.max(0, top - height / 2);
    }
    fillRows();
  };
  return { element: frame, update };
}

/**
 * @param {Run} run
 * @param {Step} step
 * @param {number} index
 */
function stepRow(run, step, index) {
  const used = (step.total ?? 0) - step.free;
  const waiting = (step.waiting?.length ?? 0) + (step.moreWaiting ?? 0);
  const held = step.held?.find(([r]) => step.waiting?.includes(r));
  const why = held ? heldReason(held[1], held[2], run.requests[held[0]].id) : "";
  const texts = (step.sampled ?? []).map(([, token]) => tokenText(run.tokens[token]));
  /** @param {string} column @param {...(Node | string)} content */
  const cell = (column, ...content) =>
    h("span", { role: "cell", class: `at-${column}`, "data-label": column === "step" ? null : t(`page.list.${column}`) }, ...content);
  const known = step.kind !== "unknown";
  return h(
    "div",
    {
      class: `step-row${index === selected(run).step ? " chosen" : ""}`,
      role: "row",
      "aria-selected": String(index === selected(run).step),
      style: { "--index": index },
      onclick: () => select(run, { step: index }),
    },
    cell("step", h("strong", {}, number(step.n)), " ", h("span", { class: `tag ${step.kind}` }, t(`step.kind.${step.kind}`))),
    cell("tokens", known ? tokenSum(step) : "?"),
    cell("running", step.running?.length ? `${step.running.length}: ${nameList(run, step.running)}` : "0"),
    cell("waiting", String(waiting), why ? h("small", { title: why }, ` · ${why}`) : ""),
    cell("blocks", known ? `${number(used)} / ${number(step.total ?? 0)}` : "?"),
    cell("time", step.us === undefined ? "" : duration(step.us), step.recording ? h("small", {}, ` ${t("page.list.recording", { time: duration(step.recording) })}`) : ""),
    cell("changes", changeSentences(run, step).join(" ")),
    cell("sampled", texts.slice(0, MOST_TEXTS).join("  ") + (texts.length > MOST_TEXTS ? " …" : "")),
  );
}

/**
 * @param {Run} run
 * @param {number[]} rows
 */
function nameList(run, rows) {
  const names = rows.slice(0, MOST_NAMES).map((r) => shortName(run.requests[r]));
  return names.join(t("step.comma")) + (rows.length > MOST_NAMES ? " …" : "");
}

/** Inside the model: layers, attention and kernels of the selected step, with shapes, bytes, FLOPs and times. */

import { h, replaceKeepingFocus, watchNear, withCode } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { hasCalls, readCalls } from "../calls/calls.js";
import { selected } from "../run/selection.js";
import { attentionPanel } from "./attention.js";
import { kernelTable, sumKernels } from "./kernels.js";
import { layersPanels } from "./layers.js";
import { modelForward, onCpu, stepBatch } from "./model.js";
import { fastestSeen, stepTimes } from "./times.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/replay.js").Replay} Replay */
/** @typedef {import("../calls/calls.js").Calls} Calls */

/**
 * @typedef {object} ModelChoice what is open in the section
 * @property {number | null} layer shown in full
 * @property {Set<string>} opened groups of layers that are open, by their numbers
 * @property {boolean} wholeRun whether kernels are those of the whole run
 * @property {Program | null} program of paged attention that was clicked last; shown while its request is selected
 *
 * @typedef {{grid: number, place: number, head: number}} Program numbers of a grid, of a row in it, and of a KV head
 */

/** @type {ModelChoice} */
const modelChoice = { layer: null, opened: new Set(), wholeRun: false, program: null };

/**
 * Return the section, and a function that brings it up to date. It is drawn, and the calls are read, when it comes near
 * the window.
 * @param {Run} run
 * @param {() => {run: Run, replay: Replay}} view what may be shown
 */
export function modelView(run, view) {
  const element = h("div", {});
  /** @type {Calls | null} */
  let calls = null;
  let near = false;
  let stale = true;
  const draw = () => {
    if (!near || !stale) return;
    stale = false;
    const shown = view();
    replaceKeepingFocus(element, modelPanels(shown.run, shown.replay, calls, update));
  };
  const update = () => {
    stale = true;
    draw();
  };
  watchNear(element, (isNear) => {
    near = isNear;
    if (near && !calls && hasCalls()) {
      readCalls().then((found) => {
        calls = found;
        update();
      });
    }
    draw();
  });
  return { element, update };
}

/**
 * Return all panels about the selected step.
 * @param {Run} run
 * @param {Replay} replay
 * @param {Calls | null} calls
 * @param {() => void} update
 * @returns {Node[]}
 */
function modelPanels(run, replay, calls, update) {
  const { engine, step: index } = selected(run);
  const state = replay.at(index);
  const batch = stepBatch(state.step);
  const recorded = replay.engine.model;
  const model = recorded?.weights ? /** @type {import("./model.js").Model} */ (recorded) : null;
  const forward = model ? modelForward(model, batch) : NO_FORWARD;
  const times = calls ? stepTimes(calls, calls.stepCall(engine, index), forward) : null;
  const limit = model ? machineLimit(run, replay, calls, model) : null;
  const title = h(
    "h3",
    {},
    t("page.step", { n: state.step.n }),
    " ",
    h("small", {}, t("model.batch", { tokens: batch.tokens, requests: batch.requests.length, samples: batch.samples })),
  );
  const input = { run, replay, state, times, calls, choice: modelChoice };
  return [
    title,
    model ? modelSentence(model, forward) : h("p", { class: "callout" }, t("model.none")),
    h(
      "div",
      { class: "panels" },
      ...(model && batch.tokens ? layersPanels({ ...input, model, batch, forward, limit, update }) : []),
      attentionPanel({ ...input, model }),
      kernelsPanel(run, engine, index, model, update),
    ),
  ];
}

/** @type {import("./model.js").Forward} */
const NO_FORWARD = { hidden: 0, before: [], groups: [], after: [] };

/**
 * @param {import("./model.js").Model} model
 * @param {import("./model.js").Forward} forward
 */
function modelSentence(model, { hidden, groups }) {
  const [first] = model.attention;
  const layers = groups.flatMap((group) => group.layers).length;
  return h(
    "p",
    {},
    h("strong", {}, visible(model.architecture)),
    ": ",
    [
      t("model.shape", { layers, hidden: number(hidden), dtype: visible(model.dtype) }),
      first && t("model.heads", { heads: first[1], kv: first[2], size: first[3] }),
      t("model.device", { device: visible(model.deviceName || model.device) }),
    ]
      .filter(Boolean)
      .join(t("step.comma")),
    ".",
    model.workers > 1 && ` ${t("model.workers", { n: model.workers })}`,
  );
}

/**
 * Return the machine's limit: the GPU's data sheet, or on a CPU the fastest parts of the run; null if not known.
 * @param {Run} run
 * @param {Replay} replay
 * @param {Calls | null} calls
 * @param {import("./model.js").Model} model
 * @returns {import("./roofline.js").Limit | null}
 */
function machineLimit(run, replay, calls, model) {
  if (model.peak) return { ...model.peak, source: "peak" };
  if (!calls || !onCpu(model)) return null;
  const fastest = fastestSeen(calls, selected(run).engine, replay.engine, model);
  return fastest && { ...fastest, source: "fastest" };
}

/**
 * Return the table of kernels, of the step or of the whole run.
 * @param {Run} run
 * @param {number} engine
 * @param {number} step
 * @param {import("./model.js").Model | null} model
 * @param {() => void} update
 */
function kernelsPanel(run, engine, step, model, update) {
  const recorded = run.kernels ?? [];
  const rows = sumKernels(recorded, modelChoice.wholeRun ? null : { engine, step });
  /** @param {boolean} wholeRun @param {string} key */
  const button = (wholeRun, key) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(modelChoice.wholeRun === wholeRun),
        "aria-label": t(key),
        onclick: () => {
          modelChoice.wholeRun = wholeRun;
          update();
        },
      },
      t(key),
    );
  const interpreted = model?.ops === "triton" && onCpu(model);
  return h(
    "section",
    { class: "panel wide", "data-shows": "kernels" },
    h("h4", {}, t("model.kernels"), " ", h("small", {}, t("model.kernels.lead"))),
    recorded.length
      ? h("p", { class: "switch" }, button(false, "model.kernels.step"), button(true, "model.kernels.run"))
      : h("p", { class: "empty" }, ...withCode(t("model.kernels.empty"))),
    interpreted && rows.length > 0 && h("p", { class: "why" }, t("model.kernels.interpreted")),
    rows.length > 0 && kernelTable(rows, model?.peak ?? null),
    recorded.length > 0 && !rows.length && h("p", { class: "empty" }, t("model.kernels.empty.step")),
  );
}

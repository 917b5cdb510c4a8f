/** The step view: the bar that moves through the steps of an engine, and the panels of the selected step. */

import { h } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { shortName } from "../run/names.js";
import { select, selected } from "../run/selection.js";
import { batchPanel } from "./batch.js";
import { blocksPanel } from "./blocks.js";
import { encoderPanel, itemsPanel } from "./items.js";
import { budgetPanel, runningPanel, waitingPanel } from "./queues.js";
import { samplingPanel } from "./sampling.js";
import { timePanel } from "./time.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */
/** @typedef {import("../run/replay.js").Replay} Replay */
/** @typedef {import("../run/selection.js").Selectable} Selectable */

const SPEEDS = [1, 4, 16];

/** Moves the selected step: by one, to the ends, or by itself. */
export class Player {
  /** @param {Selectable} run */
  constructor(run) {
    this.run = run;
    /** @type {ReturnType<typeof setInterval> | null} */
    this.timer = null;
    this.speed = SPEEDS[1];
    /** Return the index of the last step that may be shown. */
    this.limit = () => Infinity;
  }

  get playing() {
    return this.timer !== null;
  }

  get step() {
    return selected(this.run).step;
  }

  get last() {
    return Math.min(this.limit(), this.run.engines[selected(this.run).engine].steps.length - 1);
  }

  /** @param {number} step */
  go(step) {
    const inside = Math.max(0, Math.min(this.last, step));
    if (inside !== this.step) select(this.run, { step: inside });
  }

  /** Start, or stop. At the end it starts again from the first step. */
  toggle() {
    if (this.timer !== null) {
      clearInterval(this.timer);
      this.timer = null;
    } else if (!selected(this.run).predict) {
      if (this.step === this.last) this.go(0);
      this.timer = setInterval(() => {
        if (this.step === this.last) this.toggle();
        else this.go(this.step + 1);
      }, 1000 / this.speed);
    }
    select(this.run, {});
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.speed = speed;
    if (this.timer !== null) {
      this.toggle();
      this.toggle();
    }
  }

  /**
   * Handle a key; return whether it was one of the player's.
   * @param {string} key
   */
  key(key) {
    const moves = /** @type {Record<string, () => void>} */ ({
      ArrowRight: () => this.go(this.step + 1),
      ArrowLeft: () => this.go(this.step - 1),
      PageDown: () => this.go(this.step + 10),
      PageUp: () => this.go(this.step - 10),
      Home: () => this.go(0),
      End: () => this.go(this.last),
      " ": () => this.toggle(),
    });
    if (!(key in moves)) return false;
    moves[key]();
    return true;
  }
}

/**
 * Return the bar with the slider and the buttons, and a function that brings it up to date. The elements stay, so that
 * a slider can be dragged while the rest of the page changes.
 * @param {Selectable} run
 * @param {Player} player
 * @returns {{element: HTMLElement, update: () => void}}
 */
export function stepBar(run, player) {
  /** @param {string} label @param {string} key @param {() => void} action */
  const button = (label, key, action) =>
    h("button", { type: "button", "aria-label": t(key), title: t(key), onclick: action }, label);
  /** @param {Event} event */
  const value = (event) => Number(/** @type {HTMLInputElement} */ (event.target).value);
  const play = button("", "page.play", () => player.toggle());
  const slider = /** @type {HTMLInputElement} */ (
    h("input", { type: "range", min: 0, "aria-label": t("page.slider"), oninput: (/** @type {Event} */ event) => player.go(value(event)) })
  );
  const position = h("output", {});
  const engines = /** @type {HTMLSelectElement} */ (
    h(
      "select",
      {
        "aria-label": t("page.engine"),
        hidden: run.engines.length < 2,
        onchange: (/** @type {Event} */ event) => select(run, { engine: value(event), step: 0, block: null }),
      },
      ...run.engines.map((_, i) => h("option", { value: i }, engineName(run, i))),
    )
  );
  const speed = h(
    "select",
    { "aria-label": t("page.speed"), onchange: (/** @type {Event} */ event) => player.setSpeed(value(event)) },
    ...SPEEDS.map((each) => h("option", { value: each, selected: each === player.speed }, t("page.persecond", { n: each }))),
  );
  const element = h(
    "div",
    { class: "step-bar", role: "toolbar", "aria-label": t("page.replay") },
    engines,
    button("|◀", "page.first", () => player.go(0)),
    button("◀", "page.previous", () => player.go(player.step - 1)),
    play,
    button("▶", "page.next", () => player.go(player.step + 1)),
    button("▶|", "page.last", () => player.go(player.last)),
    slider,
    position,
    speed,
  );
  const update = () => {
    const { engine, step, predict } = selected(run);
    const { steps } = run.engines[engine];
    const { n } = steps[step];
    engines.value = String(engine);
    slider.max = String(player.last);
    slider.value = String(step);
    slider.setAttribute("aria-valuetext", t("page.step", { n }));
    position.textContent = predict ? t("page.step", { n }) : t("page.of", { n: number(n), all: number(steps[steps.length - 1].n) });
    play.textContent = player.playing ? "❙❙" : "▶▶";
    play.title = t(player.playing ? "page.pause" : "page.play");
    play.setAttribute("aria-label", play.title);
    play.setAttribute("aria-pressed", String(player.playing));
    play.toggleAttribute("disabled", predict);
  };
  return { element, update };
}

/**
 * Return an engine's name; that of a variant has the changed settings.
 * @param {import("../run/selection.js").Selectable} run
 * @param {number} i
 */
export function engineName(run, i) {
  const { whatIf, process } = run.engines[i];
  if (!whatIf) return t("page.engine.name", { n: i + 1, process: visible(process) });
  const several = run.engines.filter((engine) => engine.whatIf === whatIf);
  const n = several.length > 1 ? ` (${several.indexOf(run.engines[i]) + 1})` : "";
  return t("page.engine.whatif", { settings: visible(whatIf) }) + n;
}

/**
 * Return everything about the selected step.
 * @param {Run} run
 * @param {Replay} replay
 */
export function stepPanels(run, replay) {
  const state = replay.at(selected(run).step);
  const sentences = changeSentences(run, state.step);
  return [
    h(
      "div",
      { class: "step-title" },
      h("h3", {}, t("page.step", { n: state.step.n }), " ", h("span", { class: `tag ${state.step.kind}` }, t(`step.kind.${state.step.kind}`))),
      h("p", { class: "changes" }, ...(sentences.length ? sentences : [t("page.change.none")]).map((sentence) => h("span", {}, sentence))),
    ),
    h(
      "div",
      { class: "panels" },
      budgetPanel(run, state.step),
      encoderPanel(run, state.step),
      itemsPanel(run, replay, state),
      runningPanel(run, state),
      waitingPanel(run, replay, state),
      blocksPanel(run, replay, state),
      batchPanel(run, replay, state),
      samplingPanel(run, replay, state.step),
      state.step.us !== undefined && timePanel(run, state.step, state.step.us),
    ),
  ];
}

/**
 * Return the requests that left the queues before a step, by reason: stopped, cancelled, or aborted if it is unknown.
 * @param {Run} run
 * @param {Step} step
 * @returns {[reason: string, rows: number[]][]}
 */
export function abortedRows(run, step) {
  const words = /** @type {Record<string, string>} */ ({ stop: "stopped", abort: "cancelled" });
  const keys = (step.aborted ?? []).map((r) => words[run.requests[r].reason ?? ""] ?? "aborted");
  return [...new Set(keys)].map((key) => [key, (step.aborted ?? []).filter((_, i) => keys[i] === key)]);
}

/**
 * Return a sentence for each change in a step; none for a step like the one before.
 * @param {Run} run
 * @param {Step} step
 */
export function changeSentences(run, step) {
  /** @param {number[]} rows */
  const names = (rows) => rows.map((r) => shortName(run.requests[r])).join(t("step.comma"));
  const found = [];
  const came = /** @type {const} */ (["new", "resumed", "preempted"]).map((key) => /** @type {const} */ ([key, step[key]]));
  for (const [key, rows] of [...abortedRows(run, step), ...came]) {
    if (rows?.length) found.push(t(`page.change.${key}`, { n: rows.length, names: names(rows) }));
  }
  if (step.finished?.length) {
    found.push(t("page.change.finished", { n: step.finished.length, names: names(step.finished.map(([r]) => r)) }));
  }
  const left = (step.released ?? []).filter((r) => !step.aborted?.includes(r) && !step.preempted?.includes(r));
  if (left.length) found.push(t(step.kind === "empty" ? "page.change.dropped" : "page.change.released", { names: names(left) }));
  else if (step.inFlight) found.push(t("page.change.in_flight", { n: step.inFlight, names: names(step.running ?? []) }));
  if (step.evicted?.length) found.push(t("page.change.evicted", { n: step.evicted.length }));
  if (step.error) found.push(t("step.failed", { error: visible(step.error) }));
  return found;
}

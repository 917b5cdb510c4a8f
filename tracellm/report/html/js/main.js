/** The page's script: reads the run, shows its views, and keeps selection, address and language. */

import { readRun } from "./data.js";
import { h } from "./dom.js";
import { ganttPicture } from "./gantt.js";
import { languageButton, showOtherLanguage } from "./languages.js";
import { stepList } from "./list.js";
import { heldReason } from "./names.js";
import { Predictor, predictViews } from "./predict.js";
import { phases, Replay, slots } from "./replay.js";
import { fromHash, onSelect, select, selected, stepIndex, toHash } from "./selection.js";
import { diagramControls } from "./sequence.js";
import { requestTable } from "./requests.js";
import { Player, stepBar, stepPanels } from "./steps.js";
import { language, setTexts } from "./text.js";

/** @typedef {import("./data.js").Run} Run */

/** Start the page. */
async function start() {
  diagramControls();
  const run = await readRun();
  setTexts(run.texts, run.lang);
  run.engines = run.engines.filter((engine) => engine.steps.length);
  const replays = run.engines.map((engine) => new Replay(engine, run.requests));
  const player = new Player(run);
  Object.assign(selected, run.engines.length ? fromHash(run, location.hash) : {});
  const predictor = new Predictor(run, replays);
  player.limit = () => predictor.limit;
  let update = mountViews(run, replays, player, predictor);
  const switchLanguage = async () => {
    setTexts(run.texts, await showOtherLanguage(language()));
    diagramControls();
    languageButton(switchLanguage);
    update = mountViews(run, replays, player, predictor);
  };
  languageButton(switchLanguage);
  onSelect(() => update());
  onSelect(() => history.replaceState(null, "", toHash(run)));
  window.addEventListener("resize", () => update());
  window.addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return;
    select({ request: null, block: null, ...fromHash(run, location.hash) });
    document.getElementById("replay")?.scrollIntoView();
  });
  document.addEventListener("keydown", (event) => pressKey(event, player, predictor));
  if (location.hash.includes("=")) document.getElementById("replay")?.scrollIntoView();
  expose(run, replays, predictor);
  document.documentElement.dataset.ready = "true";
}

/**
 * Show all views in their places, and return a function that shows them again after a change.
 * @param {Run} run
 * @param {Replay[]} replays
 * @param {Player} player
 * @param {Predictor} predictor
 * @returns {() => void}
 */
function mountViews(run, replays, player, predictor) {
  const showReplay = mountReplay(run, player, predictor);
  const table = run.engines.length ? requestTable(run, replays) : null;
  document.getElementById("request-table")?.replaceChildren(...(table ? [table.element] : []));
  table?.update();
  return () => {
    showReplay();
    table?.update();
  };
}

/**
 * Show requests and the selected step in their place, and return a function that shows them again after a change.
 * @param {Run} run
 * @param {Player} player
 * @param {Predictor} predictor
 * @returns {() => void}
 */
function mountReplay(run, player, predictor) {
  const place = document.getElementById("replay");
  if (!place || !run.engines.length) return () => {};
  const frame = h("div", {});
  const bar = stepBar(run, player);
  const panels = h("div", { id: "step" });
  const list = stepList(run);
  const predict = predictViews(predictor, () => player.playing && player.toggle());
  bar.element.append(...predict.controls);
  /** @type {ReturnType<typeof ganttPicture> | null} */
  let picture = null;
  /** @type {unknown[]} */
  let drawn = [];
  const update = () => {
    const focused = panels.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    const view = predictor.view();
    const shown = [view.run, selected.engine, place.clientWidth];
    if (shown.some((value, i) => value !== drawn[i])) {
      drawn = shown;
      picture = ganttPicture(view.run, place.clientWidth);
      frame.replaceChildren(picture.element);
    }
    picture?.update();
    bar.update();
    predict.update();
    list.update(view.run);
    panels.replaceChildren(...stepPanels(view.run, view.replay));
    if (focused) /** @type {HTMLElement | null} */ (panels.querySelector(`[aria-label="${CSS.escape(focused)}"]`))?.focus();
  };
  place.replaceChildren(frame, bar.element, predict.panel, list.element, panels);
  update();
  return update;
}

/**
 * @param {KeyboardEvent} event
 * @param {Player} player
 * @param {Predictor} predictor
 */
function pressKey(event, player, predictor) {
  const target = /** @type {HTMLElement} */ (event.target);
  const replay = document.getElementById("replay");
  if (event.ctrlKey || event.metaKey || event.altKey || !replay || !inView(replay)) return;
  if (target.closest("input, textarea, select, .scroll") && target.getAttribute("type") !== "range") return;
  if ((event.key === " " || event.key === "Enter") && target.closest("button, summary, a")) return;
  if (predictor.key(event.key) || player.key(event.key)) event.preventDefault();
}

/** @param {Element} element */
function inView(element) {
  const box = element.getBoundingClientRect();
  return box.top < window.innerHeight && box.bottom > 0;
}

/**
 * Give the browser's console `tracellm.goto(n)`, `tracellm.step(n)` and `tracellm.score()`.
 * @param {Run} run
 * @param {Replay[]} replays
 * @param {Predictor} predictor
 */
function expose(run, replays, predictor) {
  Object.assign(window, {
    tracellm: {
      /** Show step `n`. @param {number} n */
      goto(n) {
        const [engine, step] = findStep(run, n);
        select({ engine, step });
      },
      /** Return step `n` as data. @param {number} n */
      step(n) {
        const [engine, step] = findStep(run, n);
        return stepFacts(run, replays[engine], step);
      },
      /** Return the score of Predict mode: `{right, asked, answers}`. */
      score: () => predictor.score(),
    },
  });
}

/**
 * Return the engine and the index of step `n`: the selected engine's, or else the first engine's that has it.
 * @param {Run} run
 * @param {number} n
 */
function findStep(run, n) {
  for (const engine of [selected.engine, ...run.engines.keys()]) {
    const index = stepIndex(run.engines[engine], n);
    if (index >= 0) return [engine, index];
  }
  throw new RangeError(`no step ${n}`);
}

/**
 * Return what is known of a step, with requests by their ids.
 * @param {Run} run
 * @param {Replay} replay
 * @param {number} index
 */
export function stepFacts(run, replay, index) {
  const state = replay.at(index);
  const { step } = state;
  /** @param {number} r */
  const id = (r) => run.requests[r].id;
  /** @template T @param {[number, T][]} rows @returns {Record<string, T>} */
  const byId = (rows) => Object.fromEntries(rows.map(([r, value]) => [id(r), value]));
  const held = new Map((step.held ?? []).map((row) => [row[0], row]));
  const [prefill, decode] = phases(step);
  /** @param {number[]} listed */
  const candidates = (listed) =>
    Array.from({ length: (listed ?? []).length / 2 }, (_, i) => ({
      token: listed[2 * i],
      text: run.tokens[listed[2 * i]],
      prob: listed[2 * i + 1],
    }));
  return {
    step: step.n,
    kind: step.kind,
    budget: step.budget ?? 0,
    waiting: (step.waiting ?? []).map((r) => {
      const why = held.get(r);
      return { id: id(r), reason: why?.[1] ?? null, why: why ? heldReason(why[1], why[2], id(r)) : "" };
    }),
    running: (step.running ?? []).map(id),
    scheduled: byId((step.scheduled ?? []).map(([r, tokens]) => [r, tokens])),
    prefill,
    decode,
    blocks: byId([...state.tables]),
    free: step.free,
    slots: byId((step.scheduled ?? []).map(([r]) => [r, slots(state, replay.engine, r)])),
    sampled: byId(
      (step.sampled ?? []).map(([r, token, prob, listed]) => [
        r,
        { token, text: token === null ? null : (run.tokens[token] ?? null), prob, top: candidates(listed) },
      ]),
    ),
    preempted: (step.preempted ?? []).map(id),
    resumed: (step.resumed ?? []).map(id),
    finished: byId(step.finished ?? []),
    evicted: step.evicted ?? [],
    cached: (step.cached ?? []).map(([block]) => block),
  };
}

start();

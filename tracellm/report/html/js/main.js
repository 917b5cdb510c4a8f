/** The page's script: reads the run, shows its views, and keeps selection, address and language. */

import { readData } from "./data.js";
import { h, replaceKeepingFocus } from "./dom.js";
import { findStep, stepFacts } from "./facts.js";
import { ganttPicture } from "./gantt.js";
import { pressKey } from "./keys.js";
import { languageButton, showOtherLanguage } from "./languages.js";
import { stepList } from "./list.js";
import { Predictor, predictViews } from "./predict.js";
import { Replay } from "./replay.js";
import { fromHash, onSelect, select, selected, toHash } from "./selection.js";
import { diagramControls } from "./sequence.js";
import { requestTable } from "./requests.js";
import { Player, stepBar, stepPanels } from "./steps.js";
import { language, setTexts } from "./text.js";

/** @typedef {import("./data.js").Run} Run */

/** Start the page. */
async function start() {
  diagramControls();
  /** @type {Run & import("./data.js").Texts} */
  const run = await readData();
  setTexts(run.texts, run.lang);
  run.engines = run.engines.filter((engine) => engine.steps.length);
  const replays = run.engines.map((engine) => new Replay(engine, run.requests));
  const player = new Player(run);
  Object.assign(selected(run), run.engines.length ? fromHash(run, location.hash) : {});
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
  onSelect(run, () => update());
  onSelect(run, () => history.replaceState(null, "", toHash(run)));
  window.addEventListener("resize", () => update());
  window.addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return;
    select(run, { request: null, block: null, ...fromHash(run, location.hash) });
    document.getElementById("replay")?.scrollIntoView();
  });
  document.addEventListener("keydown", (event) => pressKey(event, "replay", predictor, player));
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
    const view = predictor.view();
    const shown = [view.run, selected(run).engine, place.clientWidth];
    if (shown.some((value, i) => value !== drawn[i])) {
      drawn = shown;
      picture = ganttPicture(view.run, place.clientWidth);
      frame.replaceChildren(picture.element);
    }
    picture?.update();
    bar.update();
    predict.update();
    list.update(view.run);
    replaceKeepingFocus(panels, stepPanels(view.run, view.replay));
  };
  place.replaceChildren(frame, bar.element, predict.panel, list.element, panels);
  update();
  return update;
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
        select(run, { engine, step });
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

start();

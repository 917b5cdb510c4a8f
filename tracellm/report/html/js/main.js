/** The page's script: reads the run, shows its views, and keeps selection, address and language. */

import { markSection } from "./base/contents.js";
import { pressKey } from "./base/keys.js";
import { languageButton, showOtherLanguage } from "./base/languages.js";
import { linkTerms } from "./base/terms.js";
import { language, setTexts } from "./base/text.js";
import { onTheme } from "./base/theme.js";
import { followCall } from "./calls/calls.js";
import { mountCalls } from "./calls/view.js";
import { modelView } from "./model/view.js";
import { readData } from "./run/data.js";
import { findStep, stepFacts } from "./run/facts.js";
import { Replay } from "./run/replay.js";
import { fromHash, onSelect, select, selected, toHash } from "./run/selection.js";
import { SequenceModel } from "./sequence/model.js";
import { SequenceView } from "./sequence/sequence.js";
import { sourceIndex } from "./source/index.js";
import { Predictor, predictViews } from "./steps/predict.js";
import { requestTable } from "./steps/requests.js";
import { Player } from "./steps/steps.js";
import { mountSteps } from "./steps/view.js";

/** @typedef {import("./run/data.js").Run} Run */

/** Start the page. */
async function start() {
  /** @type {Run & import("./run/data.js").Texts} */
  const run = await readData();
  setTexts(run.texts, run.lang);
  const replays = run.engines.map((engine) => new Replay(engine, run.requests));
  const player = new Player(run);
  const address = fromHash(run, location.hash);
  Object.assign(selected(run), address);
  const predictor = new Predictor(run, replays);
  player.limit = () => predictor.limit;
  const diagram = new SequenceModel(run.sequence, run.engines, run.requests.map(({ id }) => id));
  let update = mountViews(run, replays, player, predictor, diagram);
  const switchLanguage = async () => {
    setTexts(run.texts, await showOtherLanguage(language()));
    languageButton(switchLanguage);
    update = mountViews(run, replays, player, predictor, diagram);
  };
  languageButton(switchLanguage);
  onSelect(run, () => update());
  onSelect(run, (change) => followCall(run, change));
  onSelect(run, () => history.replaceState(null, "", toHash(run)));
  window.addEventListener("resize", () => update());
  onTheme(() => update());
  window.addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return;
    select(run, { request: null, block: null, call: null, source: null, ...fromHash(run, location.hash) });
    showAddressed(run);
  });
  document.addEventListener("keydown", (event) => pressKey(event, "replay", predictor, player));
  if (location.hash.includes("=")) showAddressed(run);
  expose(run, replays, predictor);
  followCall(run, address);
  document.documentElement.dataset.ready = "true";
}

/**
 * Scroll to what an address selected.
 * @param {Run} run
 */
function showAddressed(run) {
  const { call, source } = selected(run);
  document.getElementById(source !== null ? "source" : call !== null ? "calls" : "replay")?.scrollIntoView();
}

/**
 * Show all views in their places, and return a function that shows them again after a change.
 * @param {Run} run
 * @param {Replay[]} replays
 * @param {Player} player
 * @param {Predictor} predictor
 * @param {SequenceModel} diagram
 * @returns {() => void}
 */
function mountViews(run, replays, player, predictor, diagram) {
  const updates = [mountReplay(run, player, predictor), mountCalls(run)];
  /** @param {string} id @param {() => {element: HTMLElement, update: () => void}} make */
  const mount = (id, make) => {
    const place = document.getElementById(id);
    if (!place) return;
    const view = make();
    place.replaceChildren(view.element);
    updates.push(() => view.update());
    view.update();
  };
  if (run.engines.length) {
    mount("request-table", () => requestTable(run, replays));
    mount("model", () => modelView(run, () => predictor.view()));
  }
  mount("diagram", () => new SequenceView(run, diagram));
  if (run.source) mount("source-index", () => sourceIndex(run));
  document.querySelectorAll("main > section").forEach(linkTerms);
  markSection();
  return () => updates.forEach((update) => update());
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
  const predict = predictViews(predictor, () => player.playing && player.toggle());
  return mountSteps(place, run, player, () => predictor.view(), predict);
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

/**
 * The script of the page that compares two runs: one slider for both, and what differs in each pair of steps.
 *
 * The pairs are the steps of a `Selectable` of their own, which the slider, the keys and the address move. Both runs
 * follow its selection, and a selection in one of them moves the pairs.
 */

import { h, replaceKeepingFocus } from "../base/dom.js";
import { pressKey } from "../base/keys.js";
import { languageButton, showOtherLanguage } from "../base/languages.js";
import { number } from "../base/quantities.js";
import { language, setTexts, t, visible } from "../base/text.js";
import { readData } from "../run/data.js";
import { findStep, stepFacts } from "../run/facts.js";
import { shortName } from "../run/names.js";
import { Replay } from "../run/replay.js";
import { fromHash, onSelect, select, selected, toHash } from "../run/selection.js";
import { ganttPicture } from "../steps/gantt.js";
import { Player, stepBar, stepPanels } from "../steps/steps.js";
import { differences } from "./pairs.js";

/** @typedef {import("./pairs.js").Pair} Pair */

/**
 * @typedef {object} Side one of the two runs
 * @property {"a" | "b"} key
 * @property {string} label
 * @property {string} name
 * @property {import("../run/data.js").Run} run
 * @property {Replay[]} replays
 *
 * @typedef {object} Both the pairs, as a `Selectable`, and the two runs
 * @property {{process: string, steps: Pair[]}[]} engines one, with all pairs as its steps
 * @property {import("../run/data.js").Request[]} requests
 * @property {Side[]} sides
 */

/** Start the page. */
async function start() {
  /** @type {import("./pairs.js").Pairs} */
  const data = await readData();
  setTexts(data.texts, data.lang);
  /** @type {Both} */
  const both = {
    engines: [{ process: "", steps: data.pairs }],
    requests: data.a.requests,
    sides: (/** @type {const} */ (["a", "b"])).map((key) => ({
      key,
      label: key.toUpperCase(),
      name: data.names[key],
      run: data[key],
      replays: data[key].engines.map((engine) => new Replay(engine, data[key].requests)),
    })),
  };
  const player = new Player(both);
  if (data.pairs.length) {
    const first = data.pairs.findIndex((pair) => pair.differs.length);
    Object.assign(selected(both), { step: Math.max(first, 0) }, fromHash(both, location.hash));
    follow(both);
  }
  let update = mountPair(both, player);
  const switchLanguage = async () => {
    setTexts(data.texts, await showOtherLanguage(language()));
    languageButton(switchLanguage);
    update = mountPair(both, player);
  };
  languageButton(switchLanguage);
  expose(both);
  if (data.pairs.length) {
    onSelect(both, () => {
      follow(both);
      update();
      history.replaceState(null, "", toHash(both));
    });
    for (const side of both.sides) onSelect(side.run, (change) => lead(both, side, change));
    window.addEventListener("resize", () => update());
    window.addEventListener("hashchange", () => goToHash(both, location.hash));
    document.addEventListener("click", (event) => {
      const link = /** @type {Element} */ (event.target).closest('a[href^="#step="]');
      if (!link) return;
      event.preventDefault();
      goToHash(both, link.getAttribute("href") ?? "");
    });
    document.addEventListener("keydown", (event) => pressKey(event, "replay", player));
    if (location.hash.includes("=")) document.getElementById("replay")?.scrollIntoView();
  }
  document.documentElement.dataset.ready = "true";
}

/**
 * @param {Both} both
 * @param {string} hash
 */
function goToHash(both, hash) {
  if (!hash.includes("=")) return;
  select(both, fromHash(both, hash));
  document.getElementById("replay")?.scrollIntoView();
}

/**
 * Return the selected pair.
 * @param {Both} both
 */
function selectedPair(both) {
  return both.engines[0].steps[selected(both).step];
}

/**
 * Select the pair's steps and request in both runs.
 * @param {Both} both
 */
function follow(both) {
  const { request } = selected(both);
  for (const { key, run } of both.sides) {
    const position = selectedPair(both)[key];
    Object.assign(selected(run), { request }, position && { engine: position[0], step: position[1] });
  }
}

/**
 * Select the pair that has the step selected in one run, and its request in the other.
 * @param {Both} both
 * @param {Side} side
 * @param {Partial<import("../run/selection.js").Selection>} change
 */
function lead(both, { key, run }, change) {
  const { engine, request } = selected(run);
  const found = both.engines[0].steps.findIndex((pair) => pair[key]?.[0] === engine && pair[key]?.[1] === change.step);
  select(both, found < 0 ? { request } : { request, step: found });
}

/**
 * Show both runs in their place, and return a function that shows them again after a change.
 * @param {Both} both
 * @param {Player} player
 * @returns {() => void}
 */
function mountPair(both, player) {
  const place = document.getElementById("replay");
  if (!place || !both.engines[0].steps.length) return () => {};
  const pictures = h("div", { class: "pictures" });
  const bar = stepBar(both, player);
  const title = h("div", { class: "pair-title" });
  const panels = h("div", { id: "pair" });
  const update = () => {
    pictures.replaceChildren(...both.sides.flatMap((side) => sidePicture(both, side, place.clientWidth)));
    bar.update();
    replaceKeepingFocus(title, pairTitle(both, player));
    replaceKeepingFocus(panels, pairPanels(both));
  };
  place.replaceChildren(pictures, bar.element, title, panels);
  update();
  return update;
}

/** @param {Side} side */
function sideLabel(side) {
  return h("span", { class: "side" }, side.label);
}

/**
 * Return a run's picture, its columns aligned with the other run's.
 * @param {Both} both
 * @param {Side} side
 * @param {number} width
 */
function sidePicture(both, side, width) {
  const { key, run } = side;
  const heading = h("h3", {}, sideLabel(side), " ", visible(side.name));
  if (!run.engines.length) return [heading, h("p", { class: "empty" }, t("diff.page.none"))];
  const pairs = both.engines[0].steps;
  const steps = pairs.map(({ [key]: position }) =>
    position && position[0] === selected(run).engine ? run.engines[position[0]].steps[position[1]] : null,
  );
  const differing = new Set([...pairs.keys()].filter((index) => pairs[index].differs.length));
  return [heading, ganttPicture(run, width, { steps, at: () => selected(both).step, differing }).element];
}

/**
 * Return what differs in the selected pair, and buttons that go to the other pairs that differ.
 * @param {Both} both
 * @param {Player} player
 */
function pairTitle(both, player) {
  const pairs = both.engines[0].steps;
  const { step } = selected(both);
  const { differs } = pairs[step];
  const before = pairs.findLastIndex((pair, index) => index < step && pair.differs.length > 0);
  const after = pairs.findIndex((pair, index) => index > step && pair.differs.length > 0);
  /** @param {string} label @param {string} key @param {number} to */
  const button = (label, key, to) =>
    h("button", { type: "button", disabled: to < 0, "aria-label": t(key), title: t(key), onclick: () => player.go(to) }, label);
  const having = both.sides.filter(({ key }) => pairs[step][key]);
  const names = differs.map((facet) => t(`diff.steps.${facet}`)).join(t("step.comma"));
  const what = having.length < 2 ? t("diff.page.only", { run: having[0].label }) : t("diff.page.facets", { names });
  return [
    h("div", {}, button("◀ ≠", "diff.page.previous", before), button("≠ ▶", "diff.page.next", after)),
    differs.length
      ? h("p", { class: "unequal" }, "≠ ", what)
      : h("p", {}, "= ", t("diff.page.same")),
  ];
}

/**
 * Return the steps of the selected pair, A's and B's panels in turn.
 * @param {Both} both
 */
function pairPanels(both) {
  const pair = selectedPair(both);
  const [inA, inB] = both.sides.map(({ key, run }) => {
    const position = pair[key];
    return position && run.engines[position[0]].steps[position[1]];
  });
  const unequal = inA && inB ? differences(inA, inB) : {};
  const [ofA, ofB] = both.sides.map((side) => sidePanels(side, pair, unequal));
  const absent = () => h("div", { class: "absent" });
  return Array.from({ length: Math.max(ofA.length, ofB.length) }, (_, i) => [ofA[i] ?? absent(), ofB[i] ?? absent()]).flat();
}

/**
 * Return the panels of one run's step, with marks where they differ from the other's.
 * @param {Side} side
 * @param {Pair} pair
 * @param {Record<string, Set<number>>} unequal
 */
function sidePanels(side, pair, unequal) {
  const position = pair[side.key];
  if (!position) return [h("div", { class: "step-title" }, h("p", {}, sideLabel(side), " ", t("diff.page.no_step", { n: number(pair.n) })))];
  const [title, panels] = stepPanels(side.run, side.replays[position[0]]);
  const shown = /** @type {HTMLElement[]} */ ([title, ...panels.children]);
  for (const panel of shown) {
    panel.querySelector("h3, h4")?.prepend(sideLabel(side), " ");
    markDifferences(side, panel, unequal[panel.dataset.shows ?? ""] ?? new Set());
  }
  return shown;
}

/**
 * Mark a panel and the requests in it that differ.
 * @param {Side} side
 * @param {HTMLElement} panel
 * @param {Set<number>} requests
 */
function markDifferences(side, panel, requests) {
  if (!requests.size) return;
  const names = [...requests].sort((one, other) => one - other).map((r) => shortName(side.run.requests[r]));
  const shown = names.length > 4 ? [...names.slice(0, 4), "…"] : names;
  panel.querySelector("h4")?.append(h("small", { class: "unequal" }, "≠ ", shown.join(t("step.comma"))));
  for (const chip of /** @type {NodeListOf<HTMLElement>} */ (panel.querySelectorAll(".request-chip"))) {
    if (requests.has(Number(chip.dataset.request))) chip.classList.add("unequal");
  }
}

/**
 * Give the browser's console `tracellm.goto(n)`, `tracellm.a.step(n)` and `tracellm.b.step(n)`.
 * @param {Both} both
 */
function expose(both) {
  const steps = both.sides.map(({ key, run, replays }) => [
    key,
    {
      /** Return step `n` of the run as data. @param {number} n */
      step(n) {
        const [engine, index] = findStep(run, n);
        return stepFacts(run, replays[engine], index);
      },
    },
  ]);
  Object.assign(window, {
    tracellm: {
      ...Object.fromEntries(steps),
      /** Show pair `n`. @param {number} n */
      goto(n) {
        const [, step] = findStep(both, n);
        select(both, { step });
      },
    },
  });
}

start();

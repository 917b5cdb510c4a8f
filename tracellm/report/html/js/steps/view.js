/** Requests and steps in their place: the picture of all steps, the bar, the list, and the panels of the selected step. */

import { h, replaceKeepingFocus } from "../base/dom.js";
import { linkTerms } from "../base/terms.js";
import { selected } from "../run/selection.js";
import { ganttPicture } from "./gantt.js";
import { stepList } from "./list.js";
import { stepBar, stepPanels } from "./steps.js";

/** @typedef {import("../run/data.js").Run} Run */

/**
 * Show requests and steps, and return a function that shows them again after a change.
 * @param {HTMLElement} place
 * @param {Run} run
 * @param {import("./steps.js").Player} player
 * @param {() => {run: Run, replay: import("../run/replay.js").Replay}} view the run as far as it may be shown
 * @param {{controls: (Node | string)[], panel: HTMLElement, update: () => void}} [predict] the view of Predict mode
 * @returns {() => void}
 */
export function mountSteps(place, run, player, view, predict) {
  const frame = h("div", {});
  const bar = stepBar(run, player);
  const panels = h("div", { id: "step" });
  const list = stepList(run);
  if (predict) bar.element.append(...predict.controls);
  /** @type {ReturnType<typeof ganttPicture> | null} */
  let picture = null;
  /** @type {unknown[]} */
  let drawn = [];
  const update = () => {
    const now = view();
    const shown = [now.run, selected(run).engine, place.clientWidth];
    if (shown.some((value, i) => value !== drawn[i])) {
      drawn = shown;
      picture = ganttPicture(now.run, place.clientWidth);
      frame.replaceChildren(picture.element);
    }
    picture?.update();
    bar.update();
    predict?.update();
    list.update(now.run);
    replaceKeepingFocus(panels, stepPanels(now.run, now.replay));
    linkTerms(panels);
  };
  place.replaceChildren(frame, bar.element, ...(predict ? [predict.panel] : []), list.element, panels);
  update();
  return update;
}

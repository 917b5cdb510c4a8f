/** Timeline, call tree and panel in the page: each is made when it comes near the window, or when a call is selected. */

import { h, watchNear } from "../base/dom.js";
import { selected } from "../run/selection.js";
import { hasCalls, readCalls } from "./calls.js";
import { callPanel } from "./panel.js";
import { timeline } from "./timeline.js";
import { callTree } from "./tree.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {{element: HTMLElement, update: () => void}} View */

/** The observer of each place that waits for its view; a place is mounted again once its language is shown again. */
/** @type {WeakMap<HTMLElement, IntersectionObserver>} */
const waitingPlaces = new WeakMap();

/**
 * Show the timeline and the call tree in their places, and return a function that brings them up to date.
 * @param {Run} run
 */
export function mountCalls(run) {
  const views = [
    lazyView(run, "timeline-view", (calls) => timeline(run, calls)),
    lazyView(run, "call-tree", (calls) => treeAndPanel(run, calls)),
  ];
  return () => views.forEach((update) => update());
}

/**
 * @param {Run} run
 * @param {string} id of the view's place
 * @param {(calls: Calls) => View} make
 */
function lazyView(run, id, make) {
  const place = document.getElementById(id);
  if (!place || !hasCalls()) return () => {};
  /** @type {View | null} */
  let view = null;
  let begun = false;
  const show = async () => {
    observer.disconnect();
    if (begun) return;
    begun = true;
    const calls = await readCalls();
    view = make(calls);
    place.replaceChildren(view.element);
    view.update();
    place.dataset.ready = "true";
  };
  waitingPlaces.get(place)?.disconnect();
  const observer = watchNear(place, (near) => near && show());
  waitingPlaces.set(place, observer);
  const update = () => {
    if (view) view.update();
    else if (selected(run).call !== null) show();
  };
  update();
  return update;
}

/**
 * @param {Run} run
 * @param {Calls} calls
 * @returns {View}
 */
function treeAndPanel(run, calls) {
  const tree = callTree(run, calls);
  const panel = callPanel(run, calls);
  return {
    element: h("div", {}, h("div", { class: "calls" }, tree.element, panel.element), panel.source),
    update() {
      tree.update();
      panel.update();
    },
  };
}

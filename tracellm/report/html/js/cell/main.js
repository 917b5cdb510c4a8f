/** The script of a notebook cell: requests and steps of a run, as on the report page, in a frame of their own. */

import { pressKey } from "../base/keys.js";
import { setTexts } from "../base/text.js";
import { readData } from "../run/data.js";
import { Replay } from "../run/replay.js";
import { onSelect, select, selected, stepIndex } from "../run/selection.js";
import { requestTable } from "../steps/requests.js";
import { Player } from "../steps/steps.js";
import { mountSteps } from "../steps/view.js";

/** @typedef {import("../run/data.js").Run} Run */

/** Start the frame. */
async function startCell() {
  /** @type {Run & import("../run/data.js").Texts & {first: [engine: number, step: number], linked: boolean}} */
  const run = await readData();
  setTexts(run.texts, run.lang);
  const replays = run.engines.map((engine) => new Replay(engine, run.requests));
  const player = new Player(run);
  const [engine, step] = run.first;
  Object.assign(selected(run), { engine, step });
  const replay = /** @type {HTMLElement} */ (document.getElementById("replay"));
  const updateSteps = mountSteps(replay, run, player, () => ({ run, replay: replays[selected(run).engine] }));
  const requests = requestTable(run, replays);
  document.getElementById("request-table")?.replaceChildren(requests.element);
  const update = () => {
    updateSteps();
    requests.update();
  };
  onSelect(run, update);
  window.addEventListener("resize", update);
  document.addEventListener("keydown", (event) => pressKey(event, "replay", player));
  if (run.linked) exchangeSelection(run);
  document.documentElement.dataset.ready = "true";
}

/**
 * Send each change of the selection to the page around the frame, and select what it sends: the number of a step, the id
 * of a request, a block; null for none.
 * @param {Run} run
 */
function exchangeSelection(run) {
  const selection = () => {
    const { engine, step, request, block } = selected(run);
    return { engine, step: run.engines[engine].steps[step].n, request: request === null ? null : run.requests[request].id, block };
  };
  let last = JSON.stringify(selection());
  onSelect(run, () => {
    const now = selection();
    if (JSON.stringify(now) === last) return;
    last = JSON.stringify(now);
    window.parent.postMessage({ tracellm: now }, "*");
  });
  window.addEventListener("message", ({ source, data }) => {
    const wanted = source === window.parent && data?.tracellm;
    const steps = wanted && run.engines[wanted.engine]?.steps;
    if (!steps) return;
    const step = stepIndex(run.engines[wanted.engine], wanted.step);
    const request = run.requests.findIndex(({ id }) => id === wanted.request);
    last = JSON.stringify(wanted);
    select(run, { engine: wanted.engine, step: Math.max(step, 0), request: request < 0 ? null : request, block: wanted.block });
  });
}

startCell();

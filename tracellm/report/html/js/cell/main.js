/** The script of a notebook cell: requests and steps of a run, as on the report page, in a frame of their own. */

import { pressKey } from "../base/keys.js";
import { setTexts } from "../base/text.js";
import { readData } from "../run/data.js";
import { Replay } from "../run/replay.js";
import { onSelect, selected } from "../run/selection.js";
import { requestTable } from "../steps/requests.js";
import { Player } from "../steps/steps.js";
import { mountSteps } from "../steps/view.js";

/** @typedef {import("../run/data.js").Run} Run */

/** Start the frame. */
async function startCell() {
  /** @type {Run & import("../run/data.js").Texts & {first: [engine: number, step: number]}} */
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
  document.documentElement.dataset.ready = "true";
}

startCell();

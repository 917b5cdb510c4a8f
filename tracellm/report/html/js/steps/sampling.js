/** Panel of sampling in a step: the likeliest tokens of each request, the chosen one, and the text so far. */

import { h } from "../base/dom.js";
import { number, percent } from "../base/quantities.js";
import { t, tokenText, visible } from "../base/text.js";
import { candidatePairs, isGreedy } from "../run/data.js";
import { requestButton } from "../run/names.js";
import { select, selected } from "../run/selection.js";

/** @typedef {import("../run/data.js").Run} Run */

const MOST_SAMPLES = 16;
const MOST_PIECES = 160;

/**
 * Return each request's candidates and its text after this step.
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/data.js").Step} step
 */
export function samplingPanel(run, replay, step) {
  const rows = [...(step.sampled ?? [])];
  rows.sort((one, other) => Number(other[0] === selected(run).request) - Number(one[0] === selected(run).request));
  const shape = step.logits ? `logits [${step.logits.map(number).join(", ")}]` : "";
  return h(
    "section",
    { class: "panel wide", "data-shows": "sampled" },
    h("h4", {}, t("page.sampling"), " ", h("small", {}, shape)),
    rows.length ? null : h("p", { class: "empty" }, t("page.sampling.none")),
    h("div", { class: "samples" }, ...rows.slice(0, MOST_SAMPLES).map((row) => sampleOf(run, replay, row))),
    rows.length > MOST_SAMPLES && h("p", { class: "empty" }, t("page.more", { n: rows.length - MOST_SAMPLES })),
  );
}

/**
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {any[]} row
 */
function sampleOf(run, replay, [r, tokenId, probability, candidates, processors, left, drawnProbability, drawn, mask]) {
  const output = replay.outputsUpTo(r, selected(run).step);
  return h(
    "div",
    { class: "sample" },
    h(
      "p",
      {},
      requestButton(run, r),
      " ",
      h("span", { class: "token picked" }, tokenText(run.tokens[tokenId])),
      typeof probability === "number" ? ` ${percent(probability)}` : "",
    ),
    candidates?.length ? candidateBars(run, candidates, tokenId, probability) : null,
    processors && h("p", { class: "how" }, t(isGreedy(run.requests[r]) ? "page.processors.greedy" : "page.processors", { names: visible(processors), n: left ?? 0, p: percent(drawnProbability ?? 0) })),
    drawn?.length ? candidateBars(run, drawn, tokenId, drawnProbability) : null,
    mask ? grammarOf(run, mask) : null,
    output.length ? textSoFar(run, replay, r, output) : null,
  );
}

/**
 * Return the tokens that the grammar allowed, and the likeliest one if it forbade that.
 * @param {Run} run
 * @param {import("../run/data.js").GrammarMask} mask
 */
function grammarOf(run, [allowed, share, likeliest, forbidden, listed]) {
  const tokens = candidatePairs(listed);
  const token = (/** @type {number} */ id) => h("span", { class: "token" }, tokenText(run.tokens[id]));
  return h(
    "div",
    { class: "how grammar" },
    h(
      "p",
      {},
      t("step.grammar", { n: allowed, p: percent(share) }),
      ...tokens.flatMap(([id]) => [" ", token(id)]),
      tokens.length && allowed > tokens.length ? " …" : "",
    ),
    forbidden && h("p", {}, t("step.grammar.forbade"), " ", token(likeliest[0]), ` ${percent(likeliest[1])}`),
  );
}

/**
 * Return candidates as bars: those with a chance, and the chosen one, marked, even if it is not among the likeliest.
 * @param {Run} run
 * @param {number[]} listed token id, probability, token id, probability, ...
 * @param {number} chosen
 * @param {number | null} [chance] the chosen one's probability
 */
function candidateBars(run, listed, chosen, chance) {
  const candidates = candidatePairs(listed).filter(([, probability]) => probability > 0);
  if (typeof chance === "number" && !candidates.some(([id]) => id === chosen)) candidates.push([chosen, chance]);
  const rows = candidates.map(([id, probability]) =>
    h(
      "li",
      { class: id === chosen ? "chosen" : "" },
      h("span", { class: "token" }, tokenText(run.tokens[id])),
      h("span", { class: "track" }, h("i", { style: { width: `${100 * probability}%` } })),
      h("span", { class: "number" }, percent(probability)),
    ),
  );
  return h("ol", { class: "bars" }, ...rows);
}

/**
 * Return a request's output up to the selected step; each token leads to its step.
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {number} r
 * @param {import("../run/replay.js").Output[]} output
 */
function textSoFar(run, replay, r, output) {
  const shown = output.slice(-MOST_PIECES);
  return h(
    "p",
    { class: "so-far" },
    shown.length < output.length && "… ",
    ...shown.map(({ step, row }) =>
      h(
        "button",
        {
          type: "button",
          class: step === selected(run).step ? "piece now" : "piece",
          title: t("page.step", { n: replay.engine.steps[step].n }),
          onclick: () => select(run, { step, request: r }),
        },
        visible(run.tokens[row[1]] ?? "•").replaceAll("\n", "↵\n"),
      ),
    ),
  );
}

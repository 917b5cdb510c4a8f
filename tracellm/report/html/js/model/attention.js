/** Panel of paged attention in a step: the grid of programs, the blocks that each reads, and the slots that are written. */

import { h, scrollFrame } from "../base/dom.js";
import { byteSize, number } from "../base/quantities.js";
import { formatRanges } from "../base/ranges.js";
import { hasText, t, visible } from "../base/text.js";
import { colour, requestButton, shortName } from "../run/names.js";
import { slots } from "../run/replay.js";
import { select, selected } from "../run/selection.js";
import { layerAttention } from "./model.js";
import { agrees, attentionGrids, attentionLaunch } from "./reads.js";

/** @typedef {import("./reads.js").Read} Read */

const MOST_PROGRAMS = 64;
const MOST_KV_HEADS = 8;
const MOST_BLOCKS_READ = 24;

/**
 * @typedef {object} AttentionInput
 * @property {import("../run/data.js").Run} run
 * @property {import("../run/replay.js").Replay} replay
 * @property {import("../run/replay.js").State} state
 * @property {import("./model.js").Model | null} model
 * @property {import("./times.js").StepTimes | null} times
 * @property {import("../calls/calls.js").Calls | null} calls
 * @property {import("./view.js").ModelChoice} choice
 */

/**
 * Return the panel of a step's attention. Recorded launches give the grids; else it is one program for each request and
 * KV head.
 * @param {AttentionInput} input
 */
export function attentionPanel(input) {
  const { replay, state, model, times, calls, choice } = input;
  const [, , kvHeads = 1, headSize = 0, window = 0] = (model && layerAttention(model, choice.layer ?? 0)) ?? [];
  const launches = calls && times ? distinctLaunches(calls, times.launches) : [];
  const grids = attentionGrids(state, replay.engine, launches, window);
  return h(
    "section",
    { class: "panel wide", "data-shows": "attention" },
    h("h4", {}, t("model.attention"), " ", h("small", {}, t("model.attention.lead"))),
    ...(grids.length
      ? grids.flatMap(({ launch, reads }, i) => [launch ? launchSentence(launch, reads) : h("p", {}, t("model.attention.layout")), ...programGrid(input, reads, kvHeads, i, 2 * headSize * (model?.kvSize ?? 0))])
      : [h("p", { class: "empty" }, t(emptyReason(input)))]),
  );
}

/** @param {AttentionInput} input */
function emptyReason({ replay, state }) {
  if (!state.step.scheduled?.length) return "step.kind.empty";
  return replay.engine.numGroups > 1 ? "model.attention.groups" : "model.attention.unknown";
}

/**
 * Return the launches of attention kernels of the first layer of each kind: those of further layers are alike.
 * @param {import("../calls/calls.js").Calls} calls
 * @param {number[]} all
 */
function distinctLaunches(calls, all) {
  /** @type {Map<string, import("./reads.js").Launch>} */
  const found = new Map();
  for (const launch of all.map((call) => attentionLaunch(calls, call))) {
    const key = `${launch?.kernel} ${launch?.constants.WINDOW}`;
    if (launch && !found.has(key)) found.set(key, launch);
  }
  return [...found.values()];
}

/**
 * @param {import("./reads.js").Launch} launch
 * @param {Read[]} reads
 */
function launchSentence(launch, reads) {
  const same = agrees(launch, reads);
  const reason = `model.attention.reason.${launch.reason}`;
  return h(
    "p",
    {},
    h("code", {}, visible(launch.kernel)),
    ` ${t("model.attention.grid", { grid: launch.grid.join(" × ") })} `,
    hasText(reason) && `${t(reason)} `,
    same === null ? t("model.attention.unlisted") : h("strong", { class: same ? "agrees" : "why" }, t(same ? "model.attention.agrees" : "model.attention.differs")),
  );
}

/**
 * Return the programs as rows of a table, and a sentence about the selected one.
 * @param {AttentionInput} input
 * @param {Read[]} reads
 * @param {number} heads
 * @param {number} grid number of the grid in the step
 * @param {number} keyBytes bytes of a key and its value for one head; 0 if the model was not recorded
 */
function programGrid(input, reads, heads, grid, keyBytes) {
  const { run, replay, state, choice } = input;
  const { request, block: marked } = selected(run);
  const shownHeads = Math.min(heads, MOST_KV_HEADS);
  const { program } = choice;
  const chosen = program?.grid === grid && reads[program.place]?.r === request && program.head < heads ? program : null;
  const place = chosen?.place ?? Math.max(0, reads.findIndex(({ r }) => r === request));
  const head = chosen?.head ?? 0;
  const size = replay.engine.blockSize;
  return [
    h("p", { class: "reading", role: "status" }, programSentence(input, reads[place], head), keyBytes > 0 && ` ${bytesSentence(reads[place], heads, keyBytes)}`),
    scrollFrame(
      t("model.attention"),
      h(
        "table",
        { class: "boundary reads" },
        h("thead", {}, h("tr", {}, ...["request", "programs", "blocks", "writes"].map((column) => h("th", { scope: "col" }, t(`model.attention.${column}`))))),
        h(
          "tbody",
          {},
          ...reads.slice(0, MOST_PROGRAMS).map((read, i) =>
            h(
              "tr",
              { class: read.r === request ? "chosen" : null },
              h("th", { scope: "row" }, requestButton(run, read.r), h("small", { class: "note" }, t("model.attention.queries", { n: read.queries, first: read.first, last: read.stop - 1 }))),
              h(
                "td",
                { "data-label": t("model.attention.programs") },
                h(
                  "div",
                  { class: "programs" },
                  ...Array.from({ length: shownHeads }, (_, each) => programButton(input, read, { grid, place: i, head: each }, i === place && each === head)),
                  heads > shownHeads && h("small", {}, t("model.attention.more.heads", { n: heads - shownHeads })),
                ),
              ),
              h(
                "td",
                { "data-label": t("model.attention.blocks") },
                h("div", { class: "blocks-read" }, ...read.blocks.slice(0, MOST_BLOCKS_READ).map((block, j) => readBlock(run, read, block, j, size, marked)), read.blocks.length > MOST_BLOCKS_READ && h("small", {}, t("page.more", { n: read.blocks.length - MOST_BLOCKS_READ }))),
              ),
              h("td", { "data-label": t("model.attention.writes") }, h("small", {}, writesText(slots(state, replay.engine, read.r), size))),
            ),
          ),
        ),
      ),
    ),
    reads.length > MOST_PROGRAMS && h("p", { class: "empty" }, t("page.more", { n: reads.length - MOST_PROGRAMS })),
  ];
}

/**
 * @param {AttentionInput} input
 * @param {Read} read
 * @param {import("./view.js").Program} program
 * @param {boolean} pressed
 */
function programButton({ run, choice }, read, program, pressed) {
  const name = programName(read, program.head);
  return h(
    "button",
    {
      type: "button",
      class: `program ${colour(read.r)}`,
      "aria-label": t("model.attention.program", { name }),
      "aria-pressed": String(pressed),
      onclick: () => {
        choice.program = program;
        select(run, { request: read.r });
      },
    },
    name,
  );
}

/**
 * Return the place of a program in the grid: `(2, 0)`.
 * @param {Read} read
 * @param {number} head
 */
function programName({ index }, head) {
  return `(${index.replace("*", String(head))})`;
}

/**
 * Return what a program reads, as a sentence.
 * @param {AttentionInput} input
 * @param {Read} read
 * @param {number} head
 */
function programSentence({ run, replay }, read, head) {
  const blocks = read.blocks.slice(0, MOST_BLOCKS_READ).join(", ") + (read.blocks.length > MOST_BLOCKS_READ ? ", …" : "");
  const last = /** @type {number} */ (read.blocks.at(-1));
  return t("model.attention.reads", {
    name: programName(read, head),
    request: shortName(run.requests[read.r]),
    keys: read.stop - read.first,
    n: read.blocks.length,
    blocks,
    last,
    used: read.last,
    size: replay.engine.blockSize,
  });
}

/**
 * Return the bytes that a request's programs read in a layer, as a sentence.
 * @param {Read} read
 * @param {number} heads
 * @param {number} keyBytes
 */
function bytesSentence(read, heads, keyBytes) {
  const own = (read.stop - read.first) * keyBytes;
  return t("model.attention.bytes", { own: byteSize(own), heads, bytes: byteSize(own * heads) });
}

/**
 * Return a block that a program reads as a button, with the positions that it covers.
 * @param {import("../run/data.js").Run} run
 * @param {Read} read
 * @param {number} block
 * @param {number} i its place among the blocks read
 * @param {number} size
 * @param {number | null} marked the selected block
 */
function readBlock(run, read, block, i, size, marked) {
  const start = (Math.floor(read.first / size) + i) * size;
  const from = Math.max(start, read.first);
  const last = Math.min(start + size, read.stop) - 1;
  const used = last - from + 1;
  const title = t("model.attention.block", { block, first: from, last, used, size });
  return h(
    "button",
    {
      type: "button",
      class: `read-block ${colour(read.r)}`,
      title,
      "aria-label": title,
      "aria-pressed": String(marked === block),
      onclick: () => select(run, { request: read.r, block: marked === block ? null : block }),
    },
    h("strong", {}, block),
    h("small", {}, `${from}–${last}`),
    h("span", { class: "track" }, h("i", { style: { width: `${(100 * used) / size}%` } })),
  );
}

/**
 * @param {number[]} written
 * @param {number} size
 */
function writesText(written, size) {
  if (!written.length) return "–";
  if (written.length > 1) return t("model.attention.slots", { n: written.length, slots: formatRanges(written) });
  return t("model.attention.slot", { slot: number(written[0]), block: Math.floor(written[0] / size), offset: written[0] % size });
}

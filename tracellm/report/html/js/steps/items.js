/** Images and sounds: the encoder in a step, and the selected request's items with a square for each token. */

import { h, s } from "../base/dom.js";
import { formatRanges } from "../base/ranges.js";
import { hasText, t, visible } from "../base/text.js";
import { colour, requestButton } from "../run/names.js";
import { select, selected } from "../run/selection.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Item} Item */
/** @typedef {import("../run/data.js").EncoderState} EncoderState */

/** Least and most of a picture's longest side in pixels, and the pixels of a square within these. */
const LEAST_SIDE = 192;
const MOST_SIDE = 320;
const SQUARE_SIDE = 7;
/** Squares along a side that lines part; more are too small. */
const MOST_SQUARES = 80;
const MOST_ENCODED = 64;

/**
 * Return the encoder's budget as a bar, its cache, and the items that the step encodes; null for a text model.
 * @param {Run} run
 * @param {import("../run/data.js").Step} step
 */
export function encoderPanel(run, { encoder }) {
  if (!encoder) return null;
  const used = encoder.items.reduce((sum, [, , tokens]) => sum + tokens, 0);
  const whole = Math.max(encoder.budget, used, 1);
  const sum = t("page.encoder.sum", { used, budget: encoder.budget });
  return h(
    "section",
    { class: "panel wide", "data-shows": "encoder" },
    h("h4", {}, t("page.encoder"), " ", h("small", {}, t("page.encoder.setting"))),
    h("p", { class: "sum" }, sum),
    h(
      "div",
      { class: "budget", role: "img", "aria-label": sum },
      ...encoder.items.map(([r, item, tokens]) =>
        h(
          "i",
          {
            class: colour(r),
            style: { width: `${(100 * tokens) / whole}%` },
            title: `${visible(run.requests[r].id)}: ${itemTitle(run.requests[r].items?.[item], item)}`,
            onclick: () => select(run, { request: r }),
          },
          tokens / whole > 0.04 && tokens,
        ),
      ),
    ),
    encoder.items.length
      ? h(
          "ol",
          { class: "queue" },
          ...encoder.items.slice(0, MOST_ENCODED).map(([r, item, tokens]) =>
            h("li", {}, requestButton(run, r), ` ${itemTitle(run.requests[r].items?.[item], item)} · ${t("common.tokens", { n: tokens })}`),
          ),
          encoder.items.length > MOST_ENCODED && h("li", {}, t("page.more", { n: encoder.items.length - MOST_ENCODED })),
        )
      : h("p", { class: "empty" }, t("page.encoder.none")),
    h("p", { class: "sum" }, cacheSum(encoder)),
    encoder.evicted.length > 0 && h("p", { class: "why" }, evictedSum(encoder)),
  );
}

/** @param {EncoderState} encoder */
function cacheSum({ size, free, freeable }) {
  return t("page.encoder.cache", { size, free, freeable, needed: size - free - freeable });
}

/** @param {EncoderState} encoder */
function evictedSum({ evicted }) {
  return t("page.encoder.evicted", { ids: evicted.join(t("step.comma")) });
}

/**
 * Return the selected request's items after a step: which of their tokens are computed, and in which blocks they are.
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 */
export function itemsPanel(run, replay, state) {
  const r = selected(run).request;
  const items = r === null ? [] : (run.requests[r].items ?? []);
  if (r === null || !items.length) return null;
  const computed = numComputed(replay, state, r);
  return h(
    "section",
    { class: "panel wide", "data-shows": "items" },
    h("h4", {}, t("page.items", { id: visible(run.requests[r].id) })),
    ...items.map((item, i) => {
      const own = Math.min(Math.max(computed - item.offset, 0), item.length);
      const blocks = itemBlocks(replay, state, r, item);
      const sources = item.sources?.filter(([n]) => n <= state.step.n); // Predict mode hides later steps
      return itemFigure(run, { ...item, sources }, i, own, [
        t("page.item.computed", { n: own, all: item.length }),
        ...(blocks.length ? [t("page.item.blocks", { blocks: formatRanges(blocks) })] : []),
      ]);
    }),
  );
}

/**
 * Return how many tokens of a request are computed after a step.
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 * @param {number} r
 */
function numComputed(replay, state, r) {
  const { steps } = replay.engine;
  for (let index = steps.indexOf(state.step); index >= 0; index -= 1) {
    const step = steps[index];
    const row = step.scheduled?.find((one) => one[0] === r);
    if (row) return row[1] + row[2];
    if (step.preempted?.includes(r)) return 0;
  }
  return 0;
}

/**
 * Return the KV cache blocks of an item's tokens, as far as the request has them.
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 * @param {number} r
 * @param {Item} item
 */
function itemBlocks(replay, state, r, item) {
  const { blockSize, numGroups } = replay.engine;
  if (!blockSize || numGroups !== 1) return [];
  return (state.tables.get(r) ?? []).slice(Math.floor(item.offset / blockSize), Math.ceil((item.offset + item.length) / blockSize));
}

/**
 * Return an item's picture with a square for each of its tokens, those not yet computed dimmed, and its facts.
 * @param {Run} run
 * @param {Item} item
 * @param {number} i
 * @param {number} computed tokens of the item
 * @param {string[]} more facts
 */
function itemFigure(run, item, i, computed, more) {
  const { picture, size, seconds, grid, offset, length, sources, cached } = item;
  const facts = [
    size && t("page.item.size", { width: size[0], height: size[1] }),
    seconds !== undefined && t("page.item.seconds", { seconds: Number(seconds.toPrecision(3)) }),
    grid && t("page.item.grid", { rows: grid[0], columns: grid[1] }),
    t("page.item.tokens", { n: length, first: offset, last: offset + length - 1 }),
    ...more,
    ...(sources ?? []).map(([n, source]) => t(`page.item.${source}`, { n })),
    cached && t("page.item.cached"),
  ];
  const link = picture === undefined ? undefined : run.pictures?.[picture];
  return h(
    "figure",
    { class: "item" },
    (grid || (size && link)) && frame(grid ?? [size?.[1] ?? 1, size?.[0] ?? 1], grid ? computed : Infinity, link, Boolean(grid)),
    h("figcaption", {}, h("strong", {}, itemTitle(item, i)), ...facts.map((fact) => fact && h("span", {}, fact))),
  );
}

/**
 * @param {[number, number]} shape rows and columns
 * @param {number} computed squares, row by row, that are not dimmed
 * @param {string | undefined} link the picture
 * @param {boolean} hasSquares
 */
function frame([rows, columns], computed, link, hasSquares) {
  const longest = Math.max(rows, columns);
  const scale = Math.min(Math.max(LEAST_SIDE, hasSquares ? SQUARE_SIDE * longest : 0), MOST_SIDE) / longest;
  const lines = hasSquares && longest <= MOST_SQUARES ? gridLines(rows, columns) : "";
  return s(
    "svg",
    {
      viewBox: `0 0 ${columns} ${rows}`,
      width: Math.max(1, Math.round(columns * scale)),
      height: Math.max(1, Math.round(rows * scale)),
      role: "img",
      "aria-label": t("page.item.picture"),
    },
    link && s("image", { href: link, width: columns, height: rows, preserveAspectRatio: "none" }),
    computed < rows * columns && s("path", { class: "pending", d: squaresFrom(rows, columns, computed) }),
    lines && s("path", { class: "casing", d: lines }),
    lines && s("path", { class: "lines", d: lines }),
  );
}

/**
 * Return the lines between squares as a path.
 * @param {number} rows
 * @param {number} columns
 */
export function gridLines(rows, columns) {
  const across = Array.from({ length: rows - 1 }, (_, y) => `M0 ${y + 1}H${columns}`);
  const down = Array.from({ length: columns - 1 }, (_, x) => `M${x + 1} 0V${rows}`);
  return [...across, ...down].join("");
}

/**
 * Return the squares from a number on, row by row, as a path of at most two rectangles.
 * @param {number} rows
 * @param {number} columns
 * @param {number} first
 */
export function squaresFrom(rows, columns, first) {
  const [y, x] = [Math.floor(first / columns), first % columns];
  const rest = x ? `M${x} ${y}H${columns}V${y + 1}H${x}Z` : "";
  const top = x ? y + 1 : y;
  return top < rows ? `${rest}M0 ${top}H${columns}V${rows}H0Z` : rest;
}

/**
 * Return an item's name in its request, and its kind.
 * @param {Item | undefined} item
 * @param {number} i
 */
export function itemTitle(item, i) {
  const key = `page.item.${item?.kind}`;
  return hasText(key) ? t(key, { item: i }) : `mm_features[${i}]: ${visible(item?.kind ?? "?")}`;
}

/** The KV cache as a map of blocks: owner by colour, shared, cached but free, evicted, null; and one block's history. */

import { h, scrollFrame } from "../base/dom.js";
import { parseRanges } from "../base/ranges.js";
import { t, tokenText, visible } from "../base/text.js";
import { colour, requestButton, tinyName } from "../run/names.js";
import { owners } from "../run/replay.js";
import { select, selected } from "../run/selection.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/replay.js").Replay} Replay */
/** @typedef {import("../run/replay.js").State} State */

const LEAST_BLOCKS = 16;
const MOST_BLOCKS = 3000;
const MOST_EVENTS = 40;

/**
 * Return the map of all blocks, and beside it the selected one.
 * @param {Run} run
 * @param {Replay} replay
 * @param {State} state
 */
export function blocksPanel(run, replay, state) {
  const { step } = state;
  const total = step.total ?? 0;
  const used = owners(state);
  const evicted = new Set(step.evicted ?? []);
  const fresh = new Set((step.blocks ?? []).flatMap(([, , ranges]) => parseRanges(ranges)));
  const lastUsed = lastBlock(replay);
  const shown = Math.min(total, Math.max(lastUsed, LEAST_BLOCKS), MOST_BLOCKS);
  const cachedFree = [...state.cached.keys()].filter((block) => !used.has(block)).length;
  const filled = fills(run, replay, state);
  const cells = [blockCell(run, 0, "null", t("page.block.null"), "∅")];
  for (let block = 1; block <= shown; block += 1) {
    const own = used.get(block) ?? [];
    const content = state.cached.get(block);
    const names = own.map((r) => visible(run.requests[r].id)).join(", ");
    if (own.length) {
      const fill = filled.get(block) ?? replay.engine.blockSize;
      const marks = [
        own.length > 1 ? "shared" : colour(own[0]),
        fresh.has(block) ? "fresh" : "",
        evicted.has(block) ? "evicted" : "",
      ].join(" ");
      const title = [
        t("page.block.used", { block, names }),
        t("page.block.fill", { n: fill, size: replay.engine.blockSize }),
        evicted.has(block) ? t("page.block.evicted") : "",
      ].join(" ");
      const label = own.length > 1 ? `×${own.length}` : tinyName(run.requests[own[0]]);
      cells.push(blockCell(run, block, marks, title, label, fill / (replay.engine.blockSize || 1)));
    } else if (content) {
      const title = t("page.block.cached", { block, name: visible(run.requests[content[0]].id) });
      cells.push(blockCell(run, block, `cached ${colour(content[0])}`, title, tinyName(run.requests[content[0]])));
    } else cells.push(blockCell(run, block, "free", t("page.block.free", { block }), ""));
  }
  return h(
    "section",
    { class: "panel wide", "data-shows": "blocks" },
    h("h4", {}, t("page.blocks"), " ", h("small", {}, t("page.blocks.lead", { size: replay.engine.blockSize }))),
    h("p", { class: "sum" }, t("page.blocks.sum", { used: total - step.free, free: step.free, total, cached: cachedFree })),
    step.inconsistent && h("p", { class: "why" }, t("page.blocks.inconsistent")),
    h(
      "ul",
      { class: "legend" },
      h("li", {}, h("i", { class: "cell r0" }, "0"), h("span", {}, t("page.legend.owner"))),
      h("li", {}, h("i", { class: "cell r0 fresh" }, "0"), h("span", {}, t("page.legend.fresh"))),
      h("li", {}, h("i", { class: "cell shared" }, "×2"), h("span", {}, t("page.legend.shared"))),
      h("li", {}, h("i", { class: "cell cached r0" }, "0"), h("span", {}, t("page.legend.cached"))),
      h("li", {}, h("i", { class: "cell evicted r1" }, "1"), h("span", {}, t("page.legend.evicted"))),
      h("li", {}, h("i", { class: "cell free" }), h("span", {}, t("page.legend.free"))),
      h("li", {}, h("i", { class: "cell null" }, "∅"), h("span", {}, t("page.legend.null"))),
    ),
    h("div", { class: "blocks", role: "group", "aria-label": t("page.blocks") }, ...cells),
    shown < total && h("p", { class: "empty" }, t("page.blocks.unused", { first: shown + 1, last: total, n: total - shown })),
    selected(run).block === null ? h("p", { class: "empty" }, t("page.block.choose")) : blockDetails(run, replay, state, used),
  );
}

/**
 * Return a block as a button.
 * @param {Run} run
 * @param {number} block
 * @param {string} kind
 * @param {string} title
 * @param {string} label
 * @param {number} [fill] share of its slots that hold a token
 */
function blockCell(run, block, kind, title, label, fill = 1) {
  return h(
    "button",
    {
      type: "button",
      class: `cell ${kind}`,
      title,
      "aria-label": title,
      "aria-pressed": String(selected(run).block === block),
      "data-block": block,
      onclick: () => select(run, { block: selected(run).block === block ? null : block }),
    },
    label,
    fill < 1 && h("i", { class: "unfilled", style: { height: `${100 * (1 - fill)}%` } }),
  );
}

/**
 * Return the number of tokens in each block that is not full after this step.
 * @param {Run} run
 * @param {Replay} replay
 * @param {State} state
 */
function fills(run, replay, state) {
  const size = replay.engine.blockSize;
  /** @type {Map<number, number>} */
  const found = new Map();
  if (!size || replay.engine.numGroups !== 1) return found;
  for (const [r, tokens, computed] of state.step.scheduled ?? []) {
    const table = state.tables.get(r) ?? [];
    table.forEach((block, i) => {
      const inside = Math.min(size, Math.max(0, computed + tokens - i * size));
      if (inside < size) found.set(block, inside);
    });
  }
  return found;
}

/** @type {WeakMap<Replay, number>} */
const lastBlocks = new WeakMap();

/**
 * Return the highest block that the run ever used.
 * @param {Replay} replay
 */
function lastBlock(replay) {
  let last = lastBlocks.get(replay);
  if (last === undefined) {
    last = 0;
    for (const step of replay.engine.steps) {
      for (const [, hit, fresh] of step.blocks ?? []) {
        for (const block of [...parseRanges(hit), ...parseRanges(fresh)]) last = Math.max(last, block);
      }
    }
    lastBlocks.set(replay, last);
  }
  return last;
}

/**
 * Return the tokens that the selected block holds, its chain of blocks, and its history.
 * @param {Run} run
 * @param {Replay} replay
 * @param {State} state
 * @param {Map<number, number[]>} used
 */
function blockDetails(run, replay, state, used) {
  const block = /** @type {number} */ (selected(run).block);
  if (block === 0) return h("div", { class: "block-details" }, h("p", {}, t("page.block.null")));
  const own = used.get(block) ?? [];
  const content = state.cached.get(block);
  const holder = own.length ? own[0] : content?.[0];
  const index = own.length ? (state.tables.get(own[0]) ?? []).indexOf(block) : content?.[1];
  return h(
    "div",
    { class: "block-details" },
    h("h5", {}, t("page.block", { block })),
    holder === undefined || index === undefined
      ? h("p", {}, t("page.block.free", { block }))
      : h(
          "div",
          {},
          h(
            "p",
            {},
            own.length ? t("page.block.owners") : t("page.block.was"),
            " ",
            ...(own.length ? own : [holder]).flatMap((r) => [requestButton(run, r), " "]),
            content ? ` · ${t("page.block.hashed")}` : "",
          ),
          blockTokens(run, replay, state, block, holder, index),
          replay.engine.prefixCaching && content && hashChain(run, replay, state, holder, index),
        ),
    blockHistory(run, replay, block),
  );
}

/**
 * @param {Run} run
 * @param {Replay} replay
 * @param {State} state
 * @param {number} block
 * @param {number} r
 * @param {number} index
 */
function blockTokens(run, replay, state, block, r, index) {
  const size = replay.engine.blockSize;
  const row = (state.step.scheduled ?? []).find((one) => one[0] === r);
  const end = row ? row[2] + row[1] : Infinity;
  const positions = Array.from({ length: size }, (_, i) => index * size + i);
  return scrollFrame(
    t("page.block.tokens"),
    h(
      "table",
      { class: "grid" },
      h("tr", {}, h("th", { scope: "row" }, t("page.offset")), ...positions.map((_, i) => h("td", {}, i))),
      h("tr", {}, h("th", { scope: "row" }, t("page.position")), ...positions.map((position) => h("td", {}, position))),
      h("tr", {}, h("th", { scope: "row" }, t("page.block.slot", { size })), ...positions.map((_, i) => h("td", {}, block * size + i))),
      h(
        "tr",
        {},
        h("th", { scope: "row" }, t("page.token")),
        ...positions.map((position) => {
          const token = position < end ? replay.token(r, position) : null;
          return h("td", {}, h("span", { class: "token" }, token ? tokenText(run.tokens[token.id]) : ""));
        }),
      ),
    ),
  );
}

/**
 * Return the blocks before it whose hashes its hash is made from.
 * @param {Run} run
 * @param {Replay} replay
 * @param {State} state
 * @param {number} r
 * @param {number} index
 */
function hashChain(run, replay, state, r, index) {
  const table = state.tables.get(r);
  const before = table ? table.slice(0, index + 1) : [];
  if (before.length < 2) return null;
  return h(
    "p",
    { class: "chain" },
    `${t("page.block.chain")} `,
    ...before.flatMap((block, i) => [
      i ? " → " : "",
      h("button", { type: "button", class: "link", onclick: () => select(run, { block }) }, block),
    ]),
  );
}

/**
 * Return the steps in which a block changed: got an owner, became full, was evicted, given back.
 * @param {Run} run
 * @param {Replay} replay
 * @param {number} block
 */
function blockHistory(run, replay, block) {
  /** @type {[number, string][]} */
  const events = [];
  /** @type {Set<number>} */
  let holders = new Set();
  replay.engine.steps.forEach((step, index) => {
    for (const r of step.released ?? []) {
      if (holders.delete(r)) events.push([index, t("page.event.released", { name: visible(run.requests[r].id) })]);
    }
    if (step.evicted?.includes(block)) events.push([index, t("page.event.evicted")]);
    for (const [r, hit, fresh] of step.blocks ?? []) {
      const name = visible(run.requests[r].id);
      if (parseRanges(fresh).includes(block)) {
        holders.add(r);
        events.push([index, t("page.event.allocated", { name })]);
      } else if (parseRanges(hit).includes(block)) {
        holders.add(r);
        events.push([index, t("page.event.hit", { name })]);
      }
    }
    for (const [cached] of step.cached ?? []) if (cached === block) events.push([index, t("page.event.cached")]);
  });
  return h(
    "div",
    {},
    h("h5", {}, t("page.block.history")),
    events.length
      ? h(
          "ol",
          { class: "history" },
          ...events.slice(0, MOST_EVENTS).map(([index, what]) =>
            h(
              "li",
              { class: index === selected(run).step ? "now" : "" },
              h(
                "button",
                { type: "button", class: "link", onclick: () => select(run, { step: index }) },
                t("page.step", { n: replay.engine.steps[index].n }),
              ),
              ` ${what}`,
            ),
          ),
          events.length > MOST_EVENTS && h("li", {}, t("page.more.events", { n: events.length - MOST_EVENTS })),
        )
      : h("p", { class: "empty" }, t("page.block.never")),
  );
}

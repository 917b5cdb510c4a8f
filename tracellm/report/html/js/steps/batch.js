/** The batch that the model runner builds for a step: input ids, positions, slot mapping, block tables. */

import { h, scrollFrame } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { formatRanges } from "../base/ranges.js";
import { t, tokenText } from "../base/text.js";
import { requestButton } from "../run/names.js";
import { slots } from "../run/replay.js";
import { select } from "../run/selection.js";

/** @typedef {import("../run/data.js").Run} Run */

const MOST_BATCH_TOKENS = 48;
const MOST_BATCH_REQUESTS = 32;

/**
 * Return the batch, a table per request of its tokens in this step.
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 */
export function batchPanel(run, replay, state) {
  const scheduled = state.step.scheduled ?? [];
  const starts = [0];
  for (const [, tokens] of scheduled) starts.push(/** @type {number} */ (starts.at(-1)) + tokens);
  const total = /** @type {number} */ (starts.at(-1));
  return h(
    "section",
    { class: "panel wide", "data-shows": "tokens" },
    h("h4", {}, t("page.batch"), " ", h("small", {}, t("page.batch.lead"))),
    scheduled.length
      ? h(
          "dl",
          { class: "arrays" },
          arrayFact("input_ids, positions, slot_mapping", `[${number(total)}]`),
          arrayFact("query_start_loc", `[${scheduled.length + 1}] = ${shortList(starts)}`),
          arrayFact("seq_lens", `[${scheduled.length}] = ${shortList(scheduled.map(([, tokens, computed]) => computed + tokens))}`),
          arrayFact("block_table", `[${scheduled.length}, ${Math.max(...scheduled.map(([r]) => state.tables.get(r)?.length ?? 0))}]`),
        )
      : h("p", { class: "empty" }, t("step.kind.empty")),
    ...scheduled.slice(0, MOST_BATCH_REQUESTS).map((row) => requestTokens(run, replay, state, row)),
    scheduled.length > MOST_BATCH_REQUESTS && h("p", { class: "empty" }, t("page.more", { n: scheduled.length - MOST_BATCH_REQUESTS })),
  );
}

/**
 * @param {string} name
 * @param {string} value
 */
function arrayFact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

/** @param {number[]} values */
function shortList(values) {
  return `[${values.slice(0, 12).join(", ")}${values.length > 12 ? ", …" : ""}]`;
}

/**
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 * @param {[number, number, number, number, number]} row
 */
function requestTokens(run, replay, state, [r, tokens, computed]) {
  const engine = replay.engine;
  const found = slots(state, engine, r);
  const table = state.tables.get(r) ?? [];
  const shown = Math.min(tokens, MOST_BATCH_TOKENS);
  const positions = Array.from({ length: shown }, (_, i) => computed + i);
  /** @param {string} name @param {(position: number, i: number) => Node | string | number} cell */
  const line = (name, cell) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      ...positions.map((position, i) => h("td", {}, cell(position, i))),
      shown < tokens && h("td", {}, "…"),
    );
  return h(
    "div",
    { class: "tokens-of" },
    h(
      "p",
      {},
      requestButton(run, r),
      " ",
      t("page.batch.request", { n: tokens, before: computed, after: computed + tokens }),
      table.length ? " · " : "",
      table.length ? h("span", { class: "mono" }, `block_table = [${formatRanges(table)}]`) : "",
    ),
    scrollFrame(
      t("page.batch.tokens"),
      h(
        "table",
        { class: "grid" },
        line(t("page.token"), (position) => {
          const token = replay.token(r, position);
          return h("span", { class: "token" }, token ? tokenText(run.tokens[token.id]) : "?");
        }),
        line("input_ids", (position) => replay.token(r, position)?.id ?? "?"),
        line("positions", (position) => position),
        found.length
          ? line("slot_mapping", (_, i) => {
              const block = Math.floor(found[i] / engine.blockSize);
              const title = t("page.slot", { slot: found[i], block, offset: found[i] % engine.blockSize });
              return h("button", { type: "button", class: "link", title, onclick: () => select(run, { block }) }, found[i]);
            })
          : null,
      ),
    ),
  );
}

/** All requests as a table that can be sorted, and the selected one: its first token explained, its tokens by step. */

import { h } from "./dom.js";
import { finishReason, requestButton } from "./names.js";
import { select, selected } from "./selection.js";
import { duration, number, t, tokenText, visible } from "./text.js";

/** @typedef {import("./data.js").Run} Run */
/** @typedef {import("./data.js").Request} Request */
/** @typedef {import("./replay.js").Replay} Replay */

const MOST_REQUEST_ROWS = 500;
const MOST_PROMPT_TOKENS = 400;
const MOST_OUTPUT_TOKENS = 1000;

/** @type {Record<string, (request: Request) => number | string>} */
const COLUMNS = {
  id: (request) => request.name ?? request.id,
  prompt: (request) => request.numPrompt ?? 0,
  hit: (request) => request.hit ?? 0,
  output: (request) => request.numOutput ?? 0,
  queued: (request) => request.queued ?? -1,
  prefill: (request) => request.prefill ?? -1,
  first: (request) => request.first ?? -1,
  decode: (request) => request.decode ?? -1,
  preemptions: (request) => request.preemptions ?? 0,
  reason: (request) => request.reason ?? "",
};
const TIMES = ["queued", "prefill", "first", "decode"];

const sorting = { column: "", down: false };

/**
 * Return the requests' rows in the chosen order: submission, or a column's values.
 * @param {Request[]} requests
 * @param {string} column
 * @param {boolean} down
 * @returns {number[]}
 */
export function sortRequests(requests, column, down) {
  const rows = [...requests.keys()];
  if (!column) return rows;
  const value = COLUMNS[column];
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  rows.sort((one, other) => {
    const [a, b] = [value(requests[one]), value(requests[other])];
    return (typeof a === "number" && typeof b === "number" ? a - b : compare(String(a), String(b))) || one - other;
  });
  return down ? rows.reverse() : rows;
}

/**
 * Return the table, and below it the selected request.
 * @param {Run} run
 * @param {Replay} replay
 * @param {() => void} update shows the table again
 */
export function requestTable(run, replay, update) {
  const rows = sortRequests(run.requests, sorting.column, sorting.down);
  /** @param {string} column */
  const sort = (column) => {
    sorting.down = sorting.column === column && !sorting.down;
    sorting.column = column;
    update();
  };
  return [
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": t("page.requests") },
      h(
        "table",
        { class: "request-table" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ...Object.keys(COLUMNS).map((column) =>
              h(
                "th",
                {
                  scope: "col",
                  class: column === "id" || column === "reason" ? "" : "number",
                  "aria-sort": sorting.column === column ? (sorting.down ? "descending" : "ascending") : "none",
                },
                h("button", { type: "button", class: "sort", onclick: () => sort(column) }, t(`page.requests.${column}`)),
              ),
            ),
          ),
        ),
        h("tbody", {}, ...rows.slice(0, MOST_REQUEST_ROWS).map((r) => requestRow(run, r))),
      ),
    ),
    rows.length > MOST_REQUEST_ROWS && h("p", { class: "empty" }, t("page.more", { n: rows.length - MOST_REQUEST_ROWS })),
    selected.request !== null && requestDetails(run, replay, selected.request),
  ].filter((part) => part !== false);
}

/**
 * @param {Run} run
 * @param {number} r
 */
function requestRow(run, r) {
  const request = run.requests[r];
  return h(
    "tr",
    { class: selected.request === r ? "chosen" : "" },
    ...Object.entries(COLUMNS).map(([column, value]) => {
      const label = { "data-label": t(`page.requests.${column}`) };
      if (column === "id") return h("th", { scope: "row", ...label }, requestButton(run, r));
      if (column === "reason") return h("td", label, request.reason ? finishReason(request.reason) : t("page.requests.open"));
      const found = Number(value(request));
      const shown = TIMES.includes(column) ? (found < 0 ? "" : duration(found)) : number(found);
      return h("td", { class: "number", ...label }, shown);
    }),
  );
}

/**
 * Return a request's prompt, its first token explained, and its output, each token with its step.
 * @param {Run} run
 * @param {Replay} replay
 * @param {number} r
 */
function requestDetails(run, replay, r) {
  const request = run.requests[r];
  const prompt = (request.promptTokens ?? []).slice(0, MOST_PROMPT_TOKENS);
  const outputs = replay.outputs.get(r) ?? [];
  const { queued = 0, prefill = 0 } = request;
  const whole = Math.max(queued + prefill, 1);
  return h(
    "div",
    { class: "panel request-details" },
    h("h4", {}, t("page.request", { id: visible(request.id) })),
    request.first === undefined
      ? null
      : h(
          "div",
          {},
          h("p", { class: "sum" }, t("page.first.token", { time: duration(request.first), queued: duration(queued), prefill: duration(prefill) })),
          h(
            "div",
            { class: "budget time-bar", role: "img", "aria-label": t("page.requests.first") },
            h("i", { class: "part queued", style: { width: `${(100 * queued) / whole}%` } }),
            h("i", { class: "part forward", style: { width: `${(100 * prefill) / whole}%` } }),
          ),
          h(
            "ul",
            { class: "legend" },
            h("li", {}, h("i", { class: "part queued" }), t("page.requests.queued")),
            h("li", {}, h("i", { class: "part forward" }), t("page.requests.prefill")),
          ),
        ),
    prompt.length
      ? h(
          "p",
          { class: "so-far" },
          h("small", {}, `${t("page.prompt")} `),
          ...prompt.map((id, position) => h("span", { class: "piece", title: t("page.position.of", { position, id }) }, tokenText(run.tokens[id]))),
          (request.numPrompt ?? 0) > prompt.length ? ` ${t("page.more", { n: (request.numPrompt ?? 0) - prompt.length })}` : "",
        )
      : null,
    outputs.length
      ? h(
          "p",
          { class: "so-far" },
          h("small", {}, `${t("page.output")} `),
          ...outputs.slice(0, MOST_OUTPUT_TOKENS).map(({ step, row }) =>
            h(
              "button",
              {
                type: "button",
                class: step === selected.step ? "piece now" : "piece",
                title: t("page.step", { n: replay.engine.steps[step].n }),
                onclick: () => select({ step }),
              },
              row[1] === null ? "•" : tokenText(run.tokens[row[1]]),
            ),
          ),
          outputs.length > MOST_OUTPUT_TOKENS ? ` ${t("page.more", { n: outputs.length - MOST_OUTPUT_TOKENS })}` : "",
        )
      : null,
  );
}

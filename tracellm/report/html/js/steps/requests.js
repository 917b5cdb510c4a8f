/**
 * All requests as a table that can be sorted, and the selected one: its first token explained, its tokens by step. HTTP
 * requests that were refused have rows among them.
 */

import { h, scrollFrame } from "../base/dom.js";
import { duration, number, percent, threeDigits } from "../base/quantities.js";
import { t, tokenText, visible } from "../base/text.js";
import { forbiddingMask } from "../run/data.js";
import { finishReason, requestButton } from "../run/names.js";
import { select, selected } from "../run/selection.js";
import { itemTitle } from "./items.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Request} Request */
/** @typedef {import("../run/data.js").Refused} Refused */
/** @typedef {import("../run/replay.js").Replay} Replay */

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
  reason: (request) => ("answer" in request ? String(request.answer) : (request.stoppedBy ?? request.reason ?? "")),
};
const TIMES = ["queued", "prefill", "first", "decode"];

/**
 * Return the rows in the chosen order: arrival, or a column's values.
 * @param {(Request | Refused)[]} requests
 * @param {string} column
 * @param {boolean} down
 * @returns {number[]}
 */
export function sortRequests(requests, column, down) {
  const rows = [...requests.keys()];
  const value = COLUMNS[column] ?? ((/** @type {Request} */ request) => request.at ?? Infinity);
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  rows.sort((one, other) => {
    const [a, b] = [value(requests[one]), value(requests[other])];
    return (typeof a === "number" && typeof b === "number" ? a - b : compare(String(a), String(b))) || one - other;
  });
  return down ? rows.reverse() : rows;
}

/**
 * Return the table with the selected request below it, and a function that brings both up to date.
 * @param {Run} run
 * @param {Replay[]} replays
 * @returns {{element: HTMLElement, update: () => void}}
 */
export function requestTable(run, replays) {
  let column = "";
  let down = false;
  const refused = run.refused ?? [];
  const all = [...run.requests, ...refused];
  /** @type {HTMLElement[]} */
  const rows = []; // with holes: a row is made when it is shown
  /** @param {number} r */
  const row = (r) => (rows[r] ??= r < run.requests.length ? requestRow(run, r) : refusedRow(refused[r - run.requests.length]));
  const body = h("tbody");
  const details = h("div");
  const heads = Object.keys(COLUMNS).map((name) =>
    h(
      "th",
      { scope: "col", class: name === "id" || name === "reason" ? "" : "number", "data-column": name },
      h("button", { type: "button", class: "sort", onclick: () => sortBy(name) }, t(`page.requests.${name}`)),
    ),
  );
  /** @param {string} name */
  const sortBy = (name) => {
    down = name !== "" && column === name && !down;
    column = name;
    const order = sortRequests(all, column, down);
    body.replaceChildren(...order.slice(0, MOST_REQUEST_ROWS).map(row));
    markChosen();
    for (const head of heads) {
      head.setAttribute("aria-sort", head.dataset.column !== column ? "none" : down ? "descending" : "ascending");
    }
  };
  const markChosen = () => {
    rows.forEach((row, r) => {
      const chosen = selected(run).request === r;
      row.classList.toggle("chosen", chosen);
      row.querySelector(".request-chip")?.setAttribute("aria-pressed", String(chosen));
    });
  };
  const update = () => {
    markChosen();
    const chosen = selected(run).request;
    details.replaceChildren(...(chosen === null ? [] : [requestDetails(run, replays[selected(run).engine], chosen)]));
  };
  sortBy("");
  const more = Math.max(0, all.length - MOST_REQUEST_ROWS) + (run.moreRefused ?? 0);
  const element = h(
    "div",
    {},
    scrollFrame(
      t("page.requests"),
      h("table", { class: "request-table" }, h("thead", {}, h("tr", {}, ...heads)), body),
    ),
    more > 0 && h("p", { class: "empty" }, t("page.more", { n: more })),
    details,
  );
  return { element, update };
}

/**
 * @param {Run} run
 * @param {number} r
 */
function requestRow(run, r) {
  const request = run.requests[r];
  return h(
    "tr",
    {},
    ...Object.entries(COLUMNS).map(([column, value]) => {
      const label = { "data-label": t(`page.requests.${column}`) };
      if (column === "id") return h("th", { scope: "row", ...label }, requestButton(run, r));
      if (column === "reason") return h("td", label, value(request) ? finishReason(String(value(request))) : t("page.requests.open"));
      const found = Number(value(request));
      const shown = TIMES.includes(column) ? (found < 0 ? "" : duration(found)) : number(found);
      const again = column === "hit" && request.hitAgain ? t("page.requests.again", { n: request.hitAgain }) : "";
      return h("td", { class: "number", ...label }, shown, again && h("small", {}, ` ${again}`));
    }),
  );
}

/**
 * Return the row of an HTTP request that was refused, with its reason.
 * @param {Refused} request
 */
function refusedRow({ id, client, answer, error }) {
  const why = error ? `${answer ?? ""}: ${visible(error)}` : (answer ?? "");
  return h(
    "tr",
    { class: "refused" },
    h("th", { scope: "row", "data-label": t("page.requests.id") }, visible(id), client ? h("small", {}, ` ${visible(client)}`) : ""),
    h("td", { colspan: Object.keys(COLUMNS).length - 1, "data-label": t("page.requests.reason") }, why),
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
  const { queued = 0, prefill = 0, numOutput: delivered = outputs.length } = request;
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
          h("p", { class: "sum" }, ...firstToken(request, Math.min(outputs.length || delivered, delivered))),
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
          ...promptPieces(run, request.items ?? [], prompt),
          (request.numPrompt ?? 0) > prompt.length ? ` ${t("page.more", { n: (request.numPrompt ?? 0) - prompt.length })}` : "",
        )
      : null,
    outputs.length
      ? h(
          "p",
          { class: "so-far" },
          h("small", {}, `${t("page.output")} `),
          ...outputs.slice(0, MOST_OUTPUT_TOKENS).map((output) => outputPiece(run, replay, output)),
          outputs.length > MOST_OUTPUT_TOKENS ? ` ${t("page.more", { n: outputs.length - MOST_OUTPUT_TOKENS })}` : "",
          delivered < outputs.length ? h("small", {}, ` ${t("page.output.delivered", { sampled: outputs.length, delivered })}`) : "",
        )
      : null,
    outputs.some(({ row }) => forbiddingMask(row)) ? h("p", {}, h("small", {}, t("step.grammar.marked"))) : null,
  );
}

/**
 * Return an output token, which leads to its step; marked if a grammar forbade a likelier one.
 * @param {Run} run
 * @param {Replay} replay
 * @param {import("../run/replay.js").Output} output
 */
function outputPiece(run, replay, { step, row }) {
  const { n } = replay.engine.steps[step];
  const [token, mask] = [tokenText(run.tokens[row[1]]), forbiddingMask(row)];
  const [likeliest, probability] = mask ? mask[2] : [];
  const title = mask
    ? t("step.grammar.piece", { n, forbidden: tokenText(run.tokens[likeliest]), p: percent(probability), token })
    : t("page.step", { n });
  const now = step === selected(run).step ? " now" : "";
  return h("button", { type: "button", class: `piece${now}${mask ? " forced" : ""}`, title, onclick: () => select(run, { step }) }, token);
}

/**
 * Return the tokens of a prompt; those of an image or sound are one piece.
 * @param {Run} run
 * @param {import("../run/data.js").Item[]} items
 * @param {number[]} prompt token ids
 */
function promptPieces(run, items, prompt) {
  return prompt.map((id, position) => {
    const i = items.findIndex(({ offset, length }) => offset <= position && position < offset + length);
    if (i < 0) return h("span", { class: "piece", title: t("page.position.of", { position, id }) }, tokenText(run.tokens[id]));
    const { offset, length } = items[i];
    const title = t("page.item.tokens", { n: length, first: offset, last: offset + length - 1 });
    return position === offset && h("span", { class: "piece placeholders", title }, `${itemTitle(items[i], i)} ×${length}`);
  });
}

/**
 * Return sentences about the time to the first token, and the pace of the others.
 * @param {Request} request
 * @param {number} sampled number of tokens
 */
function firstToken({ first = 0, queued = 0, prefill = 0, decode }, sampled) {
  const sentences = [t("page.first.token", { time: duration(first), queued: duration(queued), prefill: duration(prefill) })];
  if (decode && sampled > 1) {
    const each = decode / (sampled - 1);
    sentences.push(" ", t("page.pace", { time: duration(each), rate: threeDigits(1e6 / each) }));
  }
  return sentences;
}

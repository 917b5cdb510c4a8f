/** A step's queues and token budget: running and waiting requests, the reasons to wait, and the use of the budget. */

import { h } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { formatRanges } from "../base/ranges.js";
import { t, visible } from "../base/text.js";
import { colour, computedTokens, finishReason, heldReason, requestButton, tinyName, tokenSum } from "../run/names.js";
import { phases } from "../run/replay.js";
import { select, selected } from "../run/selection.js";
import { addressOf, findFunction } from "../source/functions.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */

const MOST_QUEUED = 64;
/** Size of the drawn part of the token budget, in multiples of the used part. */
const MOST_UNUSED = 4;

/**
 * Return the running queue: each request's tokens in this step, and the reason for fewer than it needed.
 * @param {Run} run
 * @param {import("../run/replay.js").State} state
 */
export function runningPanel(run, state) {
  const { step } = state;
  const scheduled = new Map((step.scheduled ?? []).map((row) => [row[0], row]));
  const held = new Map((step.held ?? []).map((row) => [row[0], row]));
  const finished = new Map(step.finished ?? []);
  const running = step.running ?? [];
  const { maxNumSeqs: limit, blockSize } = run.engines[selected(run).engine];
  return queuePanel(
    "running",
    t("page.running", { n: running.length }) + (limit ? t("page.running.limit", { n: limit }) : ""),
    running.map((r) => {
      const row = scheduled.get(r);
      const why = held.get(r);
      const notes = [];
      if (row) {
        const phase = row[3] ? "decode" : "prefill";
        notes.push(h("span", { class: `tag ${phase}` }, t(`page.${phase}`)), ` ${computedTokens(row, blockSize)}`);
      } else notes.push(t("page.idle"));
      if (step.new?.includes(r)) notes.push(` · ${t("page.new")}`);
      if (step.resumed?.includes(r)) notes.push(` · ${t("page.resumed")}`);
      if (finished.has(r)) notes.push(` · ${t("page.finished", { why: finishReason(finished.get(r) ?? "") })}`);
      return queueEntry(run, r, notes, why);
    }),
    0,
  );
}

/**
 * Return the waiting queue, each request with the reason why it waits, and the blocks that a preempted one lost.
 * @param {Run} run
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 */
export function waitingPanel(run, replay, state) {
  const { step } = state;
  const held = new Map((step.held ?? []).map((row) => [row[0], row]));
  const waiting = step.waiting ?? [];
  return queuePanel(
    "waiting",
    t("page.waiting", { n: waiting.length + (step.moreWaiting ?? 0) }),
    waiting.map((r) => {
      const why = held.get(r);
      const since = preemptedIn(run, step, r);
      /** @type {(Node | string)[]} */
      const notes = since === null ? [] : [h("span", { class: "tag bad" }, since === step.n ? t("page.preempted") : t("page.preempted.in", { n: since }))];
      const lost = step.preempted?.includes(r) ? lostBlocks(replay, state, r) : "";
      if (lost) notes.push(` ${lost}`);
      return queueEntry(run, r, notes, why);
    }),
    step.moreWaiting ?? 0,
  );
}

/**
 * Return the blocks that a request lost in this step, and those of them whose content is still cached.
 * @param {import("../run/replay.js").Replay} replay
 * @param {import("../run/replay.js").State} state
 * @param {number} r
 */
function lostBlocks(replay, state, r) {
  const index = replay.engine.steps.indexOf(state.step);
  const blocks = (index > 0 && replay.at(index - 1).tables.get(r)) || [];
  if (!blocks.length) return "";
  const cached = blocks.filter((block) => state.cached.get(block)?.[0] === r);
  return t("page.lost", { n: blocks.length, blocks: formatRanges(blocks), cached: cached.length ? formatRanges(cached) : "–" });
}

/**
 * Return the number of the step that preempted a waiting request; null if it has not run yet.
 * @param {Run} run
 * @param {Step} step
 * @param {number} r
 */
export function preemptedIn(run, step, r) {
  const { steps } = run.engines[selected(run).engine];
  return preemptions(steps).get(r)?.findLast((n) => n <= step.n) ?? null;
}

/** @type {WeakMap<Step[], Map<number, number[]>>} */
const preemptionsOf = new WeakMap();

/**
 * Return the numbers of the steps that preempted each request, in order.
 * @param {Step[]} steps
 */
function preemptions(steps) {
  let found = preemptionsOf.get(steps);
  if (!found) {
    found = new Map();
    for (const { n, preempted } of steps) for (const r of preempted ?? []) found.set(r, [...(found.get(r) ?? []), n]);
    preemptionsOf.set(steps, found);
  }
  return found;
}

/**
 * @param {string} shows
 * @param {string} title
 * @param {HTMLElement[]} entries
 * @param {number} unlisted
 */
function queuePanel(shows, title, entries, unlisted) {
  const more = unlisted + Math.max(0, entries.length - MOST_QUEUED);
  return h(
    "section",
    { class: "panel", "data-shows": shows },
    h("h4", {}, title),
    entries.length || more
      ? h("ol", { class: "queue" }, ...entries.slice(0, MOST_QUEUED), more > 0 && h("li", {}, t("page.more", { n: more })))
      : h("p", { class: "empty" }, t("page.nobody")),
  );
}

/**
 * @param {Run} run
 * @param {number} r
 * @param {(Node | string)[]} notes
 * @param {[r: number, code: string, details: string] | undefined} why
 */
function queueEntry(run, r, notes, why) {
  return h("li", {}, requestButton(run, r), " ", ...notes, why && h("p", { class: "why" }, heldReason(why[1], why[2], run.requests[r].id), ...sourceLink(run, why[1])));
}

/**
 * Return a link to the scheduler's lines behind a reason.
 * @param {Run} run
 * @param {string} code
 */
function sourceLink(run, code) {
  const part = code.startsWith("preempted") ? "_preempt" : "_schedule_waiting";
  const { source } = run;
  const full = findFunction(source, `Scheduler.${part}`) ?? findFunction(source, "Scheduler.schedule");
  return source && full !== null ? [" ", h("a", { href: `#source=${encodeURIComponent(addressOf(source, full))}` }, t("page.source"))] : [];
}

/**
 * Return the token budget as a bar: a part for each scheduled request, prefill and decode apart, and what is left. Of
 * a budget that is hardly used, only the first part is drawn.
 * @param {Run} run
 * @param {Step} step
 */
export function budgetPanel(run, step) {
  const [prefill, decode] = phases(step);
  const budget = step.budget ?? 0;
  const whole = Math.max(budget, prefill + decode, 1);
  const drawn = Math.min(whole, MOST_UNUSED * (prefill + decode) || whole);
  const ordered = [...(step.scheduled ?? [])].sort((one, other) => other[3] - one[3]);
  const summary = tokenSum(step);
  return h(
    "section",
    { class: "panel wide", "data-shows": "tokens" },
    h("h4", {}, t("page.budget"), " ", h("small", {}, t("page.budget.setting"))),
    h("p", { class: "sum" }, summary),
    h(
      "div",
      { class: drawn < whole ? "budget cut" : "budget", role: "img", "aria-label": summary },
      ...ordered.map(([r, tokens, , isDecode]) =>
        h(
          "i",
          {
            class: `${colour(r)} ${isDecode ? "decode" : "prefill"}`,
            style: { width: `${(100 * tokens) / drawn}%` },
            title: `${visible(run.requests[r].id)}: ${t("common.tokens", { n: tokens })}, ${t(isDecode ? "page.decode" : "page.prefill")}`,
            onclick: () => select(run, { request: r }),
          },
          tokens / drawn > 0.04 && tinyName(run.requests[r]),
        ),
      ),
    ),
    h("p", { class: "scale" }, h("span", {}, "0"), h("span", {}, drawn < whole ? t("page.budget.cut", { drawn, whole }) : number(whole))),
  );
}

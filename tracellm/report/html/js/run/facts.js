/** A step as plain data, for the browser's console and for tests. */

import { candidatePairs } from "./data.js";
import { heldReason } from "./names.js";
import { phases, slots } from "./replay.js";
import { selected, stepIndex } from "./selection.js";

/** @typedef {import("./data.js").Run} Run */
/** @typedef {import("./replay.js").Replay} Replay */

/**
 * Return the engine and the index of step `n`: the selected engine's, or else the first engine's that has it.
 * @param {import("./selection.js").Selectable} run
 * @param {number} n
 */
export function findStep(run, n) {
  for (const engine of [selected(run).engine, ...run.engines.keys()]) {
    const index = run.engines[engine] ? stepIndex(run.engines[engine], n) : -1;
    if (index >= 0) return [engine, index];
  }
  throw new RangeError(`no step ${n}`);
}

/**
 * Return what is known of a step, with requests by their ids.
 * @param {Run} run
 * @param {Replay} replay
 * @param {number} index
 */
export function stepFacts(run, replay, index) {
  const state = replay.at(index);
  const { step } = state;
  /** @param {number} r */
  const id = (r) => run.requests[r].id;
  /** @template T @param {[number, T][]} rows @returns {Record<string, T>} */
  const byId = (rows) => Object.fromEntries(rows.map(([r, value]) => [id(r), value]));
  const held = new Map((step.held ?? []).map((row) => [row[0], row]));
  const [prefill, decode] = phases(step);
  /** @param {number[]} listed */
  const candidates = (listed) => candidatePairs(listed).map(([token, prob]) => ({ token, text: run.tokens[token], prob }));
  return {
    step: step.n,
    kind: step.kind,
    budget: step.budget ?? 0,
    waiting: (step.waiting ?? []).map((r) => {
      const why = held.get(r);
      return { id: id(r), reason: why?.[1] ?? null, why: why ? heldReason(why[1], why[2], id(r)) : "" };
    }),
    running: (step.running ?? []).map(id),
    scheduled: byId((step.scheduled ?? []).map(([r, tokens]) => [r, tokens])),
    prefill,
    decode,
    blocks: byId([...state.tables]),
    free: step.free,
    slots: byId((step.scheduled ?? []).map(([r]) => [r, slots(state, replay.engine, r)])),
    sampled: byId(
      (step.sampled ?? []).map(([r, token, prob, listed]) => [
        r,
        { token, text: token === null ? null : (run.tokens[token] ?? null), prob, top: candidates(listed ?? []) },
      ]),
    ),
    preempted: (step.preempted ?? []).map(id),
    resumed: (step.resumed ?? []).map(id),
    finished: byId(step.finished ?? []),
    evicted: step.evicted ?? [],
    cached: (step.cached ?? []).map(([block]) => block),
  };
}

/**
 * Pairs of steps of two runs, and what differs in each.
 *
 * Both runs have the requests of a pair in rows of the same number (see `tracellm.report.diff.page`).
 */

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */

/**
 * @typedef {object} Pair
 * @property {number} n number of the pair, from 1
 * @property {[engine: number, index: number] | null} a position of A's step; null if only B has one
 * @property {[engine: number, index: number] | null} b
 * @property {string[]} differs kind, requests, tokens, blocks, sampled: as `tracellm.trace.compare` found them
 *
 * @typedef {object} Pairs the page's data
 * @property {string} lang
 * @property {Record<string, Record<string, string>>} texts
 * @property {Run} a
 * @property {Run} b
 * @property {{a: string, b: string}} names
 * @property {Pair[]} pairs
 */

/**
 * Return the requests of which two steps differ, for each thing that a panel may show.
 * @param {Step} a
 * @param {Step} b
 * @returns {Record<string, Set<number>>}
 */
export function differences(a, b) {
  const [tokens, blocks] = [unequal(a, b, tokensOf), unequal(a, b, blocksOf)];
  const queued = unequal(a, b, (step) => (step.running ?? []).map((r) => [r, ""]));
  return {
    tokens,
    blocks,
    running: new Set([...queued, ...tokens]),
    waiting: unequal(a, b, waitingOf),
    sampled: unequal(a, b, sampledOf),
  };
}

/**
 * Return the requests for which two steps list different facts; a fact of null is not known, and equals all others.
 * @param {Step} a
 * @param {Step} b
 * @param {(step: Step) => [r: number, fact: string | null][]} facts
 */
function unequal(a, b, facts) {
  const [inA, inB] = [new Map(facts(a)), new Map(facts(b))];
  const rows = [...new Set([...inA.keys(), ...inB.keys()])];
  return new Set(rows.filter((r) => inA.get(r) !== inB.get(r) && inA.get(r) !== null && inB.get(r) !== null));
}

/** @param {Step} step @returns {[number, string][]} */
function tokensOf(step) {
  return (step.scheduled ?? []).map(([r, tokens, computed, , hit]) => [r, `${tokens} ${computed} ${hit}`]);
}

/** @param {Step} step @returns {[number, string][]} */
function blocksOf(step) {
  return (step.blocks ?? []).map(([r, cached, fresh]) => [r, `${cached} ${fresh}`]);
}

/** @param {Step} step @returns {[number, string][]} */
function waitingOf(step) {
  const held = new Map((step.held ?? []).map(([r, code]) => [r, code]));
  return (step.waiting ?? []).map((r) => [r, held.get(r) ?? ""]);
}

/** @param {Step} step @returns {[number, string | null][]} */
function sampledOf(step) {
  return (step.sampled ?? []).map(([r, token]) => [r, token === null ? null : String(token)]);
}

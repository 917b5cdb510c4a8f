/**
 * The state of an engine at each of its steps, made from the changes that the data lists.
 *
 * The state at a step is that after its scheduling, as vLLM's scheduler leaves it: requests that finish in the step are
 * in the running queue and have their blocks.
 */

import { parseRanges } from "../base/ranges.js";

/** @typedef {import("./data.js").Step} Step */

/**
 * @typedef {object} State
 * @property {Step} step
 * @property {Map<number, number[]>} tables block table of each request that has blocks
 * @property {Map<number, [r: number, index: number]>} cached content of each block that the prefix cache can find
 *
 * @typedef {object} Output
 * @property {number} step index of the step in the engine's list
 * @property {any[]} row its row of `sampled`
 */

const KEYFRAME_EVERY = 64;

export class Replay {
  /**
   * @param {import("./data.js").Engine} engine
   * @param {import("./data.js").Request[]} requests
   */
  constructor(engine, requests) {
    this.engine = engine;
    this.requests = requests;
    /** @type {Map<number, {tables: Map<number, number[]>, cached: Map<number, [number, number]>}>} */
    this.keyframes = new Map();
    /** @type {Map<number, Output[]>} */
    this.outputs = new Map();
    engine.steps.forEach((step, index) => {
      for (const row of step.sampled ?? []) {
        const made = this.outputs.get(row[0]);
        if (made) made.push({ step: index, row });
        else this.outputs.set(row[0], [{ step: index, row }]);
      }
    });
    this.reached = 0;
    this.keyframes.set(0, { tables: new Map(), cached: new Map() });
  }

  /**
   * Return the state at a step, by its index from 0. Forwards and backwards cost the same: at most 64 steps are
   * applied to the keyframe before it.
   * @param {number} index
   * @returns {State}
   */
  at(index) {
    while (this.reached + KEYFRAME_EVERY <= index) {
      const next = this.reached + KEYFRAME_EVERY;
      this.keyframes.set(next, this.advance(this.reached, next));
      this.reached = next;
    }
    const from = index - (index % KEYFRAME_EVERY);
    return { step: this.engine.steps[index], ...this.advance(from, index + 1) };
  }

  /**
   * Return tables and cached blocks after the steps before `to`, from the keyframe `from`.
   * @param {number} from
   * @param {number} to
   */
  advance(from, to) {
    const start = /** @type {{tables: Map<number, number[]>, cached: Map<number, [number, number]>}} */ (
      this.keyframes.get(from)
    );
    const tables = new Map(start.tables);
    const cached = new Map(start.cached);
    for (const step of this.engine.steps.slice(from, to)) apply(step, tables, cached);
    return { tables, cached };
  }

  /**
   * Return the token at a position of a request: `{id, output}`, or null if it is not recorded.
   * @param {number} r
   * @param {number} position
   * @returns {{id: number, output: Output | null} | null}
   */
  token(r, position) {
    const request = this.requests[r];
    const prompt = request.numPrompt ?? 0;
    if (position < prompt) {
      const id = request.promptTokens?.[position];
      return id === undefined ? null : { id, output: null };
    }
    const output = this.outputs.get(r)?.[position - prompt];
    return output && output.row[1] !== null ? { id: output.row[1], output } : null;
  }

  /**
   * Return the output tokens of a request up to a step, that step's included.
   * @param {number} r
   * @param {number} index
   */
  outputsUpTo(r, index) {
    return (this.outputs.get(r) ?? []).filter((output) => output.step <= index);
  }
}

/**
 * Apply one step to block tables and cached blocks. Tables that change are new arrays: keyframes share the others.
 * @param {Step} step
 * @param {Map<number, number[]>} tables
 * @param {Map<number, [number, number]>} cached
 */
function apply(step, tables, cached) {
  for (const r of step.released ?? []) tables.delete(r);
  for (const [r, hit, fresh] of step.blocks ?? []) {
    tables.set(r, [...(tables.get(r) ?? []), ...parseRanges(hit), ...parseRanges(fresh)]);
  }
  for (const block of step.evicted ?? []) cached.delete(block);
  for (const [block, r, index] of step.cached ?? []) cached.set(block, [r, index]);
}

/**
 * Return the requests whose tables have each block.
 * @param {State} state
 * @returns {Map<number, number[]>}
 */
export function owners(state) {
  /** @type {Map<number, number[]>} */
  const found = new Map();
  for (const [r, table] of state.tables) {
    for (const block of table) {
      const own = found.get(block);
      if (own) own.push(r);
      else found.set(block, [r]);
    }
  }
  return found;
}

/**
 * Return the slots of the KV cache that a request's tokens of a step are written to; empty if they are not known.
 * @param {State} state
 * @param {import("./data.js").Engine} engine
 * @param {number} r
 * @returns {number[]}
 */
export function slots(state, engine, r) {
  const scheduled = (state.step.scheduled ?? []).find((row) => row[0] === r);
  const table = state.tables.get(r);
  if (!scheduled || !table || !engine.blockSize || engine.numGroups !== 1) return [];
  const [, tokens, computed] = scheduled;
  const found = Array.from({ length: tokens }, (_, i) => {
    const position = computed + i;
    return table[Math.floor(position / engine.blockSize)] * engine.blockSize + (position % engine.blockSize);
  });
  return found.some(Number.isNaN) ? [] : found;
}

/**
 * Return the number of tokens of a step that are prefill, and that are decode.
 * @param {Step} step
 * @returns {[prefill: number, decode: number]}
 */
export function phases(step) {
  let prefill = 0;
  let decode = 0;
  for (const [, tokens, , isDecode] of step.scheduled ?? []) {
    if (isDecode) decode += tokens;
    else prefill += tokens;
  }
  return [prefill, decode];
}

/**
 * The selected step, request and block. All views show the same selection, and the page's address has it:
 * `#step=7&request=3`.
 *
 * @typedef {object} Selection
 * @property {number} engine index of the engine
 * @property {number} step index of the step in the engine's list
 * @property {number | null} request row of the request
 * @property {number | null} block
 * @property {boolean} predict whether the steps after the selected one are hidden, and a question is asked
 */

/** @type {Selection} */
export const selected = { engine: 0, step: 0, request: null, block: null, predict: false };

/** @type {((before: Selection) => void)[]} */
const listeners = [];

/**
 * Call `listener` after each change, with the selection before it.
 * @param {(before: Selection) => void} listener
 */
export function onSelect(listener) {
  listeners.push(listener);
}

/**
 * Change the selection. The address changes with it, without a new entry in the history.
 * @param {Partial<Selection>} change
 */
export function select(change) {
  const before = { ...selected };
  Object.assign(selected, change);
  for (const listener of listeners) listener(before);
}

/**
 * Return the selection's part of an address.
 * @param {import("./data.js").Run} run
 */
export function toHash(run) {
  const parts = new URLSearchParams();
  if (selected.engine) parts.set("engine", String(selected.engine));
  parts.set("step", String(run.engines[selected.engine].steps[selected.step].n));
  if (selected.request !== null) parts.set("request", run.requests[selected.request].id);
  if (selected.block !== null) parts.set("block", String(selected.block));
  if (selected.predict) parts.set("predict", "1");
  return `#${parts}`;
}

/**
 * Return the selection that an address holds; what it does not name, or names wrongly, is left out.
 * @param {import("./data.js").Run} run
 * @param {string} hash
 * @returns {Partial<Selection>}
 */
export function fromHash(run, hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<Selection>} */
  const found = {};
  const engine = Number(parts.get("engine") ?? 0);
  if (run.engines[engine]) found.engine = engine;
  const step = stepIndex(run.engines[found.engine ?? 0], Number(parts.get("step")));
  if (step >= 0) found.step = step;
  const request = run.requests.findIndex((one) => one.id === parts.get("request"));
  if (request >= 0) found.request = request;
  if (/^\d+$/.test(parts.get("block") ?? "")) found.block = Number(parts.get("block"));
  if (parts.has("predict")) found.predict = parts.get("predict") === "1";
  return found;
}

/**
 * Return the index of the step with a number, or -1.
 * @param {import("./data.js").Engine} engine
 * @param {number} n
 */
export function stepIndex(engine, n) {
  return engine.steps.findIndex((step) => step.n === n);
}

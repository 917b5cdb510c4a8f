/**
 * The selected step, request, block and call of a run. All views of a run show the same selection, and the page's
 * address has it: `#step=7&request=3`.
 *
 * @typedef {object} Selection
 * @property {number} engine index of the engine
 * @property {number} step index of the step in the engine's list
 * @property {number | null} request row of the request
 * @property {number | null} block
 * @property {number | null} call number of the call
 * @property {string | null} source the function whose source is shown: `Class.method`
 * @property {boolean} predict whether the steps after the selected one are hidden, and a question is asked
 *
 * @typedef {object} Selectable a run, or what else has engines with numbered steps, and requests
 * @property {{process: string, whatIf?: string, steps: {n: number}[]}[]} engines
 * @property {{id: string}[]} requests
 */

/** @type {WeakMap<Selectable, Selection>} */
const selections = new WeakMap();

/** @type {WeakMap<Selectable, Selectable>} */
const originals = new WeakMap();

/** @type {WeakMap<Selectable, ((change: Partial<Selection>) => void)[]>} */
const listeners = new WeakMap();

/**
 * Let a part of a run have the run's selection.
 * @param {Selectable} part
 * @param {Selectable} run
 */
export function shareSelection(part, run) {
  originals.set(part, run);
}

/**
 * Return what is selected in a run; `select` changes it.
 * @param {Selectable} run
 * @returns {Selection}
 */
export function selected(run) {
  const original = originals.get(run) ?? run;
  let selection = selections.get(original);
  if (!selection) {
    selection = { engine: 0, step: 0, request: null, block: null, call: null, source: null, predict: false };
    selections.set(original, selection);
  }
  return selection;
}

/**
 * Call `listener` with each change of a run's selection, after it.
 * @param {Selectable} run
 * @param {(change: Partial<Selection>) => void} listener
 */
export function onSelect(run, listener) {
  listeners.set(run, [...(listeners.get(run) ?? []), listener]);
}

/**
 * Change a run's selection.
 * @param {Selectable} run
 * @param {Partial<Selection>} change
 */
export function select(run, change) {
  Object.assign(selected(run), change);
  for (const listener of listeners.get(originals.get(run) ?? run) ?? []) listener(change);
}

/**
 * Return the selection's part of an address.
 * @param {Selectable} run
 */
export function toHash(run) {
  const { engine, step, request, block, call, source, predict } = selected(run);
  const parts = new URLSearchParams();
  if (engine) parts.set("engine", String(engine));
  const shown = run.engines[engine]?.steps[step];
  if (shown) parts.set("step", String(shown.n));
  if (request !== null) parts.set("request", run.requests[request].id);
  if (block !== null) parts.set("block", String(block));
  if (call !== null) parts.set("call", String(call));
  if (source !== null) parts.set("source", source);
  if (predict) parts.set("predict", "1");
  return `#${parts}`;
}

/**
 * Return the selection that an address holds; what it does not name, or names wrongly, is left out. An engine
 * comes with one of its steps, or with its first: the index that is selected now may be past its last.
 * @param {Selectable} run
 * @param {string} hash
 * @returns {Partial<Selection>}
 */
export function fromHash(run, hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<Selection>} */
  const found = {};
  const engine = Number(parts.get("engine") ?? 0);
  const shown = run.engines[engine];
  const step = shown ? stepIndex(shown, Number(parts.get("step"))) : -1;
  if (step >= 0 || (shown && parts.has("engine"))) Object.assign(found, { engine, step: Math.max(step, 0) });
  const request = run.requests.findIndex((one) => one.id === parts.get("request"));
  if (request >= 0) found.request = request;
  for (const name of /** @type {const} */ (["block", "call"])) {
    if (/^\d+$/.test(parts.get(name) ?? "")) found[name] = Number(parts.get(name));
  }
  if (parts.has("source")) found.source = parts.get("source");
  if (parts.has("predict")) found.predict = parts.get("predict") === "1";
  return found;
}

/**
 * Return the index of the step with a number, or -1.
 * @param {{steps: {n: number}[]}} engine
 * @param {number} n
 */
export function stepIndex(engine, n) {
  return engine.steps.findIndex((step) => step.n === n);
}

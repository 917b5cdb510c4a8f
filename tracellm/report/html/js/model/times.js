/**
 * The measured times of a model's parts in one step, from the recorded calls.
 *
 * Times are microseconds without recording time. A part's key is its layer, or -1, and its kind: `3 qkv`.
 *
 * @typedef {object} StepTimes
 * @property {number | null} forward
 * @property {Map<string, number>} parts
 * @property {Map<number, number>} layers
 * @property {number[]} launches calls that launch a Triton kernel
 *
 * @typedef {object} TimedPart
 * @property {import("./model.js").Part} part
 * @property {number} layer -1 outside of the layers
 * @property {number} us
 * @property {import("./model.js").Part[]} parts those that were timed: a norm may add the residual, too
 *
 * @typedef {object} Position the place of a call in the model
 * @property {number} layer -1 outside of the layers
 * @property {boolean} implied whether the layer has no call of its own, and begins with its attention
 * @property {"attention" | "kernel" | ""} inside the projections and norms of attention, or its kernel
 * @property {number} norms calls of norms so far in the layer
 * @property {number} linears calls of projections so far in the layer's MLP
 * @property {boolean} attended whether the layer's attention was computed
 * @property {boolean} activated whether the layer's activation was computed
 */

import { modelForward, stepBatch, sumWork } from "./model.js";

/** @typedef {import("../calls/calls.js").Calls} Calls */

/** @type {Position} */
const OUTSIDE = { layer: -1, implied: false, inside: "", norms: 0, linears: 0, attended: false, activated: false };

/**
 * Return the times of a step's parts.
 * @param {Calls} calls
 * @param {number | null} stepCall
 * @param {import("./model.js").Forward} forward
 * @returns {StepTimes}
 */
export function stepTimes(calls, stepCall, forward) {
  /** @type {StepTimes} */
  const found = { forward: null, parts: new Map(), layers: new Map(), launches: [] };
  const perLayer = new Map(forward.groups.flatMap(({ layers, parts }) => layers.map((layer) => [layer, parts])));
  const order = [...perLayer.keys()].sort((a, b) => a - b);
  let begun = 0;
  let at = { ...OUTSIDE };

  /** @param {boolean} implied */
  const begin = (implied) => {
    at = { ...OUTSIDE, layer: order[begun] ?? begun, implied };
    begun += 1;
  };
  /** @param {number} i @param {Position["inside"]} inside */
  const visitBelow = (i, inside) => {
    const before = at.inside;
    at.inside = inside;
    for (const child of calls.children(i)) visit(child);
    at.inside = before;
  };
  /** @param {number} i @param {string} kind */
  const count = (i, kind) => addTime(found.parts, `${at.layer} ${kind}`, netTime(calls, i));
  /** @param {number} i */
  const countLayer = (i) => addTime(found.layers, at.layer, netTime(calls, i));

  /** @param {number} i */
  const visit = (i) => {
    const name = calls.names[calls.name[i]];
    const parts = perLayer.get(at.layer) ?? [];
    if (found.forward === null && /(ForCausalLM|Model)\.forward$/.test(name)) {
      found.forward = netTime(calls, i);
      visitBelow(i, "");
      at = { ...OUTSIDE };
      return;
    }
    if (at.layer < 0 && /(Layer|Block)\.forward$/.test(name)) {
      begin(false);
      countLayer(i);
      visitBelow(i, "");
      at = { ...OUTSIDE };
      return;
    }
    if (name === "Attention.forward") {
      count(i, "attention");
      visitBelow(i, "kernel");
      at.attended = true;
      return;
    }
    if (/Attention\.forward$/.test(name) && at.inside !== "kernel") {
      if (at.layer < 0 || at.implied) begin(true);
      if (at.implied) countLayer(i);
      visitBelow(i, "attention");
      return;
    }
    if (at.implied && /(MLP|MoE|MoeBlock)\.forward$/.test(name)) countLayer(i);
    else if (name.endsWith(".compute_logits")) count(i, "logits");
    else if (/VocabParallelEmbedding\.forward$/.test(name)) count(i, found.parts.has("-1 embed") ? "positions" : "embed");
    else if (/Norm\.forward$/.test(name)) count(i, normKind(at, parts));
    else if (name.endsWith(".reshape_and_cache") && at.inside === "kernel") countWrite(found.parts, at.layer, netTime(calls, i));
    else if (/RotaryEmbedding\.forward$/.test(name)) count(i, "rotary");
    else if (/Linear\.forward$/.test(name) && at.layer >= 0) count(i, linearKind(at, parts));
    else if (/AndMul\.forward$/.test(name)) {
      count(i, "act");
      at.activated = true;
    }
    if (/_kernel$/.test(name)) found.launches.push(i);
    visitBelow(i, at.inside);
  };
  if (stepCall !== null) visit(stepCall);
  return found;
}

/**
 * Return which norm a call is: one of the heads, or the next one of the layer.
 * @param {Position} at
 * @param {import("./model.js").Part[]} parts
 */
function normKind(at, parts) {
  if (at.layer < 0) return "final_norm";
  if (at.inside === "attention") return "norm_qk";
  const own = parts.filter(({ kind }) => kind.startsWith("norm_") && kind !== "norm_qk");
  at.norms += 1;
  return own[at.norms - 1]?.kind ?? "norm_mlp";
}

/**
 * Return which projection a call is.
 * @param {Position} at
 * @param {import("./model.js").Part[]} parts
 */
function linearKind(at, parts) {
  if (at.inside === "attention") return at.attended ? "out" : "qkv";
  const first = parts.find(({ kind }) => kind === "up")?.name.split(" + ").length ?? 1;
  at.linears += 1;
  return at.activated || at.linears > first ? "down" : "up";
}

/**
 * Return the time of a call without that of the recording in it and in the calls below it.
 * @param {Calls} calls
 * @param {number} i
 */
function netTime(calls, i) {
  let us = calls.us[i];
  const open = [i];
  while (open.length) {
    const call = /** @type {number} */ (open.pop());
    us -= calls.recording[call];
    open.push(...calls.children(call));
  }
  return Math.max(0, us);
}

/**
 * @template K
 * @param {Map<K, number>} times
 * @param {K} key
 * @param {number} us
 */
function addTime(times, key, us) {
  times.set(key, (times.get(key) ?? 0) + us);
}

/**
 * Count the writing of the KV cache as a part of its own, no longer as one of attention.
 * @param {Map<string, number>} parts
 * @param {number} layer
 * @param {number} us
 */
function countWrite(parts, layer, us) {
  const attention = `${layer} attention`;
  addTime(parts, `${layer} write`, us);
  parts.set(attention, Math.max(0, (parts.get(attention) ?? 0) - us));
}

const MOST_TIMED_STEPS = 64;

/** @type {WeakMap<import("../run/data.js").Engine, {flops: number, bytes: number} | null>} */
const fastestByEngine = new WeakMap();

/**
 * Return the highest rates of a model's parts in the first steps in which some were recorded: FLOPs and bytes per second.
 * @param {Calls} calls
 * @param {number} number of the engine
 * @param {import("../run/data.js").Engine} engine
 * @param {import("./model.js").Model} model
 */
export function fastestSeen(calls, number, engine, model) {
  let found = fastestByEngine.get(engine);
  if (found === undefined) {
    found = null;
    let seen = 0;
    for (let step = 0; step < engine.steps.length && seen < MOST_TIMED_STEPS; step += 1) {
      const forward = modelForward(model, stepBatch(engine.steps[step]));
      const { parts } = stepTimes(calls, calls.stepCall(number, step), forward);
      if (!parts.size) continue;
      seen += 1;
      for (const { us, parts: own } of timedParts(forward, parts)) {
        const { flops, bytes } = sumWork(own);
        if (flops === null || bytes === null || !us) continue;
        found ??= { flops: 0, bytes: 0 };
        found.flops = Math.max(found.flops, (1e6 * flops) / us);
        found.bytes = Math.max(found.bytes, (1e6 * bytes) / us);
      }
    }
    fastestByEngine.set(engine, found);
  }
  return found;
}

/**
 * Return whether a call is one of a layer or an operation, or has one below it.
 * @param {Calls} calls
 * @param {number} call
 * @returns {boolean}
 */
export function hasLayers(calls, call) {
  return ["layer", "kernel"].includes(calls.level(call)) || calls.children(call).some((child) => hasLayers(calls, child));
}

/**
 * Return each part of each layer that has a time.
 * @param {import("./model.js").Forward} forward
 * @param {Map<string, number>} times
 */
export function timedParts({ before, groups, after }, times) {
  /** @type {TimedPart[]} */
  const found = [];
  const residual = groups[0]?.parts.find(({ kind }) => kind === "residual");
  /** @param {import("./model.js").Part} part @param {number} layer @param {boolean} first */
  const add = (part, layer, first = false) => {
    const us = times.get(`${layer} ${part.kind}`);
    if (us !== undefined) found.push({ part, layer, us, parts: addsResidual(part, first) && residual ? [part, residual] : [part] });
  };
  for (const part of [...before, ...after]) add(part, -1);
  const first = groups[0]?.layers[0];
  for (const { layers, parts } of groups) for (const layer of layers) for (const part of parts) add(part, layer, layer === first);
  return found;
}

/**
 * Return whether the call of a part also makes the residual addition before it.
 * @param {import("./model.js").Part} part
 * @param {boolean} first whether it is in the first layer
 */
function addsResidual({ kind }, first) {
  return kind === "norm_mlp" || kind === "final_norm" || (kind === "norm_attention" && !first);
}

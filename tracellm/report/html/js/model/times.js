/**
 * The measured times of a model's parts in one step, from the recorded calls.
 *
 * Times are microseconds without recording time. A part's key is its layer, or -1, and its kind: `3 qkv`.
 *
 * @typedef {object} PartTime
 * @property {number} us
 * @property {number[]} calls
 *
 * @typedef {object} StepTimes
 * @property {PartTime | null} forward
 * @property {Map<string, PartTime>} parts
 * @property {Map<number, PartTime>} layers
 * @property {number[]} launches calls that launch a Triton kernel
 */

import { modelForward, stepBatch, sumWork } from "./model.js";

/** @typedef {import("../calls/calls.js").Calls} Calls */
/** @typedef {{layer: number, implied: boolean, norms: number, up: number, where: string, attended: boolean, activated: boolean}} Position */

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
  const outside = { layer: -1, implied: false, norms: 0, up: 0, where: "", attended: false, activated: false };
  let begun = 0;
  /** @type {Position} */
  let at = { ...outside };

  /** @param {boolean} implied */
  const begin = (implied) => {
    at = { ...outside, layer: order[begun] ?? begun, implied, where: "layer" };
    begun += 1;
  };
  /** @param {number} i @param {string} where */
  const visitBelow = (i, where) => {
    const before = at.where;
    at.where = where;
    for (const child of calls.children(i)) visit(child);
    at.where = before;
  };
  /** @param {number} i @param {string} kind */
  const count = (i, kind) => addTime(found.parts, `${at.layer} ${kind}`, netTime(calls, i), i);

  /** @param {number} i */
  const visit = (i) => {
    const name = calls.names[calls.name[i]];
    const parts = perLayer.get(at.layer) ?? [];
    if (!found.forward && /(ForCausalLM|Model)\.forward$/.test(name)) {
      found.forward = { us: netTime(calls, i), calls: [i] };
      visitBelow(i, "");
      at = { ...outside };
      return;
    }
    if (at.layer < 0 && /(Layer|Block)\.forward$/.test(name)) {
      begin(false);
      addTime(found.layers, at.layer, netTime(calls, i), i);
      visitBelow(i, "layer");
      at = { ...outside };
      return;
    }
    if (name === "Attention.forward") {
      count(i, "attention");
      visitBelow(i, "kernel");
      at.attended = true;
      return;
    }
    if (/Attention\.forward$/.test(name) && at.where !== "kernel") {
      if (at.layer < 0 || at.implied) begin(true);
      if (at.implied) addTime(found.layers, at.layer, netTime(calls, i), i);
      visitBelow(i, "attn");
      return;
    }
    if (/(MLP|MoE|MoeBlock)\.forward$/.test(name) && at.layer >= 0) {
      if (at.implied) addTime(found.layers, at.layer, netTime(calls, i), i);
      visitBelow(i, "mlp");
      return;
    }
    if (name.endsWith(".compute_logits")) count(i, "logits");
    else if (/VocabParallelEmbedding\.forward$/.test(name)) count(i, found.parts.has("-1 embed") ? "positions" : "embed");
    else if (/Norm\.forward$/.test(name)) count(i, normKind(at, parts));
    else if (name.endsWith(".reshape_and_cache") && at.where === "kernel") countWrite(found.parts, at.layer, netTime(calls, i), i);
    else if (/RotaryEmbedding\.forward$/.test(name)) count(i, "rotary");
    else if (/Linear\.forward$/.test(name) && at.layer >= 0) count(i, linearKind(at, parts));
    else if (/AndMul\.forward$/.test(name)) {
      count(i, "act");
      at.activated = true;
    }
    if (/_kernel$/.test(name)) found.launches.push(i);
    visitBelow(i, at.where);
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
  if (at.where === "attn") return "norm_qk";
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
  if (at.where === "attn") return at.attended ? "out" : "qkv";
  const first = parts.find(({ kind }) => kind === "up")?.name.split(" + ").length ?? 1;
  at.up += 1;
  return at.activated || at.up > first ? "down" : "up";
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
 * @param {Map<K, PartTime>} times
 * @param {K} key
 * @param {number} us
 * @param {number} i
 */
function addTime(times, key, us, i) {
  const time = times.get(key);
  if (time) {
    time.us += us;
    time.calls.push(i);
  } else times.set(key, { us, calls: [i] });
}

/**
 * Count the writing of the KV cache as a part of its own, no longer as one of attention.
 * @param {Map<string, PartTime>} parts
 * @param {number} layer
 * @param {number} us
 * @param {number} i
 */
function countWrite(parts, layer, us, i) {
  addTime(parts, `${layer} write`, us, i);
  const attention = parts.get(`${layer} attention`);
  if (attention) attention.us = Math.max(0, attention.us - us);
}

const MOST_TIMED_STEPS = 64;

/** @type {WeakMap<import("../run/data.js").Engine, {flops: number, bytes: number} | null>} */
const fastestByEngine = new WeakMap();

/**
 * Return the highest rates of a model's parts in the first steps whose layers were recorded: FLOPs and bytes per second.
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
      for (const { time, parts: own } of timedParts(forward, parts)) {
        const { flops, bytes } = sumWork(own);
        if (flops === null || bytes === null || !time.us) continue;
        found ??= { flops: 0, bytes: 0 };
        found.flops = Math.max(found.flops, (1e6 * flops) / time.us);
        found.bytes = Math.max(found.bytes, (1e6 * bytes) / time.us);
      }
    }
    fastestByEngine.set(engine, found);
  }
  return found;
}

/**
 * Return each part of each layer that has a time, with the parts that were timed: a norm may add the residual, too.
 * @param {import("./model.js").Forward} forward
 * @param {Map<string, PartTime>} times
 */
export function timedParts({ before, groups, after }, times) {
  /** @type {{part: import("./model.js").Part, layer: number, time: PartTime, parts: import("./model.js").Part[]}[]} */
  const found = [];
  const residual = groups[0]?.parts.find(({ kind }) => kind === "residual");
  /** @param {import("./model.js").Part} part @param {number} layer @param {boolean} first */
  const add = (part, layer, first = false) => {
    const time = times.get(`${layer} ${part.kind}`);
    if (time) found.push({ part, layer, time, parts: addsResidual(part, first) && residual ? [part, residual] : [part] });
  };
  for (const part of [...before, ...after]) add(part, -1);
  const first = Math.min(...groups.flatMap(({ layers }) => layers));
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

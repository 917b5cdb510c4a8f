/**
 * The parts of a model's forward pass in one step: shapes, bytes and FLOPs.
 *
 * They are computed from the recorded parameters and the step's batch. Bytes are those of an ideal machine, which reads
 * and writes everything once. An unknown value is null, and `unknown` is the reason, as a code.
 */

import { number } from "../base/quantities.js";

/** @typedef {[name: string, layers: number[] | null, dtype: string, shape: number[]]} Weight */

/**
 * @typedef {object} Model what `tracellm.report.html.model_data` read from the recording
 * @property {string} architecture
 * @property {string} dtype
 * @property {string} device
 * @property {string} [deviceName]
 * @property {string} [ops]
 * @property {Record<string, string>} config
 * @property {Weight[]} weights
 * @property {[layers: number[], heads: number, kvHeads: number, headSize: number, window: number][]} attention
 * @property {number} kvSize bytes of a number in the KV cache
 * @property {number} workers processes that share the model; the parameters are those of one
 * @property {{flops: number, bytes: number}} [peak] of the GPU, per second, as its maker states it
 *
 * @typedef {object} Batch
 * @property {number} tokens
 * @property {number} samples rows of the logits
 * @property {[tokens: number, computed: number][]} requests
 *
 * @typedef {object} Part
 * @property {string} kind
 * @property {string} name of its module
 * @property {number[] | null} input
 * @property {number[] | null} output
 * @property {number | null} weights bytes of parameters read
 * @property {number | null} activations bytes read and written
 * @property {number} kvRead bytes
 * @property {number} kvWritten bytes
 * @property {number | null} flops
 * @property {string} formula of the FLOPs, in numbers
 * @property {string} [unknown]
 *
 * @typedef {object} Layers layers with the same shapes, and the parts of each of them
 * @property {number[]} layers
 * @property {Part[]} parts
 *
 * @typedef {object} Forward
 * @property {number} hidden width of the layers
 * @property {Part[]} before
 * @property {Layers[]} groups
 * @property {Part[]} after
 *
 * @typedef {{weights: number | null, activations: number | null, kv: number, bytes: number | null, flops: number | null}} Work
 */

/** @type {[kind: string, pattern: RegExp][]} */
const OUTER_KINDS = [
  ["embed", /embed_tokens|\bwte\b|word_embeddings|embed_in/],
  ["positions", /embed_positions|\bwpe\b/],
  ["project_in", /project_in/],
  ["project_out", /project_out/],
  ["logits", /lm_head|embed_out/],
  ["final_norm", /norm|ln_f/],
];

/** @type {[kind: string, pattern: RegExp][]} */
const LAYER_KINDS = [
  ["norm_qk", /\b[qk]_norm\b/],
  ["norm_attention", /^(input_layernorm|ln_1|self_attn_layer_norm)\b/],
  ["norm_after_attention", /^post_attention_layernorm\b/],
  ["norm_mlp", /^(pre_feedforward_layernorm|ln_2|final_layer_norm)\b/],
  ["norm_after_mlp", /^post_feedforward_layernorm\b/],
  ["qkv", /attn\.(qkv_proj|[qkv]_proj|c_attn|query_key_value)\b/],
  ["out", /attn\.(o_proj|out_proj|c_proj|dense)\b/],
  ["router", /(mlp|moe)\.gate\b/],
  ["experts", /\bexperts\b/],
  ["up", /(gate_up_proj|gate_proj|up_proj|c_fc|fc1|dense_h_to_4h)\b/],
  ["down", /(down_proj|mlp\.c_proj|fc2|dense_4h_to_h)\b/],
];

const ITEM_BYTES = /** @type {Record<string, number>} */ ({ float64: 8, int64: 8, float32: 4, int32: 4, float16: 2, bfloat16: 2, int16: 2 });
/** @type {{flops: null, formula: string}} */
const NO_FLOPS = { flops: null, formula: "" };
const NORM_FLOPS = { rms: 4, layer: 7 };
const ACTIVATION_FLOPS = /** @type {Record<string, number>} */ ({ silu: 4, swish: 4, relu: 1, gelu: 9, gelu_new: 9, gelu_pytorch_tanh: 9 });

/** Bytes of a token's id, and of its position or slot. */
const TOKEN_BYTES = 4;
const POSITION_BYTES = 8;

/**
 * Return the bytes of one number.
 * @param {string} dtype
 */
function itemSize(dtype) {
  return ITEM_BYTES[dtype] ?? 1;
}

/**
 * Return the batch of a step: its tokens, rows of logits and requests.
 * @param {import("../run/data.js").Step} step
 * @returns {Batch}
 */
export function stepBatch(step) {
  const requests = (step.scheduled ?? []).map(([, tokens, computed]) => /** @type {[number, number]} */ ([tokens, computed]));
  return {
    tokens: requests.reduce((sum, [tokens]) => sum + tokens, 0),
    samples: step.logits?.[0] ?? requests.length,
    requests,
  };
}

/**
 * Return the number of pairs of a query and a key that it attends to, and of keys read, over all requests.
 * @param {Batch} batch
 * @param {number} window tokens that a query attends to; 0 for all
 */
export function attendedKeys(batch, window) {
  let pairs = 0;
  let keys = 0;
  for (const [tokens, computed] of batch.requests) {
    pairs += pairsBefore(computed + tokens, window) - pairsBefore(computed, window);
    keys += computed + tokens - firstKey(computed, window);
  }
  return { pairs, keys };
}

/**
 * Return the first position that the query at a position attends to.
 * @param {number} position
 * @param {number} window
 */
export function firstKey(position, window) {
  return window ? Math.max(0, position + 1 - window) : 0;
}

/**
 * Return the number of pairs of a query before a position and a key that it attends to.
 * @param {number} position
 * @param {number} window
 */
function pairsBefore(position, window) {
  const growing = window ? Math.min(position, window) : position;
  return (growing * (growing + 1)) / 2 + (position - growing) * window;
}

/**
 * Return the parts of the forward pass of a batch, layers with the same shapes together.
 * @param {Model} model
 * @param {Batch} batch
 * @returns {Forward}
 */
export function modelForward(model, batch) {
  const size = itemSize(model.dtype);
  const outer = sortWeights(model.weights.filter(([, layers]) => !layers), OUTER_KINDS);
  const table = outer.get("embed")?.[0];
  const hidden = Number(model.config.hidden_size) || (table?.[3][1] ?? 0);
  const { tokens, samples } = batch;
  /** @type {Part[]} */
  const before = [];
  /** @type {Part[]} */
  const after = [];
  if (table) before.push(lookupPart("embed", table, tokens, size));
  before.push(...linearParts("project_in", outer.get("project_in"), tokens, size));
  for (const weight of outer.get("positions") ?? []) before.push(addPositions(weight, tokens, size));
  const norm = outer.get("final_norm");
  if (norm) after.push(normPart("final_norm", norm, [tokens, norm[0][3][0]], size));
  after.push(...linearParts("project_out", outer.get("project_out"), tokens, size));
  const head = outer.get("logits") ?? (table && model.config.tie_word_embeddings !== "False" ? [table] : undefined);
  after.push(...linearParts("logits", head, samples, size));
  after.push(...otherParts(outer));
  const groups = layerGroups(model).map(({ layers, weights }) => ({
    layers,
    parts: layerParts(model, weights, layers[0], batch, hidden, size),
  }));
  return { hidden, before, groups, after };
}

/**
 * Return layers with the same parameters and attention, in the order of the first of each.
 * @param {Model} model
 * @returns {{layers: number[], weights: Weight[]}[]}
 */
export function layerGroups(model) {
  /** @type {Map<string, Weight[]>} */
  const stacks = new Map();
  for (const weight of model.weights.filter(([, layers]) => layers)) {
    const prefix = weight[0].split(".*.")[0];
    stacks.set(prefix, [...(stacks.get(prefix) ?? []), weight]);
  }
  /** @param {Weight[]} stack */
  const depth = (stack) => Math.max(...stack.flatMap(([, layers]) => layers ?? []));
  const deepest = [...stacks.values()].sort((a, b) => depth(b) - depth(a));
  const numLayers = Number(model.config.num_hidden_layers); // an image encoder has layers too
  const main = deepest.find((stack) => depth(stack) + 1 === numLayers) ?? deepest[0] ?? [];
  /** @type {Map<number, string>} */
  const signatures = new Map();
  [...main.map(([, layers]) => layers ?? []), ...model.attention.map(([layers]) => layers)].forEach((layers, i) => {
    for (const layer of layers) signatures.set(layer, `${signatures.get(layer) ?? ""} ${i}`);
  });
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  for (const [layer, signature] of [...signatures].sort(([a], [b]) => a - b)) {
    const same = groups.get(signature);
    if (same) same.push(layer);
    else groups.set(signature, [layer]);
  }
  return [...groups.values()].map((layers) => ({ layers, weights: main.filter(([, own]) => own?.includes(layers[0])) }));
}

/**
 * Return the heads, head size and window of a layer; undefined for a layer without attention.
 * @param {Model} model
 * @param {number} layer
 */
export function layerAttention(model, layer) {
  return model.attention.find(([layers]) => layers.includes(layer));
}

/**
 * Return the parts of one layer, in the order in which they run.
 * @param {Model} model
 * @param {Weight[]} weights
 * @param {number} layer
 * @param {Batch} batch
 * @param {number} hidden
 * @param {number} size
 */
function layerParts(model, weights, layer, batch, hidden, size) {
  const { tokens } = batch;
  const own = sortWeights(weights, LAYER_KINDS);
  const sandwich = own.has("norm_after_mlp"); // Gemma: a norm before and a norm after each block
  if (!sandwich && !own.has("norm_mlp") && own.has("norm_after_attention")) {
    own.set("norm_mlp", own.get("norm_after_attention") ?? []);
    own.delete("norm_after_attention");
  }
  /** @param {string} kind */
  const norms = (kind) => {
    const found = own.get(kind);
    return found ? [normPart(kind, found, [tokens, hidden], size)] : [];
  };
  const attention = attentionParts(model, own, layer, batch, size);
  const residual = () => residualPart(tokens, hidden, size);
  const mlp = mlpParts(model, own, batch, hidden, size);
  return [
    ...norms("norm_attention"),
    ...linearParts("qkv", own.get("qkv"), tokens, size),
    ...attention,
    ...linearParts("out", own.get("out"), tokens, size),
    ...norms("norm_after_attention"),
    ...(attention.length ? [residual()] : []),
    ...norms("norm_mlp"),
    ...mlp,
    ...norms("norm_after_mlp"),
    ...(mlp.length ? [residual()] : []),
    ...otherParts(own),
  ];
}

/**
 * Return what attention does between its projections: norms of heads, rotary embedding, KV cache written and read.
 * @param {Model} model
 * @param {Map<string, Weight[]>} own
 * @param {number} layer
 * @param {Batch} batch
 * @param {number} size
 * @returns {Part[]}
 */
function attentionParts(model, own, layer, batch, size) {
  const found = layerAttention(model, layer);
  if (!found) return [];
  const [, heads, kvHeads, headSize, window] = found;
  const { tokens } = batch;
  const { pairs, keys } = attendedKeys(batch, window);
  const queriesAndKeys = [tokens, heads + kvHeads, headSize];
  /** @type {Part[]} */
  const parts = [];
  const headNorms = own.get("norm_qk");
  if (headNorms) parts.push(normPart("norm_qk", headNorms, queriesAndKeys, size));
  if (model.config.rope !== "False" && model.config.rope !== undefined) {
    parts.push({
      ...blankPart("rotary", "rotary_emb", queriesAndKeys, queriesAndKeys),
      activations: (2 * elementsOf(queriesAndKeys) + tokens * headSize) * size + POSITION_BYTES * tokens,
      ...flopsOf(3, ...queriesAndKeys),
    });
  }
  const keysAndValues = [2, tokens, kvHeads, headSize];
  const queries = [tokens, heads, headSize];
  const write = blankPart("write", "attn: reshape_and_cache", keysAndValues, keysAndValues);
  const attention = blankPart("attention", "attn", queries, queries);
  if ("kv_lora_rank" in model.config) {
    const unknown = { activations: null, unknown: "mla" };
    return [...parts, { ...write, ...unknown }, { ...attention, ...unknown, ...NO_FLOPS }];
  }
  const written = elementsOf(keysAndValues);
  return [
    ...parts,
    { ...write, activations: written * size + POSITION_BYTES * tokens, kvWritten: written * model.kvSize },
    {
      ...attention,
      activations: 2 * elementsOf(queries) * size,
      kvRead: 2 * keys * kvHeads * headSize * model.kvSize,
      ...flopsOf(4, heads, headSize, pairs),
    },
  ];
}

/**
 * Return the parts of the feed-forward block: router and experts, projections and activation.
 * @param {Model} model
 * @param {Map<string, Weight[]>} own
 * @param {Batch} batch
 * @param {number} hidden
 * @param {number} size
 * @returns {Part[]}
 */
function mlpParts(model, own, batch, hidden, size) {
  const { tokens } = batch;
  const parts = linearParts("router", own.get("router"), tokens, size);
  const experts = own.get("experts");
  if (experts) {
    const perToken = Number(model.config.num_experts_per_tok) || null;
    const matrices = experts.filter(([, , , shape]) => shape.length === 3);
    const elements = matrices.reduce((sum, [, , , [, rows, columns]]) => sum + rows * columns, 0);
    const known = perToken !== null && elements > 0 && !experts.some(isPacked);
    parts.push({
      ...blankPart("experts", moduleOf(experts[0][0]), [tokens, hidden], [tokens, hidden]),
      weights: null,
      activations: null,
      ...(known ? flopsOf(2, tokens, perToken, elements) : NO_FLOPS),
      unknown: "experts",
    });
  }
  const up = own.get("up");
  const down = own.get("down");
  parts.push(...linearParts("up", up, tokens, size));
  if (up && down) {
    const width = matricesOf(down)[0]?.[3][1] ?? 0;
    const rows = matricesOf(up).reduce((sum, [, , , shape]) => sum + shape[0], 0);
    const gated = rows === 2 * width;
    const act = model.config.hidden_act ?? model.config.hidden_activation ?? model.config.activation_function;
    const each = act in ACTIVATION_FLOPS ? ACTIVATION_FLOPS[act] + Number(gated) : null;
    parts.push({
      ...blankPart("act", act ?? "", [tokens, rows], [tokens, width]),
      activations: tokens * (rows + width) * size,
      ...(each === null ? { ...NO_FLOPS, unknown: "activation" } : flopsOf(each, tokens, width)),
    });
  }
  parts.push(...linearParts("down", down, tokens, size));
  return parts;
}

/**
 * Return a matrix product as a part, or none without weights. Projections that stand apart are one part.
 * @param {string} kind
 * @param {Weight[] | undefined} weights
 * @param {number} tokens
 * @param {number} size
 * @returns {Part[]}
 */
function linearParts(kind, weights, tokens, size) {
  const found = matricesOf(weights ?? []);
  if (!weights || !found.length) return [];
  const columns = found[0][3][1];
  const rows = found.reduce((sum, [, , , shape]) => sum + shape[0], 0);
  const part = {
    ...blankPart(kind, found.map(([name]) => moduleOf(name)).join(" + "), [tokens, columns], [tokens, rows]),
    weights: bytesOf(weights),
    activations: tokens * (columns + rows) * size,
    ...flopsOf(2, tokens, rows, columns),
  };
  return [weights.some(isPacked) ? { ...part, input: null, output: null, activations: null, ...NO_FLOPS, unknown: "packed" } : part];
}

/**
 * Return a norm as a part: RMS norm, or layer norm, which has a bias.
 * @param {string} kind
 * @param {Weight[]} weights
 * @param {number[]} shape
 * @param {number} size
 * @returns {Part}
 */
function normPart(kind, weights, shape, size) {
  const each = NORM_FLOPS[weights.some(([name]) => name.endsWith(".bias")) ? "layer" : "rms"];
  return {
    ...blankPart(kind, moduleOf(weights[0][0]), shape, shape),
    weights: bytesOf(weights),
    activations: 2 * elementsOf(shape) * size,
    ...flopsOf(each, ...shape),
  };
}

/**
 * Return the addition to the residual stream; kernels do it together with the next norm.
 * @param {number} tokens
 * @param {number} hidden
 * @param {number} size
 * @returns {Part}
 */
function residualPart(tokens, hidden, size) {
  return {
    ...blankPart("residual", "", [tokens, hidden], [tokens, hidden]),
    activations: 2 * tokens * hidden * size,
    ...flopsOf(tokens, hidden),
  };
}

/**
 * Return the read of one row of a table for each token.
 * @param {string} kind
 * @param {Weight} weight
 * @param {number} tokens
 * @param {number} size
 * @returns {Part}
 */
function lookupPart(kind, [name, , dtype, shape], tokens, size) {
  return {
    ...blankPart(kind, moduleOf(name), [tokens], [tokens, shape[1]]),
    weights: tokens * shape[1] * itemSize(dtype),
    activations: TOKEN_BYTES * tokens + tokens * shape[1] * size,
  };
}

/**
 * Return the addition of learned positions.
 * @param {Weight} weight
 * @param {number} tokens
 * @param {number} size
 * @returns {Part}
 */
function addPositions(weight, tokens, size) {
  const width = weight[3][1];
  return {
    ...lookupPart("positions", weight, tokens, size),
    activations: POSITION_BYTES * tokens + 2 * tokens * width * size,
    ...flopsOf(tokens, width),
  };
}

/**
 * Return the parameters of no known kind: their bytes count, their FLOPs are not known.
 * @param {Map<string, Weight[]>} sorted
 * @returns {Part[]}
 */
function otherParts(sorted) {
  const found = sorted.get("other");
  if (!found) return [];
  const names = [...new Set(found.map(([name]) => moduleOf(name)))];
  return [{ ...blankPart("other", names.join(", "), null, null), weights: bytesOf(found), activations: null, ...NO_FLOPS, unknown: "other" }];
}

/**
 * @param {string} kind
 * @param {string} name
 * @param {number[] | null} input
 * @param {number[] | null} output
 * @returns {Part}
 */
function blankPart(kind, name, input, output) {
  return { kind, name, input, output, weights: 0, activations: 0, kvRead: 0, kvWritten: 0, flops: 0, formula: "" };
}

/**
 * Return parameters by the kind of their part.
 * @param {Weight[]} weights
 * @param {[string, RegExp][]} kinds
 */
function sortWeights(weights, kinds) {
  /** @type {Map<string, Weight[]>} */
  const found = new Map();
  for (const weight of weights) {
    const kind = kinds.find(([, pattern]) => pattern.test(nameInLayer(weight[0])))?.[0] ?? "other";
    found.set(kind, [...(found.get(kind) ?? []), weight]);
  }
  return found;
}

/** @param {Weight[]} weights */
function matricesOf(weights) {
  return weights.filter(([, , , shape]) => shape.length === 2);
}

/** @param {Weight} weight */
function isPacked([, , dtype]) {
  return /^u?int/.test(dtype);
}

/** @param {Weight[]} weights */
function bytesOf(weights) {
  return weights.reduce((sum, [, , dtype, shape]) => sum + elementsOf(shape) * itemSize(dtype), 0);
}

/** @param {number[]} shape */
function elementsOf(shape) {
  return shape.reduce((all, length) => all * length, 1);
}

/** @param {string} name */
function nameInLayer(name) {
  return name.split(".*.")[1] ?? name;
}

/** @param {string} name */
function moduleOf(name) {
  return nameInLayer(name).replace(/\.[^.]+$/, "");
}

/**
 * Return FLOPs as the product of some numbers, with their formula.
 * @param {...number} numbers
 */
function flopsOf(...numbers) {
  return { flops: elementsOf(numbers), formula: numbers.map((factor) => number(factor)).join(" × ") };
}

/**
 * Return the work of some parts together; a value that is null in one of them is null.
 * @param {Part[]} parts
 * @returns {Work}
 */
export function sumWork(parts) {
  /** @param {(part: Part) => number | null} value */
  const sum = (value) => parts.reduce((all, each) => addKnown(all, value(each)), /** @type {number | null} */ (0));
  const weights = sum((each) => each.weights);
  const activations = sum((each) => each.activations);
  const kv = sum((each) => each.kvRead + each.kvWritten) ?? 0;
  return { weights, activations, kv, bytes: addKnown(addKnown(weights, activations), kv), flops: sum((each) => each.flops) };
}

/**
 * Return the sum of two values; null if one of them is not known.
 * @param {number | null} a
 * @param {number | null} b
 */
export function addKnown(a, b) {
  return a === null || b === null ? null : a + b;
}

/**
 * Return whether a model runs on a CPU, where a call returns after its work; on a GPU, it only launches it.
 * @param {Model} model
 */
export function onCpu({ device }) {
  return device.startsWith("cpu");
}

/**
 * Return every part of a forward pass once for each layer that has it.
 * @param {Forward} forward
 */
export function allParts({ before, groups, after }) {
  return [...before, ...groups.flatMap(({ layers, parts }) => layers.flatMap(() => parts)), ...after];
}

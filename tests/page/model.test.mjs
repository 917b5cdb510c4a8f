import assert from "node:assert/strict";
import { test } from "node:test";

import { aModel } from "./a_model.mjs";
import { aRun } from "./run.mjs";
import { sumKernels } from "../../tracellm/report/html/js/model/kernels.js";
import { allParts, attendedKeys, layerGroups, modelForward, stepBatch, sumWork } from "../../tracellm/report/html/js/model/model.js";
import { byteSize, percent, rate, shortCount } from "../../tracellm/report/html/js/base/quantities.js";
import { attainable, limitShare } from "../../tracellm/report/html/js/model/roofline.js";

const batch = { tokens: 4, samples: 2, requests: [[3, 0], [1, 5]] };
const partOf = (forward, kind) => allParts(forward).find((part) => part.kind === kind);

test("a batch is the scheduled tokens of a step, and its logits are those that were recorded", () => {
  assert.deepEqual(stepBatch(aRun().engines[0].steps[1]), { tokens: 6, samples: 2, requests: [[1, 8], [5, 4]] });
  assert.equal(stepBatch({ logits: [1, 10], scheduled: [[0, 3, 0, 0, 0], [1, 2, 0, 0, 0]] }).samples, 1);
});

test("a query sees the keys up to its own, or those in its window", () => {
  assert.deepEqual(attendedKeys(batch, 0), { pairs: 1 + 2 + 3 + 6, keys: 3 + 6 });
  assert.deepEqual(attendedKeys(batch, 2), { pairs: 1 + 2 + 2 + 2, keys: 3 + 2 });
  assert.deepEqual(attendedKeys({ requests: [[2, 5]] }, 4), { pairs: 8, keys: 5 });
});

test("shapes, bytes and FLOPs of each part are those computed by hand", () => {
  const forward = modelForward(aModel(), batch);
  assert.deepEqual(forward.groups.map(({ layers, parts }) => [layers, parts.map(({ kind }) => kind)]), [
    [[0, 1], ["norm_attention", "qkv", "rotary", "write", "attention", "out", "residual", "norm_mlp", "up", "act", "down", "residual"]],
  ]);
  const expected = {
    embed: [[4], [4, 8], 4 * 8 * 2, 4 * 4 + 4 * 8 * 2, 0, 0, 0],
    norm_attention: [[4, 8], [4, 8], 16, 2 * 32 * 2, 0, 0, 4 * 32],
    qkv: [[4, 8], [4, 16], (128 + 16) * 2, 4 * 24 * 2, 0, 0, 2 * 4 * 16 * 8],
    rotary: [[4, 6, 2], [4, 6, 2], 0, (2 * 48 + 8) * 2 + 32, 0, 0, 3 * 48],
    write: [[2, 4, 2, 2], [2, 4, 2, 2], 0, 32 * 2 + 32, 0, 64, 0],
    attention: [[4, 4, 2], [4, 4, 2], 0, 2 * 4 * 8 * 2, 2 * 9 * 4 * 2, 0, 4 * 8 * 12],
    up: [[4, 8], [4, 32], 512, 4 * 40 * 2, 0, 0, 2 * 4 * 32 * 8],
    act: [[4, 32], [4, 16], 0, 4 * 48 * 2, 0, 0, 5 * 64],
    residual: [[4, 8], [4, 8], 0, 2 * 32 * 2, 0, 0, 32],
    logits: [[2, 8], [2, 10], 160, 2 * 18 * 2, 0, 0, 2 * 2 * 10 * 8],
  };
  for (const [kind, values] of Object.entries(expected)) {
    const { input, output, weights, activations, kvRead, kvWritten, flops } = partOf(forward, kind);
    assert.deepEqual([input, output, weights, activations, kvRead, kvWritten, flops], values, kind);
  }
  assert.equal(partOf(forward, "qkv").formula, "2 × 4 × 16 × 8");
});

test("layers with other shapes or windows are groups of their own", () => {
  const model = aModel();
  model.attention = [[[0], 4, 2, 2, 2], [[1], 4, 2, 2, 0]];
  assert.deepEqual(layerGroups(model).map(({ layers }) => layers), [[0], [1]]);
  const [windowed, full] = modelForward(model, batch).groups.map(({ parts }) => parts.find(({ kind }) => kind === "attention"));
  assert.deepEqual([windowed.flops, full.flops], [4 * 8 * 7, 4 * 8 * 12]);
});

test("layers of an image encoder are no layers of the language model", () => {
  const model = aModel();
  model.weights.push(["visual.blocks.*.attn.qkv.weight", [0], "bfloat16", [6, 2]]);
  assert.deepEqual(modelForward(model, batch).groups.map(({ layers }) => layers), [[0, 1]]);
  model.weights.push(["visual.blocks.*.mlp.weight", [0, 1, 2], "bfloat16", [6, 2]]);
  model.config.num_hidden_layers = "2";
  assert.deepEqual(modelForward(model, batch).groups.map(({ layers }) => layers), [[0, 1]]);
});

test("embeddings narrower than the layers are projected before the positions are added", () => {
  const model = aModel();
  model.weights[0] = ["model.embed_tokens.weight", null, "bfloat16", [10, 4]];
  model.weights.push(["model.embed_positions.weight", null, "bfloat16", [20, 8]], ["model.project_in.weight", null, "bfloat16", [8, 4]]);
  const { hidden, before } = modelForward(model, batch);
  assert.equal(hidden, 8);
  assert.deepEqual(before.map(({ kind, output }) => [kind, output]), [["embed", [4, 4]], ["project_in", [4, 8]], ["positions", [4, 8]]]);
});

test("what the formulas do not cover has no figure, but a reason", () => {
  const experts = aModel();
  experts.config.num_experts_per_tok = "2";
  experts.weights = experts.weights.filter(([name]) => !name.includes(".mlp."));
  experts.weights.push(["model.layers.*.mlp.experts.w13_weight", [0, 1], "bfloat16", [4, 32, 8]], ["model.layers.*.mlp.experts.w2_weight", [0, 1], "bfloat16", [4, 8, 16]], ["model.layers.*.mlp.gate.weight", [0, 1], "bfloat16", [4, 8]]);
  const routed = modelForward(experts, batch);
  assert.equal(partOf(routed, "router").flops, 2 * 4 * 4 * 8);
  assert.deepEqual([partOf(routed, "experts").flops, partOf(routed, "experts").weights, partOf(routed, "experts").unknown], [2 * 4 * 2 * (32 * 8 + 8 * 16), null, "experts"]);
  assert.equal(sumWork(allParts(routed)).bytes, null);

  const packed = aModel();
  packed.weights[1] = ["model.layers.*.self_attn.qkv_proj.qweight", [0, 1], "int32", [1, 16]];
  assert.deepEqual([partOf(modelForward(packed, batch), "qkv").flops, partOf(modelForward(packed, batch), "qkv").unknown], [null, "packed"]);

  const other = aModel();
  other.config.hidden_act = "xielu";
  other.weights.push(["model.layers.*.mixer.A_log", [0, 1], "float32", [4]]);
  assert.deepEqual(["act", "other"].map((kind) => partOf(modelForward(other, batch), kind).unknown), ["activation", "other"]);
  assert.equal(partOf(modelForward(other, batch), "other").weights, 16);

  const compressed = aModel();
  compressed.config.kv_lora_rank = "512";
  assert.equal(partOf(modelForward(compressed, batch), "attention").unknown, "mla");
  for (const kind of ["write", "attention"]) assert.equal(sumWork([partOf(modelForward(compressed, batch), kind)]).bytes, null);
  assert.equal(partOf(modelForward(compressed, batch), "attention").formula, "");
});

test("a model without rotary embedding has the addition of its positions", () => {
  const model = aModel();
  model.config.rope = "False";
  model.weights.push(["model.embed_positions.weight", null, "bfloat16", [20, 8]]);
  const forward = modelForward(model, batch);
  assert.deepEqual(forward.before.map(({ kind, flops }) => [kind, flops]), [["embed", 0], ["positions", 32]]);
  assert.equal(partOf(forward, "rotary"), undefined);
});

test("kernels are added up for a step, and for the whole run", () => {
  const rows = [
    [0, 0, "norm", 2, 50, 100, 10, 0, 0, 0, 0],
    [0, 1, "norm", 1, 40, 50, 5, 1, 30, 50, 5],
    [-1, -1, "copy", 1, 90, 8, 0, 0, 0, 0, 0],
  ];
  assert.deepEqual(sumKernels(rows, null), [[0, 0, "norm", 3, 90, 150, 15, 1, 30, 50, 5], rows[2]]);
  assert.deepEqual(sumKernels(rows, { engine: 0, step: 1 }), [rows[1]]);
  assert.equal(rows[0][3], 2);
});

test("the limit is the memory's rate up to the ridge, then that of arithmetic", () => {
  const limit = { flops: 100, bytes: 10, source: "peak" };
  assert.deepEqual([1, 10, 50].map((intensity) => attainable(limit, intensity)), [10, 100, 100]);
  assert.equal(limitShare(50, 20, 4, limit), 0.5);
  assert.equal(limitShare(200, 20, 4, limit), 0.5);
});

test("quantities have three digits and a unit", () => {
  assert.deepEqual([0, 512, 11_900_000, 999_600].map(byteSize), ["0 B", "512 B", "11.9 MB", "1.00 MB"]);
  assert.deepEqual([768, 1_572_864].map(shortCount), ["768", "1.57 M"]);
  assert.equal(rate(3.35e12, "B/s"), "3.35 TB/s");
  assert.deepEqual([0, 0.00001, 0.052, 0.34, 1].map(percent), ["0%", "<0.1%", "5.2%", "34.0%", "100%"]);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { aModel } from "./a_model.mjs";
import { aRun } from "./run.mjs";
import { modelForward } from "../../tracellm/report/html/js/model/model.js";
import { fastestSeen, stepTimes } from "../../tracellm/report/html/js/model/times.js";
import { agrees, attentionGrids, attentionLaunch, launchReads, requestReads } from "../../tracellm/report/html/js/model/reads.js";
import { Replay } from "../../tracellm/report/html/js/run/replay.js";

const engine = { blockSize: 4, numGroups: 1 };
/** A step with a request that decodes after 8 tokens, and one whose 3 tokens follow 3. */
const state = {
  step: { scheduled: [[0, 1, 8, 1, 0], [1, 3, 3, 0, 0]] },
  tables: new Map([[0, [7, 8, 2]], [1, [5, 1]]]),
};

test("a program for each request reads the blocks of its block table", () => {
  const run = aRun();
  const reads = requestReads(new Replay(run.engines[0], run.requests).at(1), run.engines[0], 0);
  assert.deepEqual(reads, [
    { r: 0, index: "0, *", queries: 1, first: 0, stop: 9, blocks: [1, 2, 3], last: 1 },
    { r: 1, index: "1, *", queries: 5, first: 0, stop: 9, blocks: [1, 4], last: 1 },
  ]);
  assert.deepEqual(requestReads(state, { ...engine, numGroups: 2 }, 0), []);
});

test("a sliding window leaves out the blocks before it", () => {
  assert.deepEqual(requestReads(state, engine, 3).map(({ first, blocks }) => [first, blocks]), [[6, [8, 2]], [1, [5, 1]]]);
});

test("the programs of each kernel are those that the recording lists", () => {
  const of = (kernel, constants) => launchReads(state, engine, { kernel, constants }).map(({ index, blocks }) => [index, blocks]);
  assert.deepEqual(of("paged_attention_v1_kernel", { WINDOW: "0" }), [["0, *", [7, 8, 2]]]);
  assert.deepEqual(of("paged_attention_v2_kernel", { WINDOW: "0", PARTITION: "8", partitions: "2" }), [["0, *, 0", [7, 8]], ["0, *, 1", [2]]]);
  assert.deepEqual(of("attention_varlen_kernel", { WINDOW: "0", QUERIES: "4" }), [["0, *", [5, 1]]]);
  assert.deepEqual(of("attention_varlen_kernel", { WINDOW: "0", QUERIES: "1" }), [["0, *", [5]], ["1, *", [5, 1]], ["2, *", [5, 1]]]);
  assert.deepEqual(of("rms_norm_kernel", {}), []);
});

test("a launch whose blocks are not known has no grid", () => {
  const [decode, prefill] = ["paged_attention_v1_kernel", "attention_varlen_kernel"].map((kernel) => ({ kernel, grid: [1], reason: "", constants: {}, blocks: null }));
  const launches = (own, ...all) => attentionGrids(own, engine, all, 0).map(({ launch, reads }) => [launch?.kernel, reads.length]);
  assert.deepEqual(launches(state, decode, prefill), [[decode.kernel, 1], [prefill.kernel, 3]]);
  assert.deepEqual(launches({ ...state, tables: new Map([[1, [5, 1]]]) }, decode, prefill), [[prefill.kernel, 3]]);
  assert.deepEqual(launches(state), [[undefined, 2]]);
  assert.deepEqual(launches({ ...state, tables: new Map() }), []);
});

/** Calls as js/calls.js has them, from `[name, microseconds, level, children]`. */
function someCalls(tree, attributes = {}) {
  const calls = { names: [], name: [], us: [], recording: [], levels: [], below: [] };
  const add = ([name, us, level, below = []]) => {
    const i = calls.name.length;
    calls.names.push(name);
    calls.name.push(i);
    calls.us.push(us);
    calls.recording.push(1);
    calls.levels.push(level);
    calls.below.push([]);
    calls.below[i] = below.map(add);
    return i;
  };
  add(tree);
  return Object.assign(calls, {
    children: (i) => calls.below[i],
    level: (i) => calls.levels[i],
    attributes: (i) => attributes[calls.names[i]] ?? {},
    stepCall: () => 0,
  });
}

test("a recorded launch has its grid, its reason and its blocks", () => {
  const attributes = {
    "tracellm.launch.grid": [1, 2],
    "tracellm.launch.reason": "short_context",
    "tracellm.arguments": ["output=float32[1]"],
    "tracellm.launch.constants": ["WINDOW=0"],
    "tracellm.launch.blocks_read": ["0,*: 7-8,2"],
  };
  const calls = someCalls(["paged_attention_v1_kernel", 5, "kernel"], { paged_attention_v1_kernel: attributes });
  const launch = attentionLaunch(calls, 0);
  assert.deepEqual([launch.grid, launch.reason, launch.constants.WINDOW, [...launch.blocks]], [[1, 2], "short_context", "0", [["0, *", [7, 8, 2]]]]);
  assert.equal(agrees(launch, launchReads(state, engine, launch)), true);
  assert.equal(agrees({ ...launch, blocks: new Map([["0, *", [7, 8]]]) }, launchReads(state, engine, launch)), false);
  assert.equal(agrees({ ...launch, blocks: null }, []), null);
  assert.equal(attentionLaunch(someCalls(["rms_norm_kernel", 5, "kernel"]), 0), null);
});

const layer = (us) => [
  "TinyDecoderLayer.forward", us, "layer",
  [
    ["RMSNorm.forward", 3, "layer"],
    ["TinyAttention.forward", 60, "layer", [
      ["QKVParallelLinear.forward", 11, "kernel"],
      ["RotaryEmbedding.forward", 5, "layer"],
      ["Attention.forward", 21, "layer", [["CPUAttentionBackendImpl.reshape_and_cache", 5, "kernel"], ["CPUAttentionBackendImpl.paged_attention", 9, "kernel"]]],
      ["ReplicatedLinear.forward", 8, "kernel"],
    ]],
    ["RMSNorm.forward", 4, "layer"],
    ["TinyMLP.forward", 40, "layer", [["MergedColumnParallelLinear.forward", 17, "kernel"], ["SiluAndMul.forward", 3, "layer"], ["ReplicatedLinear.forward", 9, "kernel"]]],
  ],
];

const aStep = ["EngineCore.step_fn", 500, "step", [
  ["TinyForCausalLM.forward", 400, "step", [["VocabParallelEmbedding.forward", 2, "layer"], layer(150), layer(140), ["RMSNorm.forward", 6, "layer"]]],
  ["TinyForCausalLM.compute_logits", 31, "step"],
]];

test("calls are the times of parts, without the time of the recording in them", () => {
  const forward = modelForward(aModel(), { tokens: 4, samples: 2, requests: [[4, 0]] });
  const times = stepTimes(someCalls(aStep), 0, forward);
  const each = (n) => ({ [`${n} norm_attention`]: 2, [`${n} qkv`]: 10, [`${n} rotary`]: 4, [`${n} write`]: 4, [`${n} attention`]: 14, [`${n} out`]: 7, [`${n} norm_mlp`]: 3, [`${n} up`]: 16, [`${n} act`]: 2, [`${n} down`]: 8 });
  assert.deepEqual(Object.fromEntries(times.parts), { "-1 embed": 1, ...each(0), ...each(1), "-1 final_norm": 5, "-1 logits": 30 });
  assert.deepEqual([...times.layers], [[0, 136], [1, 126]]);
  assert.equal(times.forward, 369);
  assert.equal(stepTimes(someCalls(aStep), null, forward).parts.size, 0);
});

test("blocks without a call of their own begin with their attention", () => {
  const model = aModel();
  model.config = { hidden_size: "8", activation_function: "gelu_new", rope: "False" };
  model.weights[4] = ["model.layers.*.mlp.c_fc.weight", [0, 1], "bfloat16", [16, 8]];
  const block = [["GPT2Attention.forward", 20, "layer", [["QKVParallelLinear.forward", 5, "kernel"], ["Attention.forward", 6, "layer"], ["ReplicatedLinear.forward", 4, "kernel"]]], ["GPT2MLP.forward", 30, "layer", [["ReplicatedLinear.forward", 7, "kernel"], ["ReplicatedLinear.forward", 9, "kernel"]]]];
  const times = stepTimes(someCalls(["GPT2Model.forward", 200, "step", [...block, ...block]]), 0, modelForward(model, { tokens: 1, samples: 1, requests: [[1, 0]] }));
  assert.deepEqual([...times.parts].slice(0, 5), [["0 qkv", 4], ["0 attention", 5], ["0 out", 3], ["0 up", 6], ["0 down", 8]]);
  assert.deepEqual([...times.layers.keys()], [0, 1]);
});

test("the fastest parts of the run are its limit", () => {
  const run = aRun();
  const found = fastestSeen(someCalls(aStep), 0, run.engines[0], aModel());
  assert.ok(found.flops >= (1e6 * 2 * 8 * 32 * 8) / 16);
  assert.ok(found.bytes > 0);
  assert.equal(fastestSeen(someCalls(["EngineCore.step_fn", 5, "step"]), 0, { ...run.engines[0] }, aModel()), null);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { aRun } from "./run.mjs";
import { fromHash, select, toHash } from "../../tracellm/report/html/js/run/selection.js";
import { codeHits, codeLinks, codePieces } from "../../tracellm/report/html/js/source/code.js";
import { byOwner, findFunction, parameterChanges, signatureDifferences, vllmAddress, vllmChanges } from "../../tracellm/report/html/js/source/functions.js";

const functions = {
  "tracellm.engine.core.Scheduler.schedule": { path: "Scheduler.schedule", file: "tracellm/engine/core.py", line: 9, spans: { "Scheduler.schedule": 2 }, callers: [] },
  "tracellm.engine.linear.ReplicatedLinear.forward": { path: "ReplicatedLinear.forward", file: "tracellm/engine/linear.py", line: 2, spans: { "QKVParallelLinear.forward": 4 }, callers: [] },
  "tracellm.engine.core.check": { path: "check", file: "tracellm/engine/core.py", line: 30, spans: { check: 1 }, callers: [] },
  "tracellm.engine.core.Scheduler.free": { path: "Scheduler.free", file: "tracellm/engine/core.py", line: 20, spans: { "Scheduler.free": 1 }, callers: [] },
};
const source = { recorded: "1", installed: "1", versions: ["0.11.1", "0.32.0"], engine: { name: "", version: "" }, functions };

/** @param {object} more */
const inVllm = (more) => ({ file: "vllm/a.py", name: "A.f", line: 1, lines: 10, parameters: ["self"], ...more });

test("a call leads to its function by its attributes, its path or its span's name", () => {
  const schedule = "tracellm.engine.core.Scheduler.schedule";
  assert.equal(findFunction(source, "Other.name", { "code.function.name": schedule }), schedule);
  assert.equal(findFunction(source, "Scheduler.schedule"), schedule);
  assert.equal(findFunction(source, "QKVParallelLinear.forward"), "tracellm.engine.linear.ReplicatedLinear.forward");
  assert.equal(findFunction(source, "hello.py"), null);
  assert.equal(findFunction(source, "__proto__"), null);
  assert.equal(findFunction(undefined, "Scheduler.schedule"), null);
});

test("functions stand under their class, or their file", () => {
  assert.deepEqual([...byOwner(source)].map(([owner, names]) => [owner, names.length]), [["Scheduler", 2], ["ReplicatedLinear", 1], ["core.py", 1]]);
});

test("parameters are added, removed or renamed; defaults and the bare star do not count", () => {
  assert.deepEqual(parameterChanges(["self", "a", "b="], ["self", "a=", "*", "b"]), { added: [], removed: [], renamed: [] });
  assert.deepEqual(parameterChanges(["self", "a"], ["self", "b"]), { added: [], removed: [], renamed: [["a", "b"]] });
  assert.deepEqual(parameterChanges(["self", "a", "b"], ["self", "c"]), { added: ["c"], removed: ["a", "b"], renamed: [] });
  assert.deepEqual(parameterChanges(["a", "b"], ["b", "a"]), { added: [], removed: [], renamed: [] });
});

test("what changed is derived from the two places", () => {
  assert.deepEqual(vllmChanges(inVllm({}), inVllm({ line: 7 })), []);
  assert.deepEqual(vllmChanges(undefined, inVllm({})), [["added", {}]]);
  const many = Array.from({ length: 14 }, (_, i) => `g${i}`);
  assert.deepEqual(
    vllmChanges(inVllm({}), inVllm({}), { added: many, removed: ["old"] }).map(([key, { names, n }]) => [key, names.split(", ").length, n]),
    [["calls.added.more", 12, 2], ["calls.removed", 1, -11]],
  );
  assert.deepEqual(vllmChanges(inVllm({}), undefined), [["removed", {}]]);
  assert.deepEqual(
    vllmChanges(inVllm({}), inVllm({ file: "vllm/b.py", name: "B.f", parameters: ["self", "x="], async: true, lines: 12 })).map(([key]) => key),
    ["moved", "renamed", "parameter.added", "async", "lines"],
  );
  assert.deepEqual(vllmChanges(inVllm({ part: true }), inVllm({ lines: 90, parameters: [] })), []);
  assert.deepEqual(signatureDifferences({ parameters: [], async: true }, { parameters: [] }), [["sync", {}]]);
});

test("links lead to releases and to files of vLLM only", () => {
  assert.equal(vllmAddress("0.32.0+cpu", "vllm/v1/request.py", 3), "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/request.py#L3");
  assert.equal(vllmAddress("dev", "vllm/v1/request.py", 3), null);
  assert.equal(vllmAddress("0.32.0", "vllm/../../evil.py", 3), null);
  assert.equal(vllmAddress("0.32.0", "javascript:alert(1)", 3), null);
});

test("code is cut into lines of coloured pieces, and stays the same text", () => {
  const code = 'def f(x="a # b"):\n    """Say\n    it."""\n    return None  # done\n';
  const lines = codePieces(code);
  assert.equal(lines.map((line) => line.map(([, text]) => text).join("")).join("\n") + "\n", code);
  assert.deepEqual(lines[0].filter(([kind]) => kind), [["keyword", "def"], ["string", '"a # b"']]);
  assert.deepEqual(lines[1].at(-1), ["string", '"""Say']);
  assert.deepEqual(lines[3].filter(([kind]) => kind), [["keyword", "return"], ["keyword", "None"], ["comment", "# done"]]);
  assert.deepEqual(codePieces("x = f'{y!r}' + rb\"z\"")[0].filter(([kind]) => kind === "string").map(([, text]) => text), ["f'{y!r}'", 'rb"z"']);
});

test("a split or merged function is no renamed one", () => {
  const [part, whole] = [inVllm({ part: true }), inVllm({ name: "A._g" })];
  assert.deepEqual(vllmChanges(part, whole), [["split", { from: "A.f", to: "A._g" }]]);
  assert.deepEqual(vllmChanges(whole, part), [["merged", { from: "A._g", to: "A.f" }]]);
  assert.deepEqual(vllmChanges(part, inVllm({ part: true, lines: 99 })).map(([key]) => key), ["lines"]); // of the whole function
});

test("lines with a text are found, in any case; short texts find none", () => {
  const code = "def f():\n    self._preempt()\n    x = PREEMPTED\n";
  assert.deepEqual(codeHits(code, " preempt "), [[1, "    self._preempt()"], [2, "    x = PREEMPTED"]]);
  assert.deepEqual(codeHits(code, "f("), []);
  assert.deepEqual(codeHits(undefined, "preempt"), []);
});

test("names in code lead to listed functions, and never to the function itself", () => {
  const target = codeLinks(source, "tracellm.engine.core.Scheduler.schedule");
  assert.equal(target("self.", "free"), "tracellm.engine.core.Scheduler.free");
  assert.equal(target("    return ", "check"), "tracellm.engine.core.check");
  assert.equal(target("self.", "schedule"), null);
  assert.equal(target("other.", "free"), null);
  assert.equal(target("def ", "check"), null);
  const more = { ...source, functions: { ...functions, "tracellm.engine.kv.Manager.allocate_slots": { ...functions["tracellm.engine.core.check"], path: "Manager.allocate_slots", file: "tracellm/engine/kv.py" } } };
  assert.equal(codeLinks(more, "tracellm.engine.core.check")("self.manager.", "allocate_slots"), "tracellm.engine.kv.Manager.allocate_slots");
});

test("names in code lead to functions of a vLLM by those of their counterparts", () => {
  const ours = (path) => ({ path, file: "tracellm/engine/core.py", line: 1 });
  const ofVllm = (path) => ({ path, file: "vllm/core.py", line: 1, spans: {}, callers: [] });
  const functions = {
    "vllm.core.Core.step": { ...ofVllm("Core.step"), ours: ours("Core.step_fn") },
    "vllm.core.Core.run": { ...ofVllm("Core.run"), ours: ours("Core.run_loop") },
    "vllm.core.Core.free": ofVllm("Core.free"),
    "tracellm.engine.core.check": { ...ours("check"), spans: {}, callers: [], called_by: ["vllm.core.Core.run"] },
  };
  const target = codeLinks({ ...source, functions }, "vllm.core.Core.run");
  assert.equal(target("self.", "step_fn"), "vllm.core.Core.step");
  assert.equal(target("    ", "check"), "tracellm.engine.core.check");
  assert.deepEqual([target("self.", "step"), target("self.", "free")], [null, null]);
});

test("an address holds the function, also in a run without steps", () => {
  const run = aRun();
  select(run, { source: "Scheduler.schedule" });
  assert.equal(toHash(run), "#step=1&source=Scheduler.schedule");
  assert.equal(fromHash(aRun(), "#source=Scheduler.schedule").source, "Scheduler.schedule");
  const empty = { engines: [], requests: [] };
  select(empty, { source: "A.f", ...fromHash(empty, "#step=3&engine=1") });
  assert.equal(toHash(empty), "#source=A.f");
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { aTrace, calls as of, written } from "./trace.mjs";
import { Calls, followCall } from "../../tracellm/report/html/js/calls/calls.js";
import { onSelect, select, selected } from "../../tracellm/report/html/js/run/selection.js";

test("columns give each call's times, names, threads and callers", () => {
  const calls = of(aTrace());
  assert.deepEqual([...calls.start], [0, 1, 2.5, 400, 900]);
  assert.deepEqual([...calls.us], [1000, 300.1, 20, 100, 5]);
  assert.deepEqual([...calls.parent], [-1, 0, 1, 0, -1]);
  assert.deepEqual([...calls.name].map((name) => calls.names[name]), ["main.py", "A.f", "A.g", "A.f", "B.run"]);
  assert.equal(calls.threads[calls.thread[4]].process, "other");
  assert.equal(calls.level(2), "layer");
});

test("children are in the order of their starts, and roots have no caller", () => {
  const calls = of(aTrace());
  assert.deepEqual([-1, 0, 1, 2].map((i) => [...calls.children(i)]), [[0, 4], [1, 3], [2], []]);
});

test("own time leaves out callees of the same thread, and the recording", () => {
  const calls = of(aTrace());
  assert.deepEqual([0, 1, 2].map((i) => Math.round(calls.own(i) * 10) / 10), [599.9, 270.1, 20]);
});

test("a call's step is its own or that of a caller", () => {
  const calls = of(aTrace());
  assert.deepEqual([0, 1, 2, 3].map((i) => calls.step(i)), [null, { engine: 0, step: 0 }, { engine: 0, step: 0 }, null]);
  assert.equal(calls.stepCall(0, 0), 1);
  assert.equal(calls.stepCall(1, 0), null);
});

test("a call is about the one request that it submitted, however many calls it made", () => {
  const rows = [[0, 10_000, 0, 0, 0, 0]];
  for (let i = 1; i < 12; i += 1) rows.push([10, 10, 2 * i, 1, 0, 0]);
  const about = (/** @type {number[]} */ requests) => of({ head: { ...aTrace().head, requests }, rows }).request(0);
  assert.deepEqual([[], [3], [11], [3, 11]].map(about), [null, 0, 0, null]);
});

test("attributes are found by call, and what was left out is known", () => {
  const calls = of(aTrace());
  assert.deepEqual(calls.attributes(1), { a: 1, b: ["x"] });
  assert.deepEqual(calls.attributes(2), {});
  assert.equal(calls.error(2), "ValueError: no");
  assert.ok(calls.failed(2) && !calls.failed(1));
  assert.ok(calls.attributesLeftOut(3) && !calls.attributesLeftOut(0));
  assert.equal(calls.leftOut, 1);
});

test("a call's step is selected with it, unless another one is chosen while the calls are read", async () => {
  const stored = { textContent: deflateSync(written(aTrace())).toString("base64") };
  globalThis.document = /** @type {any} */ ({ getElementById: () => stored });
  const run = { engines: [{ process: "", steps: [{ n: 1 }, { n: 2 }, { n: 3 }] }], requests: [{ id: "a" }] };
  /** @type {Promise<void>[]} */
  const following = [];
  onSelect(run, (change) => following.push(followCall(run, change)));
  const choose = async (/** @type {Partial<import("../../tracellm/report/html/js/run/selection.js").Selection>[]} */ ...changes) => {
    for (const change of changes) select(run, change);
    await Promise.all(following);
    return selected(run).step;
  };
  assert.equal(await choose({ step: 2 }, { call: 2 }, { step: 1 }), 1);
  assert.equal(await choose({ step: 2 }, { call: 2 }, { step: 2 }), 2);
  assert.equal(await choose({ call: 2 }, { call: null }), 2);
  assert.equal(await choose({ call: 2 }, { block: 1 }), 0);
  delete (/** @type {any} */ (globalThis).document);
});

// tests/report/test_calls_data.py runs this with calls that `calls_data` wrote
test("calls that Python wrote are read as it wrote them", { skip: !process.env.CALLS_DATA }, () => {
  const folder = process.env.CALLS_DATA;
  const calls = new Calls(new Uint8Array(readFileSync(`${folder}/calls`)));
  const written = JSON.parse(readFileSync(`${folder}/calls.json`, "utf-8"));
  for (let i = 0; i < calls.count; i += 1) {
    const { process, pid, thread } = calls.threads[calls.thread[i]];
    assert.deepEqual(
      {
        name: calls.names[calls.name[i]], start: Math.round(calls.start[i] * 10), ticks: Math.round(calls.us[i] * 10),
        parent: calls.parent[i], process, pid, thread, recording: Math.round(calls.recording[i] * 10),
        level: calls.level(i), open: calls.open(i), error: calls.error(i), attributes: calls.attributes(i),
      },
      written[i],
    );
  }
  assert.equal(calls.count, written.length);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { aTrace, calls as of } from "./trace.mjs";
import { firstAfter, lanes, markDistance, rowBlocks, summary } from "../../tracellm/report/html/js/calls/timeline_model.js";
import { profileOf, sortedProfile } from "../../tracellm/report/html/js/calls/profile_model.js";
import { closeAll, findRows, openBelow, openTo, ordered, rowOf, shownRows, treeOf } from "../../tracellm/report/html/js/calls/tree_model.js";

const named = (rows) => rows.map((row) => `${row.name} ${row.numbers.length}`);
const tree = () => {
  const calls = of(aTrace());
  return treeOf(calls, calls.children(-1));
};

test("calls of one name below one row are one row, with their times added", () => {
  const [main, other] = tree().rows;
  assert.deepEqual(named([main, other]), ["main.py 1", "B.run 1"]);
  assert.deepEqual(named(main.rows), ["A.f 2"]);
  const [f] = main.rows;
  assert.deepEqual([f.total, f.recording, f.failed].map(Math.round), [400, 10, 0]);
  assert.deepEqual(named(f.rows), ["A.g 1"]);
  assert.equal(f.rows[0].failed, 1);
  assert.ok(f.hasRows && !f.rows[0].hasRows);
});

test("only rows below open ones are shown", () => {
  const top = tree();
  assert.deepEqual(named(shownRows(top, "first")), ["main.py 1", "B.run 1"]);
  top.rows[0].open = true;
  assert.deepEqual(named(shownRows(top, "first")), ["main.py 1", "A.f 2", "B.run 1"]);
});

test("rows are sorted by first call, total and own time", () => {
  const trace = aTrace();
  trace.rows[4][1] = 90_000;
  const calls = of(trace);
  const top = treeOf(calls, calls.children(-1));
  assert.deepEqual(named(ordered(top, "first")), ["main.py 1", "B.run 1"]);
  assert.deepEqual(named(ordered(top, "total")), ["B.run 1", "main.py 1"]);
  assert.deepEqual(named(ordered(top, "own")), ["B.run 1", "main.py 1"]);
});

test("a search finds rows in their order, and the way to one is opened", () => {
  const top = tree();
  const found = findRows(top, "a.", "first");
  assert.deepEqual(named(found), ["A.f 2", "A.g 1"]);
  openTo(found[1]);
  assert.ok(shownRows(top, "first").includes(found[1]));
  assert.deepEqual(findRows(top, "nothing", "first"), []);
  assert.deepEqual(findRows(top, "", "first"), []);
});

test("a call's row shows that call", () => {
  const top = tree();
  const row = rowOf(top, 3);
  assert.deepEqual([row.name, row.at, row.call], ["A.f", 1, 3]);
  assert.equal(rowOf(treeOf(of(aTrace()), [1]), 3), null);
});

test("all rows below a row are opened, unless they are too many, and all are closed", () => {
  const top = tree();
  assert.ok(openBelow(top.rows[0], 10));
  assert.deepEqual(named(shownRows(top, "first")), ["main.py 1", "A.f 2", "A.g 1", "B.run 1"]);
  closeAll(top);
  assert.deepEqual(named(shownRows(top, "first")), ["main.py 1", "B.run 1"]);
  assert.ok(!openBelow(top.rows[0], 1));
  assert.deepEqual(named(shownRows(top, "first")), ["main.py 1", "A.f 2", "B.run 1"]);
});

test("a profile has one row for each function, with the sums of its calls", () => {
  const calls = of(aTrace());
  const rows = profileOf(calls, calls.children(-1));
  assert.deepEqual(rows.map((row) => [row.name, row.calls, row.longest, row.failed]), [["main.py", 1, 0, 0], ["A.f", 2, 1, 0], ["A.g", 1, 2, 1], ["B.run", 1, 4, 0]]);
  const [main, f] = rows;
  assert.deepEqual([main.total, f.total, f.own, f.recording].map(Math.round), [1000, 400, 370, 10]);
  assert.equal(rows.reduce((sum, row) => sum + row.calls, 0), calls.count);
  assert.deepEqual(profileOf(calls, [3]).map((row) => [row.name, row.calls, row.longest]), [["A.f", 1, 3]]);
  assert.deepEqual(profileOf(calls, []), []);
});

test("the total of a function leaves out calls inside a call of the same function", () => {
  const rows = [[0, 1000, 0, 0, 0, 0], [10, 900, 2, 1, 0, 0], [10, 500, 2, 1, 0, 0], [10, 300, 2, 2, 0, 0], [10, 100, 2, 1, 0, 0], [900, 50, 10, 1, 0, 0]];
  const calls = of({ ...aTrace(), rows });
  const [, f, g] = profileOf(calls, calls.children(-1));
  assert.deepEqual([f.calls, f.total, f.longest], [4, 95, 1]);
  assert.deepEqual([g.calls, g.total], [1, 30]);
});

test("a profile is sorted by each column, both ways", () => {
  const calls = of(aTrace());
  const rows = profileOf(calls, calls.children(-1));
  const order = (column, reversed) => sortedProfile(rows, column, reversed).map(({ name }) => name);
  assert.deepEqual(order("name", false), ["A.f", "A.g", "B.run", "main.py"]);
  assert.deepEqual(order("name", true), ["main.py", "B.run", "A.g", "A.f"]);
  assert.equal(order("calls", false)[0], "A.f");
  assert.equal(order("total", false)[0], "main.py");
  assert.equal(order("total", true)[0], "B.run");
  assert.equal(order("recording", false)[0], "A.f");
});

test("the profile of a million calls takes well under a second", () => {
  const rows = [[0, 40_000_000, 0, 0, 0, 0]];
  for (let i = 1; i < 1_000_000; i += 1) rows.push(i % 10 === 1 ? [9, 35, 2 * i, 1, 0, 0] : [3, 2, 2 * ((i - 1) % 10 || 10), 2, 0, 0]);
  const calls = of({ ...aTrace(), rows });
  calls.own(0);
  const began = performance.now();
  const found = profileOf(calls, calls.children(-1));
  const took = performance.now() - began;
  assert.equal(found.reduce((sum, row) => sum + row.calls, 0), 1_000_000);
  assert.ok(took < 1000, `${took} ms`);
});

test("a lane has a row for each depth, and calls that overlap get rows of their own", () => {
  const trace = aTrace();
  trace.rows.splice(4, 0, [10, 50_000, 8, 2, 0, 0], [10, 50_000, 10, 2, 0, 0]);
  const calls = of(trace);
  const found = lanes(calls).map(({ thread, rows }) => [calls.threads[thread].process, rows.map(({ numbers }) => [...numbers])]);
  assert.deepEqual(found, [["main", [[0], [1, 3], [2, 4], [5]]], ["other", [[6]]]]);
});

test("calls too narrow are merged into blocks, and no call is lost", () => {
  const rows = [[0, 10_000_000, 0, 0, 0, 0]];
  for (let i = 0; i < 5000; i += 1) rows.push([i ? 1000 : 0, 500, 2 * (i + 1), 1, 0, 0]);
  const calls = of({ ...aTrace(), rows });
  const [{ rows: found }] = lanes(calls);
  const whole = rowBlocks(calls, found[1], 0, 1_000_000, 1000);
  assert.ok(whole.length <= 501);
  assert.equal(whole.reduce((sum, block) => sum + block.count, 0), 5000);
  assert.ok(whole.every(({ busy }) => busy > 0.3 && busy < 0.7));
  const near = rowBlocks(calls, found[1], 1000, 1400, 1000);
  assert.deepEqual(near.map(({ count }) => count), [1, 1, 1, 1]);
  assert.deepEqual(near.map(({ from, to }) => [Math.round(from), Math.round(to)]), [[0, 125], [250, 375], [500, 625], [750, 875]]);
});

test("a part of a row is found and summed", () => {
  const calls = of(aTrace());
  const [, f] = lanes(calls)[0].rows;
  assert.equal(firstAfter(calls, f, 350), 1);
  const { count, busy, longest } = summary(calls, f, 200, 450);
  assert.deepEqual([count, Math.round(busy), longest], [2, 151, 1]);
});

test("marks of the axis are 1, 2 or 5 times a power of ten apart", () => {
  assert.deepEqual([0.9, 1, 1.2, 3, 7, 45_000].map(markDistance), [1, 1, 2, 5, 10, 50_000]);
});

test("waits side by side count once in the tree and the profile, those of several threads each", () => {
  const { head } = aTrace();
  const rows = [[0, 10_000, 0, 0, 0, 0]];
  for (let n = 0; n < 16; n += 1) rows.push([10 * (n ? 1 : 0), 9000, 2 * rows.length, 1, 0, 0]);
  const calls = of({ head: { ...head, count: rows.length, requests: [], steps: [] }, rows });
  const [row] = treeOf(calls, calls.children(-1)).rows[0].rows;
  assert.deepEqual([row.numbers.length, row.total, row.own], [16, 915, 915]);
  const [, profile] = profileOf(calls, calls.children(-1));
  assert.deepEqual([profile.calls, profile.total, profile.own], [16, 915, 915]);
});

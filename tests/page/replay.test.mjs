import assert from "node:assert/strict";
import { test } from "node:test";

import { aRun } from "./run.mjs";
import { owners, phases, Replay, slots } from "../../tracellm/report/html/js/run/replay.js";

const replayOf = (run) => new Replay(run.engines[0], run.requests);
const plain = (state) => ({ tables: [...state.tables], cached: [...state.cached] });

test("block tables follow allocation, preemption and resumption", () => {
  const replay = replayOf(aRun());
  const tables = [0, 1, 2, 3, 4].map((index) => Object.fromEntries(replay.at(index).tables));
  assert.deepEqual(tables, [{ 0: [1, 2] }, { 0: [1, 2, 3], 1: [1, 4] }, { 1: [1, 4, 2] }, { 0: [1, 5, 6] }, {}]);
});

test("a block in two tables has two owners, and an evicted one loses its content", () => {
  const replay = replayOf(aRun());
  assert.deepEqual(owners(replay.at(1)).get(1), [0, 1]);
  assert.deepEqual([...replay.at(1).cached.keys()], [1, 2]);
  assert.deepEqual([...replay.at(2).cached.keys()], [1]);
});

test("steps in any order have the same states as from first to last", () => {
  const run = aRun(60);
  const forwards = replayOf(run);
  const expected = run.engines[0].steps.map((_, index) => plain(forwards.at(index)));
  const anyOrder = replayOf(run);
  for (const index of [299, 0, 64, 63, 128, 65, 127, 200, 1, 299, 192]) {
    assert.deepEqual(plain(anyOrder.at(index)), expected[index]);
  }
});

test("slots are block times block size plus offset", () => {
  const run = aRun();
  const replay = replayOf(run);
  assert.deepEqual(slots(replay.at(2), run.engines[0], 1), [9]);
  assert.deepEqual(slots(replay.at(0), run.engines[0], 0), [4, 5, 6, 7, 8, 9, 10, 11]);
  assert.deepEqual(slots(replay.at(0), { ...run.engines[0], numGroups: 2 }, 0), []);
});

test("tokens of a prompt and of an output are found by position", () => {
  const replay = replayOf(aRun());
  assert.equal(replay.token(0, 3).id, 4);
  assert.equal(replay.token(0, 9).id, 41);
  assert.equal(replay.token(0, 9).output.step, 1);
  assert.equal(replay.token(2, 0), null);
  assert.deepEqual(replay.outputsUpTo(0, 2).map((output) => output.row[1]), [40, 41]);
});

test("prefill and decode tokens of a step are counted apart", () => {
  assert.deepEqual(phases(aRun().engines[0].steps[1]), [5, 1]);
});

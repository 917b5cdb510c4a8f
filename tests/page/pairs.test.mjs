import assert from "node:assert/strict";
import { test } from "node:test";

import { aRun } from "./run.mjs";
import { differences } from "../../tracellm/report/html/js/diff/pairs.js";

/** Return what differs, requests as sorted lists. */
function found(a, b) {
  return Object.fromEntries(Object.entries(differences(a, b)).map(([name, rows]) => [name, [...rows].sort()]));
}

test("a step does not differ from itself", () => {
  for (const step of aRun().engines[0].steps) {
    assert.deepEqual(found(step, step), { tokens: [], blocks: [], running: [], waiting: [], sampled: [] });
  }
});

test("requests differ in tokens, blocks, queues and sampled tokens", () => {
  const [first, second] = aRun().engines[0].steps;
  assert.deepEqual(found(first, second), { tokens: [0, 1], blocks: [0, 1], running: [0, 1], waiting: [1], sampled: [0] });
  const later = { ...first, held: [[1, "max_num_seqs", ""]], scheduled: [[0, 4, 0, 0, 0]] };
  assert.deepEqual(found(first, later), { tokens: [0], blocks: [], running: [0], waiting: [1], sampled: [] });
});

test("a sampled token that is not recorded does not differ", () => {
  const [step] = aRun().engines[0].steps;
  assert.deepEqual(found(step, { ...step, sampled: [[0, null, 0.5, []]] }).sampled, []);
});

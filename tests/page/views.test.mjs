import assert from "node:assert/strict";
import { test } from "node:test";

import { duration, percent } from "../../tracellm/report/html/js/base/quantities.js";
import { aRun } from "./run.mjs";
import { formatRanges, parseRanges } from "../../tracellm/report/html/js/base/ranges.js";
import { segments } from "../../tracellm/report/html/js/steps/gantt.js";
import { preemptedIn } from "../../tracellm/report/html/js/steps/queues.js";
import { sortRequests } from "../../tracellm/report/html/js/steps/requests.js";
import { usualParts } from "../../tracellm/report/html/js/steps/time.js";
import { changeSentences, engineName } from "../../tracellm/report/html/js/steps/steps.js";
import { fromHash, select, toHash } from "../../tracellm/report/html/js/run/selection.js";
import { setTexts, t, tokenText, visible } from "../../tracellm/report/html/js/base/text.js";

test("ranges are read and written as the recording has them", () => {
  assert.deepEqual(parseRanges("9,3-5"), [9, 3, 4, 5]);
  assert.deepEqual(parseRanges(""), []);
  assert.equal(formatRanges([9, 3, 4, 5]), "9, 3-5");
});

test("a request's segments are runs of steps in which it did the same", () => {
  const own = segments(aRun().engines[0].steps).get(0);
  assert.deepEqual(
    own.map(({ kind, first, last, tokens }) => [kind, first, last, tokens]),
    [["prefill", 0, 0, 8], ["decode", 1, 1, 1], ["preempted", 2, 2, 0], ["prefill", 3, 3, 10]],
  );
  assert.deepEqual(segments(aRun().engines[0].steps).get(2).map(({ kind, first, last }) => [kind, first, last]), [["waiting", 0, 4]]);
});

test("a waiting request has the last step that preempted it, found without a look at all steps each time", () => {
  let looks = 0;
  const preempted = { 3: [7], 5: [7, 8] };
  const steps = Array.from({ length: 9 }, (_, i) => ({ n: i + 1, kind: "decode", free: 0, get preempted() { looks += 1; return preempted[i + 1]; } }));
  const run = { ...aRun(), engines: [{ ...aRun().engines[0], steps }] };
  const found = (n) => [7, 8, 9].map((r) => preemptedIn(run, steps[n - 1], r));
  assert.deepEqual([2, 3, 4, 5, 9].map(found), [[null, null, null], [3, null, null], [3, null, null], [5, 5, null], [5, 5, null]]);
  assert.equal(looks, steps.length);
});

test("a usual step of a kind has the median of each of its parts", () => {
  setTexts({ en: { "step.comma": ", ", "step.kind.decode": "decode", "page.part.forward": "forward", "page.part.other": "other", "page.part.recording": "recording", "page.time.usual": "{n} {kind}: {time}; {parts}" }, zh: {} }, "en");
  const step = (/** @type {number} */ us, /** @type {number} */ forward, recording = 0) => ({ n: us, kind: "decode", free: 0, us, recording, parts: { forward } });
  const steps = [step(100, 60), step(10, 5, 2), step(30, 20), { n: 1, kind: "prefill", free: 0, us: 999, parts: {} }];
  assert.equal(usualParts(steps, "decode"), "3 decode: 30 µs; forward 20 µs, other 10 µs, recording 0 µs");
  assert.equal(usualParts(steps, "prefill"), "");
});

test("an address gives back the selection it was made from", () => {
  const run = aRun();
  select(run, { engine: 0, step: 2, request: 1, block: 4 });
  assert.equal(toHash(run), "#step=3&request=1&block=4");
  assert.deepEqual(fromHash(run, toHash(run)), { engine: 0, step: 2, request: 1, block: 4 });
  assert.deepEqual(fromHash(run, "#step=99&request=nobody&block=x&engine=7"), {});
});

test("an address without a step leaves engine and step as they are", () => {
  const run = aRun();
  run.engines.unshift({ ...run.engines[0], steps: run.engines[0].steps.slice(0, 1) });
  select(run, { engine: 1, step: 4 });
  for (const hash of ["#source=Scheduler.schedule", "#source=Scheduler.schedule&step=5"]) {
    assert.deepEqual(fromHash(run, hash), { source: "Scheduler.schedule" });
  }
  assert.deepEqual(fromHash(run, "#step=1"), { engine: 0, step: 0 });
  assert.deepEqual(fromHash(run, "#engine=0"), { engine: 0, step: 0 });
  assert.deepEqual(fromHash(run, "#engine=1&step=5"), { engine: 1, step: 4 });
});

test("a variant is named after its settings, and numbered if the run has several engines", () => {
  const run = aRun();
  const [engine] = run.engines;
  setTexts({ en: { "page.engine.name": "Engine {n}, {process}", "page.engine.whatif": "What if: {settings}" } }, "en");
  run.engines = [engine, { ...engine, whatIf: "a=1" }, { ...engine, whatIf: "b=2" }, { ...engine, whatIf: "b=2" }];
  const names = run.engines.map((_, i) => engineName(run, i));
  assert.deepEqual(names, ["Engine 1, main", "What if: a=1", "What if: b=2 (1)", "What if: b=2 (2)"]);
});

test("texts take values, and count as English does", () => {
  setTexts({ en: { a: "{n:token|tokens} of {name}, {all:,}" } }, "en");
  assert.equal(t("a", { n: 1, name: "x", all: 1234 }), "1 token of x, 1,234");
  assert.equal(t("a", { n: 2000, name: "{n}", all: 0 }), "2,000 tokens of {n}, 0");
});

test("numbers are short, and characters that cannot be seen are escapes", () => {
  assert.deepEqual([999, 999.5, 17_824, 2_310_000].map(duration), ["999 µs", "1.00 ms", "17.8 ms", "2.31 s"]);
  assert.deepEqual([0, 0.00001, 0.123, 0.9999, 1].map(percent), ["0%", "<0.1%", "12.3%", "100%", "100%"]);
  assert.equal(visible("a\u202eb\u0000"), "a\\u202eb\\u0000");
  assert.equal(tokenText(" a\n"), "␣a↵");
  assert.equal(tokenText(""), "∅");
});

test("requests are sorted by a column, ids by their numbers, equal ones by submission", () => {
  const requests = [{ id: "10", first: 5 }, { id: "9", first: 7 }, { id: "2" }, { id: "1", first: 5 }];
  assert.deepEqual(sortRequests(requests, "", false), [0, 1, 2, 3]);
  assert.deepEqual(sortRequests(requests, "id", false), [3, 2, 1, 0]);
  assert.deepEqual(sortRequests(requests, "first", false), [2, 0, 3, 1]);
  assert.deepEqual(sortRequests(requests, "first", true), [1, 3, 0, 2]);
});

test("a refused request stands where it arrived, and sorts by its answer", () => {
  const requests = [{ id: "0", at: 10, reason: "stop" }, { id: "1", at: 30, reason: "length" }];
  const refused = [{ id: "POST /v1/completions", at: 20, answer: "400 BadRequestError" }];
  assert.deepEqual(sortRequests([...requests, ...refused], "", false), [0, 2, 1]);
  assert.deepEqual(sortRequests([...requests, ...refused], "reason", false), [2, 1, 0]);
});

test("a request that ended before a step is named in it, an aborted or preempted one once", () => {
  const change = Object.fromEntries(["released", "dropped", "aborted", "preempted"].map((key) => [`page.change.${key}`, `${key} {names}`]));
  setTexts({ en: { ...change, "step.comma": ", " } }, "en");
  const run = aRun();
  const step = { n: 9, kind: "decode", free: 1, released: [0, 1, 2], aborted: [1], preempted: [2] };
  const [zero, one, two] = run.requests.map(({ id }) => id);
  assert.deepEqual(changeSentences(run, step), [`aborted ${one}`, `preempted ${two}`, `released ${zero}`]);
  assert.deepEqual(changeSentences(run, { n: 9, kind: "empty", free: 1, released: [0] }), [`dropped ${zero}`]);
  assert.deepEqual(changeSentences(run, { n: 9, kind: "decode", free: 1 }), []);
});

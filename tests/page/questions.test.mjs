import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { aBusyRun, aRun } from "./run.mjs";
import { parseRanges } from "../../tracellm/report/html/js/base/ranges.js";
import { runUpTo } from "../../tracellm/report/html/js/steps/predict.js";
import { questionAbout, questionsAbout } from "../../tracellm/report/html/js/steps/questions.js";
import { Replay } from "../../tracellm/report/html/js/run/replay.js";
import { setTexts } from "../../tracellm/report/html/js/base/text.js";

const KINDS = ["phase", "scheduled", "tokens", "share", "joins", "wait", "preempted", "hit", "count", "block", "free", "evicted", "slot", "token", "finished"];

/** Texts with the values that the tests read; a question's text is its request's name. */
const TEXTS = {
  ...Object.fromEntries(KINDS.map((kind) => [`page.predict.ask.${kind}`, "{name}"])),
  ...Object.fromEntries(["prefill", "decode", "mixed", "empty"].map((kind) => [`step.kind.${kind}`, kind])),
  "common.tokens": "{n:,}",
  "page.predict.blocks": "{n:,}",
  "page.predict.block": "{n}",
  "page.predict.arrived": "arrived {names}",
  "page.predict.arrival": "{name} {n:,}",
  "page.predict.reason": "{name}: {why}",
  "page.change.aborted": "aborted {names}",
  "page.slot": "{slot}",
  "step.name": "{names}",
  "step.names": "{names}",
  "step.comma": ", ",
  "held.token_budget": "budget {given} {wanted} {left} {budget}",
  "held.max_num_seqs": "seqs {running} {limit}",
  "held.no_free_blocks": "blocks {needed} {free}",
  "held.preempted": "preempted {by}",
  "held.behind": "behind {request} {cause}",
};

beforeEach(() => setTexts({ en: TEXTS, zh: TEXTS }, "en"));

const replayOf = (run) => new Replay(run.engines[0], run.requests);

/** All questions of a run, each with the step that it is about. */
function everyQuestion(run) {
  const replay = replayOf(run);
  return run.engines[0].steps.flatMap((step, index) => questionsAbout(run, replay, index).map((question) => ({ run, index, step, question })));
}

const rowsOf = (step) => step.scheduled ?? [];
const rowOf = (step, r) => rowsOf(step).find((row) => row[0] === r);
const setOf = (rows) => [...rows].sort((one, other) => one - other).join(",") || "none";
const freshOf = (step, r) => parseRanges((step.blocks ?? []).find((row) => row[0] === r)?.[2] ?? "");
const heldOf = (step, r) => (step.held ?? []).find((row) => row[0] === r);

/** Whether an answer is right, by kind, as the recorded step has it. */
const IS_RIGHT = {
  phase: ({ step }, value) => value === step.kind,
  scheduled: ({ step }, value) => value === setOf(rowsOf(step).map(([r]) => r)),
  tokens: ({ step }, value) => value === rowsOf(step).reduce((sum, row) => sum + row[1], 0),
  share: ({ step }, value, r) => value === (rowOf(step, r)?.[1] ?? 0),
  joins: ({ step }, value) => value === setOf([...(step.new ?? []), ...(step.resumed ?? [])]),
  preempted: ({ step }, value) => value === setOf(step.preempted ?? []),
  hit: ({ step }, value, r) => value === rowOf(step, r)[4],
  count: ({ step }, value, r) => value === freshOf(step, r).length,
  block: ({ step }, value, r) => (value === "none" ? !freshOf(step, r).length : freshOf(step, r).includes(value)),
  free: ({ step }, value) => value === step.free,
  evicted: ({ step }, value) => value === (step.evicted ?? []).length,
  slot: ({ run, index, step }, value, r) => {
    const [size, position] = [run.engines[0].blockSize, rowOf(step, r)[2]];
    return value === replayOf(run).at(index).tables.get(r)[Math.floor(position / size)] * size + (position % size);
  },
  token: ({ step }, value, r) => value === `token ${step.sampled.find((row) => row[0] === r)[1]}`,
  finished: ({ step }, value) => (value === "none" ? !step.finished : (step.finished ?? []).some(([r, why]) => value === `${r} ${why}`)),
  wait: ({ run, step }, value, r) => {
    if (value === "right") return true;
    const [code, ...details] = value.split(" ");
    const facts = Object.fromEntries(details.map((each) => each.split("=")));
    const left = step.budget - rowsOf(step).reduce((sum, row) => sum + row[1], 0);
    const byId = (id) => run.requests.findIndex((request) => request.id === id);
    return {
      token_budget: () => left === Number(facts.left),
      max_num_seqs: () => (step.running ?? []).length === Number(facts.running),
      no_free_blocks: () => step.free < Number(facts.needed),
      behind: () => !rowOf(step, byId(facts.request)) || Boolean(heldOf(step, byId(facts.request))),
      preempted: () => heldOf(step, r)[1] === "preempted" && heldOf(step, r)[2].includes(`by=${facts.by} `),
    }[code]();
  },
};

test("every kind of question is made", () => {
  const made = new Set(everyQuestion(aBusyRun()).map(({ question }) => question.kind));
  assert.deepEqual([...made].sort(), [...KINDS].sort());
});

for (const kind of KINDS) {
  test(`${kind}: the right answer is the data's, and no other is right`, () => {
    for (const asked of [...everyQuestion(aBusyRun()), ...everyQuestion(aRun(3))]) {
      if (asked.question.kind !== kind) continue;
      const r = asked.run.requests.findIndex(({ id }) => id === asked.question.text);
      const right = asked.question.choices.map(({ value }) => IS_RIGHT[kind](asked, value, r));
      assert.deepEqual(right.flatMap((each, i) => (each ? [i] : [])), [asked.question.right], `step ${asked.step.n}`);
    }
  });
}

test("choices differ in value and text, and there are two to four", () => {
  for (const { question } of everyQuestion(aBusyRun())) {
    const { choices } = question;
    assert.ok(choices.length >= 2 && choices.length <= 4);
    assert.equal(new Set(choices.map(({ value }) => value)).size, choices.length);
    assert.equal(new Set(choices.map(({ text }) => text)).size, choices.length, JSON.stringify(question));
  }
});

test("the reason for waiting is in the page's words", () => {
  const waits = everyQuestion(aBusyRun()).filter(({ question }) => question.kind === "wait");
  assert.deepEqual(
    waits.map(({ step, question }) => [step.n, question.text, question.choices[question.right].text]).filter(([n]) => n !== 2),
    [
      [3, "delta", "seqs 3 3"],
      [6, "delta", "preempted beta"],
      [7, "epsilon", "budget 0 3 0 8"],
      [8, "epsilon", "blocks 4 3"],
      [9, "epsilon", "blocks 6 5"],
    ],
  );
});

test("arrivals and aborts are said before the answer, as no one can foresee them", () => {
  const facts = (n) => new Set(everyQuestion(aBusyRun()).filter(({ step }) => step.n === n).map(({ question }) => question.facts[0]));
  assert.deepEqual([...facts(7)], ["arrived epsilon 3"]);
  assert.deepEqual([...facts(8)], ["aborted beta"]);
});

test("the same step has the same question, whatever was shown before and in any language", () => {
  const run = aBusyRun();
  const asked = [1, 2, 3, 4, 5, 6, 7, 8].map((index) => questionAbout(run, replayOf(run), index));
  assert.ok(asked.every((question) => question !== null));
  const replay = replayOf(run);
  setTexts({ zh: TEXTS }, "zh");
  assert.deepEqual([8, 3, 5, 1, 7, 2, 6, 4].map((index) => questionAbout(run, replay, index)), [8, 3, 5, 1, 7, 2, 6, 4].map((index) => asked[index - 1]));
});

test("kinds and places of the right answer vary", () => {
  const run = aRun(20);
  const asked = run.engines[0].steps.slice(1).map((_, i) => questionAbout(run, replayOf(run), i + 1));
  assert.ok(new Set(asked.map(({ kind }) => kind)).size >= 8);
  assert.ok(new Set(asked.map(({ right }) => right)).size >= 3);
});

test("nothing is asked about the first step, about steps that are not recorded, and after the end", () => {
  const run = aBusyRun();
  run.engines[0].steps[3].kind = "unknown";
  const replay = replayOf(run);
  assert.deepEqual([0, 3, 4, 9].map((index) => questionAbout(run, replay, index)), [null, null, null, null]);
});

test("what is shown while a question is open does not depend on the steps after it", () => {
  for (const index of [0, 3, 6]) {
    const shown = runUpTo(aBusyRun(), 0, index);
    const changed = aBusyRun();
    changed.engines[0].steps = changed.engines[0].steps.slice(0, index + 1);
    assert.deepEqual(shown, changed);
  }
});

test("what a question says before its answer does not hold the answer", () => {
  const run = aBusyRun();
  const questions = (steps) => {
    run.engines[0].steps = steps;
    return Object.fromEntries(questionsAbout(run, replayOf(run), 3).map((question) => [question.kind, question]));
  };
  const { steps } = run.engines[0];
  const found = questions(steps);
  const other = questions(steps.map((step, i) => (i === 3 ? { ...step, free: 1, evicted: [], finished: [[1, "stop"]], sampled: step.sampled.map(([r, , p, listed]) => [r, 41, p, listed]) } : step)));
  for (const kind of ["free", "evicted", "finished"]) {
    assert.notEqual(other[kind].choices[other[kind].right].value, found[kind].choices[found[kind].right].value);
    assert.deepEqual([other[kind].text, other[kind].facts], [found[kind].text, found[kind].facts]);
  }
});

test("requests whose short names are the same are called by their whole ids", () => {
  const run = aBusyRun();
  run.requests[1].id = "first-request-000001";
  run.requests[2].id = "other-request-000001";
  const { choices, right } = questionsAbout(run, replayOf(run), 1).find(({ kind }) => kind === "scheduled");
  assert.equal(choices[right].text, "alpha, first-request-000001");
});

test("tokens with the same text are one choice", () => {
  const run = aBusyRun();
  run.tokens[41] = run.tokens[40];
  const { choices } = questionsAbout(run, replayOf(run), 2).find(({ kind }) => kind === "token");
  assert.deepEqual(choices.map(({ value }) => value).sort(), ["token 40", "token 42"]);
});

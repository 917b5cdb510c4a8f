/**
 * Questions about a step that is still hidden: "which requests run in it?", "which block does request 3 get?".
 *
 * Each kind of question has one answer in the recorded step. Its wrong choices come from the same run, and the run shows
 * that they are wrong. A question's text and facts come from the steps before. The choice of kinds, requests and wrong
 * answers depends on the run and the number of the step alone.
 */

import { number, percent } from "../base/quantities.js";
import { formatRanges, parseRanges } from "../base/ranges.js";
import { hasText, t, tokenText, visible } from "../base/text.js";
import { candidatePairs, isGreedy } from "../run/data.js";
import { computedTokens, finishReason, heldReason, shortName, tokenSum } from "../run/names.js";
import { owners, phases, slots } from "../run/replay.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */
/** @typedef {import("../run/replay.js").Replay} Replay */
/** @typedef {import("../run/replay.js").State} State */
/** @typedef {import("../run/data.js").Scheduled} Scheduled */

/**
 * @typedef {object} Choice
 * @property {string | number} value the answer as data; equal values are the same answer
 * @property {string} text
 *
 * @typedef {object} Question
 * @property {string} kind
 * @property {string} text
 * @property {string[]} facts needed for the answer, besides those of the step before
 * @property {Choice[]} choices
 * @property {number} right index of the right choice
 * @property {string[]} because sentences that explain the right answer
 *
 * @typedef {object} Draft
 * @property {boolean} [event] whether the step does something that the step before did not
 * @property {Record<string, string | number>} [values] values of the question's text
 * @property {string[]} [facts]
 * @property {Choice} right
 * @property {Choice[]} wrong the first ones are used; repetitions of other choices are left out
 * @property {string[]} because
 */

const MOST_CHOICES = 4;
const MOST_SUBJECTS = 10;
const NONE = "none";

/** A step, `after`, and the one before it. */
class Transition {
  /**
   * @param {Run} run
   * @param {Replay} replay
   * @param {number} index index of the step that is asked about
   */
  constructor(run, replay, index) {
    this.run = run;
    this.replay = replay;
    this.engine = replay.engine;
    this.index = index;
    this.before = replay.at(index - 1);
    this.after = replay.at(index);
    this.step = this.after.step;
    this.last = this.before.step;
    this.rows = /** @type {Map<number, Scheduled>} */ (new Map((this.step.scheduled ?? []).map((row) => [row[0], row])));
    this.rowsBefore = new Map((this.last.scheduled ?? []).map((row) => [row[0], row]));
    this.held = new Map((this.step.held ?? []).map((row) => [row[0], row]));
    this.random = randomFrom(this.step.n);
  }

  /** Return requests that neither ran nor waited in the step before; none if its queue is not known whole. */
  get arrived() {
    if (this.last.moreWaiting) return [];
    const known = new Set([...(this.last.running ?? []), ...(this.last.waiting ?? []), ...this.rowsBefore.keys()]);
    const now = new Set([...(this.step.waiting ?? []), ...(this.step.running ?? []), ...this.rows.keys()]);
    return [...now].filter((r) => !known.has(r) && !this.step.resumed?.includes(r));
  }

  /** Return whether a block table is one list of blocks, so that a token's position gives its block. */
  get hasOneTable() {
    return this.engine.blockSize > 0 && this.engine.numGroups === 1;
  }

  /** @param {number} r */
  name(r) {
    return requestName(this.run, r);
  }

  /** @param {number[]} rows */
  names(rows) {
    return rows.map((r) => this.name(r)).join(t("step.comma"));
  }

  /** Return why a request was held, or "". @param {number} r */
  why(r) {
    const row = this.held.get(r);
    return row ? heldReason(row[1], row[2], this.run.requests[r].id) : "";
  }

  /** Return the reasons of held requests, each with its request. @param {number[]} rows */
  reasons(rows = [...this.held.keys()]) {
    return rows.slice(0, 3).map((r) => t("page.predict.reason", { name: this.name(r), why: this.why(r) }));
  }

  /** Return blocks that a request got, those of the prefix cache and those that were free. @param {number} r */
  blocks(r) {
    const row = (this.step.blocks ?? []).find(([owner]) => owner === r);
    return { hits: parseRanges(row?.[1] ?? ""), fresh: parseRanges(row?.[2] ?? "") };
  }

  /** Return the blocks that scheduled requests got and that were free. */
  get fresh() {
    return [...this.rows.keys()].flatMap((r) => this.blocks(r).fresh);
  }

  /** Return the number of output tokens of a request before the step. @param {number} r */
  outputs(r) {
    return this.replay.outputsUpTo(r, this.index - 1).length;
  }

  /** @template T @param {T[]} values */
  pick(values) {
    return values[this.random(values.length)];
  }

  /** @template T @param {T[]} values @returns {T[]} */
  shuffled(values) {
    const left = [...values];
    return values.map(() => left.splice(this.random(left.length), 1)[0]);
  }
}

/**
 * Return the question about a step; null for the first step and for one that is not known.
 * @param {Run} run
 * @param {Replay} replay
 * @param {number} index
 * @returns {Question | null}
 */
export function questionAbout(run, replay, index) {
  const found = questionsAbout(run, replay, index);
  const kindBefore = favourite(questionsAbout(run, replay, index - 1), replay.engine.steps[index - 1]?.n)?.kind;
  const others = found.filter((one) => one.kind !== kindBefore);
  return favourite(others.length ? others : found, replay.engine.steps[index]?.n);
}

/**
 * Return one of a step's questions, mostly about what is new in it.
 * @param {(Question & {event: boolean})[]} found
 * @param {number} n the step's number
 */
function favourite(found, n) {
  if (!found.length) return null;
  const random = randomFrom(n);
  const events = found.filter((one) => one.event);
  const from = events.length && random(4) ? events : found;
  return from[random(from.length)];
}

/**
 * Return all questions that fit a step, at most one of a kind.
 * @param {Run} run
 * @param {Replay} replay
 * @param {number} index
 * @returns {(Question & {event: boolean})[]}
 */
export function questionsAbout(run, replay, index) {
  const { steps } = replay.engine;
  if (index < 1 || index >= steps.length || steps[index].kind === "unknown" || steps[index - 1].kind === "unknown") return [];
  const transition = new Transition(run, replay, index);
  return Object.entries(QUESTION_KINDS).flatMap(([kind, draft], i) => {
    transition.random = randomFrom(transition.step.n * 64 + i);
    const drafted = draft(transition);
    const question = drafted && asQuestion(transition, kind, drafted);
    return question ? [question] : [];
  });
}

/** @type {Record<string, (transition: Transition) => Draft | null>} */
const QUESTION_KINDS = {
  phase: askPhase,
  scheduled: askScheduled,
  tokens: askTokens,
  share: askShare,
  joins: askJoins,
  wait: askWait,
  preempted: askPreempted,
  hit: askHit,
  count: askBlockCount,
  block: askBlock,
  free: askFree,
  evicted: askEvicted,
  slot: askSlot,
  token: askToken,
  finished: askFinished,
};

/**
 * Return a draft as a question; null if it has no wrong choice.
 * @param {Transition} transition
 * @param {string} kind
 * @param {Draft} draft
 * @returns {(Question & {event: boolean}) | null}
 */
function asQuestion(transition, kind, { event = false, values = {}, facts = [], right, wrong, because }) {
  const choices = [right];
  for (const choice of wrong) {
    const repeats = choices.some(({ value, text }) => value === choice.value || text === choice.text);
    if (!repeats && choices.length < MOST_CHOICES) choices.push(choice);
  }
  if (choices.length < 2) return null;
  const ordered = transition.shuffled(choices).sort(inOrder);
  return {
    kind,
    event,
    text: t(`page.predict.ask.${kind}`, { n: number(transition.step.n), ...values }),
    facts: [...news(transition), ...facts],
    choices: ordered,
    right: ordered.indexOf(right),
    because: because.filter(Boolean),
  };
}

/**
 * Order numbers, and put "none" last; leave others as they are.
 * @param {Choice} one
 * @param {Choice} other
 */
function inOrder({ value: one }, { value: other }) {
  if (one === NONE || other === NONE) return Number(one === NONE) - Number(other === NONE);
  return typeof one === "number" && typeof other === "number" ? one - other : 0;
}

/**
 * Return what came from outside between the two steps: no one can foresee it.
 * @param {Transition} transition
 */
function news(transition) {
  const { arrived, run, step } = transition;
  const facts = [];
  if (arrived.length) {
    const each = arrived.slice(0, MOST_SUBJECTS).map((r) => {
      const n = run.requests[r].numPrompt;
      return n === undefined ? transition.name(r) : t("page.predict.arrival", { name: transition.name(r), n });
    });
    if (arrived.length > each.length) each.push(t("page.more", { n: arrived.length - each.length }));
    facts.push(t("page.predict.arrived", { names: each.join(t("step.comma")) }));
  }
  if (step.aborted?.length) facts.push(t("page.change.aborted", { names: transition.names(step.aborted) }));
  return facts;
}

/** @param {string} value @param {string} text @returns {Choice} */
const choice = (value, text) => ({ value, text });

/** @param {string} key @returns {(n: number) => Choice} */
const counted = (key) => (n) => ({ value: n, text: t(key, { n }) });

/**
 * Return wrong numbers: those of the run in any order, then the right one's neighbours.
 * @param {Transition} transition
 * @param {number} right
 * @param {(number | undefined)[]} fromRun
 * @returns {number[]}
 */
function wrongNumbers(transition, right, fromRun) {
  const known = /** @type {number[]} */ (fromRun.filter((n) => n !== undefined && Number.isInteger(n) && n >= 0));
  return [...transition.shuffled(known), right + 1, right - 1, right + 2].filter((n) => n >= 0 && n !== right);
}

/**
 * Return sets of requests as a choice.
 * @param {Transition} transition
 * @param {Iterable<number>} rows
 */
function requestSet(transition, rows) {
  const ordered = [...new Set(rows)].sort((one, other) => one - other);
  if (!ordered.length) return choice(NONE, t("page.predict.none"));
  return choice(ordered.join(","), t(ordered.length > 1 ? "step.names" : "step.name", { names: transition.names(ordered) }));
}

/** @param {Transition} transition @returns {Draft | null} */
function askPhase({ step, last }) {
  const [prefill, decode] = phases(step);
  const found = prefill && decode ? "mixed" : prefill ? "prefill" : decode ? "decode" : "empty";
  if (found !== step.kind) return null;
  const kinds = ["prefill", "decode", "mixed", "empty"].map((kind) => choice(kind, t(`step.kind.${kind}`)));
  const right = /** @type {Choice} */ (kinds.find(({ value }) => value === found));
  return { event: found !== last.kind, right, wrong: kinds, because: [tokenSum(step)] };
}

/** @param {Transition} transition @returns {Draft | null} */
function askScheduled(transition) {
  const { last, step, rows, rowsBefore } = transition;
  const running = last.running ?? [];
  const waiting = step.waiting ?? [];
  const ended = new Set((last.finished ?? []).map(([r]) => r));
  const listed = [...rows.keys()];
  if (Math.max(listed.length, running.length) > MOST_SUBJECTS) return null;
  const right = requestSet(transition, listed);
  const sets = [
    [...rowsBefore.keys()],
    running,
    running.filter((r) => !ended.has(r)),
    [...listed, ...waiting.slice(0, 1)],
    [...listed, ...ended],
    listed.filter((r) => !step.new?.includes(r) && !step.resumed?.includes(r)),
    ...listed.map((r) => listed.filter((one) => one !== r)),
  ];
  const wrong = transition.shuffled(sets.slice(0, 6)).concat(sets.slice(6)).map((set) => requestSet(transition, set));
  if (new Set([right, ...wrong].map(({ value }) => value)).size < 3) return null;
  return {
    event: right.value !== requestSet(transition, rowsBefore.keys()).value,
    right,
    wrong,
    because: [
      ended.size ? t("page.predict.ended", { names: transition.names([...ended]) }) : "",
      t("page.predict.because.scheduled"),
      ...transition.reasons(),
    ],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askTokens(transition) {
  const { step, last, run } = transition;
  const [prefill, decode] = phases(step);
  if (!prefill && !decode) return null;
  const [prefillBefore, decodeBefore] = phases(last);
  const lengths = [...transition.rows.keys()].map((r) => run.requests[r].numPrompt ?? 0).filter((n) => n > 1);
  const others = [step.budget, prefillBefore + decodeBefore, step.running?.length, prefill, decode, ...lengths.slice(0, 4)];
  return {
    event: prefill > 0,
    right: counted("common.tokens")(prefill + decode),
    wrong: wrongNumbers(transition, prefill + decode, others).map(counted("common.tokens")),
    because: [tokenSum(step), ...transition.reasons()],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askShare(transition) {
  const { step, rows, held, run } = transition;
  const partly = [...held.values()].filter(([, code]) => code === "token_budget" || code === "chunk_threshold").map(([r]) => r);
  const prefilled = [...rows.values()].filter(([, , , decode]) => !decode).map(([r]) => r);
  const subjects = partly.length ? partly : prefilled;
  if (!subjects.length) return null;
  const r = transition.pick(subjects);
  const row = rows.get(r);
  const before = transition.rowsBefore.get(r);
  const computed = before && !step.preempted?.includes(r) ? before[1] + before[2] : 0;
  const length = run.requests[r].numPrompt === undefined ? undefined : run.requests[r].numPrompt + transition.outputs(r);
  const right = row?.[1] ?? 0;
  const lacks = length && length - computed;
  const others = [length, lacks, step.budget, transition.engine.blockSize, 0, 1, ...[...rows.values()].map(([, tokens]) => tokens).slice(0, 4)];
  return {
    event: true,
    values: { name: transition.name(r) },
    facts: [
      length === undefined ? "" : t("page.predict.length", { name: transition.name(r), length, computed }),
      step.budget ? t("page.predict.budget", { budget: step.budget }) : "",
    ].filter(Boolean),
    right: counted("common.tokens")(right),
    wrong: wrongNumbers(transition, right, others).map(counted("common.tokens")),
    because: [transition.why(r), row ? computedTokens(row, transition.engine.blockSize) : "", tokenSum(step)],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askJoins(transition) {
  const { step, last } = transition;
  const joined = [...(step.new ?? []), ...(step.resumed ?? [])];
  const waited = [...(last.waiting ?? []), ...transition.arrived];
  if (!waited.length || joined.length > MOST_SUBJECTS) return null;
  const others = waited.filter((r) => !joined.includes(r));
  const sets = [[], ...others.map((r) => [r]), ...joined.map((r) => [r]), [...joined, ...others.slice(0, 1)], waited.slice(0, MOST_SUBJECTS)];
  const right = requestSet(transition, joined);
  return {
    event: joined.length > 0,
    right,
    wrong: transition.shuffled(sets).map((set) => requestSet(transition, set)),
    because: [
      step.new?.length ? t("page.change.new", { names: transition.names(step.new) }) : "",
      step.resumed?.length ? t("page.change.resumed", { names: transition.names(step.resumed) }) : "",
      ...transition.reasons(),
    ],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askWait(transition) {
  const { step, last, held, run } = transition;
  const subjects = (step.waiting ?? []).filter((r) => hasText(`held.${held.get(r)?.[1]}`));
  if (!subjects.length) return null;
  const r = transition.pick(subjects);
  const [, code, details] = /** @type {[number, string, string]} */ (held.get(r));
  const ahead = code === "behind" ? [...held.keys()].filter((other) => other !== r && ` ${details} `.includes(` request=${run.requests[other].id} `)) : [];
  const falseOnes = transition.shuffled(falseReasons(transition, r, code, details));
  return {
    event: !(last.held ?? []).some(([other, before]) => other === r && before === code),
    values: { name: transition.name(r) },
    right: choice("right", transition.why(r)),
    wrong: falseOnes.map(([other, facts]) => choice(`${other} ${facts}`, heldReason(other, facts, run.requests[r].id))),
    because: ahead.length ? transition.reasons(ahead) : [t("page.predict.because.order")],
  };
}

/**
 * Return reasons, as code and details, for which a request could wait but does not: the step's numbers refute each.
 * @param {Transition} transition
 * @param {number} r
 * @param {string} code the true reason
 * @param {string} details
 * @returns {[code: string, details: string][]}
 */
function falseReasons({ step, engine, rows, held, replay, run, index }, r, code, details) {
  /** @type {[string, string][]} */
  const found = [];
  const wanted = run.requests[r].numPrompt ?? 0;
  const left = (step.budget ?? 0) - [...rows.values()].reduce((sum, [, tokens]) => sum + tokens, 0);
  const needed = Math.ceil(wanted / (engine.blockSize || 1));
  const served = [...rows.keys()].filter((other) => !held.has(other) && /^\S+$/.test(run.requests[other].id)).slice(0, 2);
  const running = step.running?.length ?? 0;
  if (engine.maxNumSeqs && running < engine.maxNumSeqs) found.push(["max_num_seqs", `running=${engine.maxNumSeqs} limit=${engine.maxNumSeqs}`]);
  if (wanted && left > 0) found.push(["token_budget", `given=0 wanted=${wanted} left=0 budget=${step.budget}`]);
  if (wanted && step.total && step.free >= needed && !step.preempted?.length) found.push(["no_free_blocks", `needed=${needed} free=0`]);
  for (const other of served) found.push(["behind", `request=${run.requests[other].id} cause=${code === "max_num_seqs" ? "no_free_blocks" : "max_num_seqs"}`]);
  const wasPreempted = replay.engine.steps.slice(0, index + 1).some(({ preempted }) => preempted?.includes(r));
  const by = served.find((other) => !` ${details} `.includes(` by=${run.requests[other].id} `));
  if (by !== undefined && (code === "preempted" || !wasPreempted)) found.push(["preempted", `by=${run.requests[by].id} needed=1 free=0`]);
  return found;
}

/** @param {Transition} transition @returns {Draft | null} */
function askPreempted(transition) {
  const { step, last } = transition;
  const preempted = step.preempted ?? [];
  const running = (last.running ?? []).filter((r) => !(last.finished ?? []).some(([ended]) => ended === r));
  const short = last.free < 2;
  if (preempted.length > 1 || !running.length || (!preempted.length && !short)) return null;
  const right = requestSet(transition, preempted);
  return {
    event: preempted.length > 0,
    right,
    wrong: [requestSet(transition, []), ...transition.shuffled(running).map((r) => requestSet(transition, [r]))],
    because: preempted.length
      ? [...preempted.map((r) => transition.why(r)), t("page.predict.because.preempted")]
      : [t("page.predict.because.enough"), freeSum(transition)],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askHit(transition) {
  const { step, rows, engine, run } = transition;
  const joining = [...(step.new ?? []), ...(step.resumed ?? [])].filter((r) => rows.has(r));
  if (!joining.length || !engine.prefixCaching || !transition.hasOneTable) return null;
  const withHit = joining.filter((r) => rows.get(r)?.[4]);
  const r = transition.pick(withHit.length ? withHit : joining);
  const row = /** @type {Scheduled} */ (rows.get(r));
  const hit = row[4];
  const size = engine.blockSize;
  const length = run.requests[r].numPrompt;
  const others = [0, length, length && Math.floor(length / size) * size, hit + size, hit - size, size];
  return {
    event: hit > 0,
    values: { name: transition.name(r) },
    right: counted("common.tokens")(hit),
    wrong: wrongNumbers(transition, hit, others).map(counted("common.tokens")),
    facts: length === undefined ? [] : [t("page.predict.length", { name: transition.name(r), length: length + transition.outputs(r), computed: 0 })],
    because: [computedTokens(row, size), t("page.predict.because.hit", { size })],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askBlockCount(transition) {
  const { rows, engine } = transition;
  if (!transition.hasOneTable) return null;
  const subjects = [...rows.values()].filter(([r, tokens]) => tokens > 1 && tableFits(transition, r));
  if (!subjects.length) return null;
  const row = transition.pick(subjects);
  const [r, tokens, computed] = row;
  const { hits, fresh } = transition.blocks(r);
  const whole = Math.ceil((computed + tokens) / engine.blockSize);
  const others = [whole, Math.floor(tokens / engine.blockSize), hits.length, fresh.length + hits.length, tokens];
  return {
    event: true,
    values: { name: transition.name(r) },
    facts: [t("page.predict.computes", { name: transition.name(r), from: computed, to: computed + tokens - 1, size: engine.blockSize })],
    right: counted("page.predict.blocks")(fresh.length),
    wrong: wrongNumbers(transition, fresh.length, others).map(counted("page.predict.blocks")),
    because: [tableSum(transition, r), fresh.length ? t("page.predict.got", { blocks: formatRanges(fresh) }) : ""],
  };
}

/**
 * Return whether a request has just the blocks that its computed tokens need.
 * @param {Transition} transition
 * @param {number} r
 */
function tableFits({ after, rows, engine }, r) {
  const row = rows.get(r);
  return row !== undefined && after.tables.get(r)?.length === Math.ceil((row[1] + row[2]) / engine.blockSize);
}

/**
 * Return how far the blocks reach that a request had, and how far it computes.
 * @param {Transition} transition
 * @param {number} r
 */
function tableSum(transition, r) {
  const row = /** @type {Scheduled} */ (transition.rows.get(r));
  const had = (transition.after.tables.get(r)?.length ?? 0) - transition.blocks(r).fresh.length;
  return t("page.predict.because.table", { had, room: had * transition.engine.blockSize, needs: row[1] + row[2] });
}

/** @param {Transition} transition @returns {Draft | null} */
function askBlock(transition) {
  const { rows, engine, before, after, step, run } = transition;
  if (!transition.hasOneTable) return null;
  const subjects = [...rows.keys()].filter((r) => tableFits(transition, r) && transition.blocks(r).fresh.length < 2);
  const growing = subjects.filter((r) => transition.blocks(r).fresh.length);
  if (!subjects.length) return null;
  const r = transition.pick(growing.length ? growing : subjects);
  const [block] = transition.blocks(r).fresh;
  const used = owners(before);
  const top = Math.max(0, ...used.keys(), ...transition.fresh);
  const free = Array.from({ length: Math.min(step.total ?? 0, top + 2) }, (_, i) => i + 1).filter((one) => !used.has(one));
  const ids = [after.tables.get(r)?.[0], before.tables.get(r)?.at(-1), ...transition.shuffled(free).slice(0, 3), ...transition.shuffled([...used.keys()]).slice(0, 2)];
  const none = choice(NONE, t("page.predict.noblock"));
  const evicted = step.evicted?.includes(block) ? before.cached.get(block) : undefined;
  return {
    event: block !== undefined,
    values: { name: transition.name(r) },
    right: block === undefined ? none : counted("page.predict.block")(block),
    wrong: [none, ...wrongNumbers(transition, block ?? -1, ids).filter((one) => one > 0).map(counted("page.predict.block"))],
    because: [
      tableSum(transition, r),
      block === undefined ? "" : t("page.predict.because.block", { block }),
      evicted ? t("page.predict.because.evicted", { block, name: visible(run.requests[evicted[0]].id) }) : "",
    ],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askFree(transition) {
  const { step, last } = transition;
  if (!step.total) return null;
  const fresh = transition.fresh.length;
  const others = [last.free, last.free - fresh, step.free - fresh, step.free + fresh, step.total - step.free, step.total];
  return {
    event: step.free !== last.free,
    right: counted("page.predict.blocks")(step.free),
    wrong: wrongNumbers(transition, step.free, others).map(counted("page.predict.blocks")),
    because: [freeSum(transition)],
  };
}

/**
 * Return how the number of free blocks became what it is.
 * @param {Transition} transition
 */
function freeSum({ before, after, last, step }) {
  const [had, has] = [owners(before), owners(after)];
  const taken = [...has.keys()].filter((block) => !had.has(block)).length;
  const given = [...had.keys()].filter((block) => !has.has(block)).length;
  return last.free - taken + given === step.free ? t("page.predict.because.free", { before: last.free, taken, given, after: step.free }) : "";
}

/** @param {Transition} transition @returns {Draft | null} */
function askEvicted(transition) {
  const { step, engine, before } = transition;
  const fresh = transition.fresh.length;
  if (!fresh || !engine.prefixCaching || !before.cached.size) return null;
  const evicted = step.evicted ?? [];
  const others = [0, fresh, evicted.length + 1, step.preempted?.length];
  return {
    event: evicted.length > 0,
    right: counted("page.predict.blocks")(evicted.length),
    wrong: wrongNumbers(transition, evicted.length, others).filter((n) => n <= fresh + 1).map(counted("page.predict.blocks")),
    because: [
      evicted.length ? t("page.predict.because.evictions", { blocks: formatRanges(evicted) }) : t("page.predict.because.noeviction", { n: fresh }),
    ],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askSlot(transition) {
  const { rows, after, engine } = transition;
  const size = engine.blockSize;
  const subjects = [...rows.values()].filter(([r, tokens]) => tokens === 1 && slots(after, engine, r).length === 1);
  if (!subjects.length || size < 2) return null;
  const [r, , position] = transition.pick(subjects);
  const table = /** @type {number[]} */ (after.tables.get(r));
  const [slot] = slots(after, engine, r);
  const [block, offset] = [Math.floor(slot / size), slot % size];
  /** @param {number} n */
  const inTable = (n) => choice("", t("page.slot", { slot: n, block: Math.floor(n / size), offset: n % size }));
  const others = [
    block * size + ((offset + 1) % size),
    block * size + ((offset + size - 1) % size),
    ...table.map((other) => other * size + offset),
    (block + 1) * size + offset,
    (block + 1) * size,
    position,
  ];
  return {
    values: { name: transition.name(r) },
    facts: [t("page.predict.table", { name: transition.name(r), table: formatRanges(table), size })],
    right: { ...inTable(slot), value: slot },
    wrong: wrongNumbers(transition, slot, others).filter((n) => n >= size).map((n) => ({ ...inTable(n), value: n })),
    because: [t("page.predict.because.slot", { position, index: Math.floor(position / size), offset, block, size, slot })],
  };
}

/** @param {Transition} transition @returns {Draft | null} */
function askToken(transition) {
  const { step, run, index, replay } = transition;
  const subjects = (step.sampled ?? []).filter((row) => candidatesOf(row).some(([id]) => id === row[1]) && row[1] in run.tokens);
  if (!subjects.length) return null;
  const row = transition.pick(subjects);
  const [r, chosen] = row;
  const candidates = candidatesOf(row);
  const likeliest = Math.max(...candidates.map(([, probability]) => probability));
  const probability = /** @type {[number, number]} */ (candidates.find(([id]) => id === chosen))[1];
  const hidden = isGreedy(run.requests[r]) && probability === likeliest;
  /** @param {[number, number]} candidate */
  const asChoice = ([id, p]) => choice(`token ${id}`, hidden ? tokenText(run.tokens[id]) : `${tokenText(run.tokens[id])} · ${percent(p)}`);
  const soFar = replay.outputsUpTo(r, index - 1).slice(-MOST_SUBJECTS * 2).map((output) => tokenText(run.tokens[output.row[1]]));
  const start = Math.max(0, (run.requests[r].numPrompt ?? 0) - 12);
  const prompt = (run.requests[r].promptTokens ?? []).slice(start).map((id) => tokenText(run.tokens[id]));
  const text = (soFar.length ? soFar : prompt).join("");
  const names = new Set([tokenText(run.tokens[chosen])]);
  const wrong = candidates.filter(([id]) => {
    const name = tokenText(run.tokens[id]);
    return !names.has(name) && names.add(name);
  });
  return {
    values: { name: transition.name(r) },
    facts: [text ? t("page.predict.text", { text }) : "", hidden ? "" : t("page.predict.drawn")].filter(Boolean),
    right: asChoice([chosen, probability]),
    wrong: wrong.map(asChoice),
    because: [
      hidden ? t("page.predict.because.greedy", { p: percent(probability) }) : t("page.predict.because.drawn", { p: percent(probability), best: percent(likeliest) }),
    ],
  };
}

/**
 * Return what a sampled token was chosen from: candidates after the processors if recorded, else the model's.
 * @param {any[]} row
 * @returns {[id: number, probability: number][]}
 */
function candidatesOf([, id, , listed, , , , drawn]) {
  return id === null ? [] : candidatePairs(drawn?.length ? drawn : (listed ?? []));
}

/** @param {Transition} transition @returns {Draft | null} */
function askFinished(transition) {
  const { step, rows, run } = transition;
  const ended = step.finished ?? [];
  if (ended.length > 1 || !rows.size || step.error || !step.sampled?.length) return null;
  /** @param {number} r @param {string} why */
  const ending = (r, why) => choice(`${r} ${why}`, t("page.predict.reason", { name: transition.name(r), why: finishReason(why) }));
  const none = choice(NONE, t("page.predict.none"));
  const right = ended.length ? ending(...ended[0]) : none;
  const others = transition.shuffled([...rows.keys()].flatMap((r) => [ending(r, "stop"), ending(r, "length")]));
  const progress = [...rows.keys()].filter((r) => transition.rowsBefore.has(r)).slice(0, MOST_SUBJECTS).flatMap((r) => {
    const limit = (run.requests[r].params ?? []).find(([name]) => name === "max_tokens")?.[1];
    return limit && /^\d+$/.test(limit) ? [t("page.predict.progress", { name: transition.name(r), n: transition.outputs(r), limit })] : [];
  });
  const token = ended.length ? step.sampled.find(([r]) => r === ended[0][0])?.[1] : null;
  return {
    event: ended.length > 0,
    facts: progress.length ? [t("page.predict.outputs", { each: progress.join(t("step.comma")) })] : [],
    right,
    wrong: [none, ...others],
    because: [
      typeof token === "number" && token in run.tokens ? t("page.predict.because.token", { name: transition.name(ended[0][0]), token: tokenText(run.tokens[token]) }) : "",
      ended.length ? "" : t("page.predict.because.goon"),
    ],
  };
}

/** @type {WeakMap<import("../run/data.js").Request[], Map<string, number>>} */
const shortNames = new WeakMap();

/**
 * Return a request's short name, or its id if another request's short name is the same.
 * @param {Run} run
 * @param {number} r
 */
function requestName(run, r) {
  let counts = shortNames.get(run.requests);
  if (!counts) {
    counts = new Map();
    for (const request of run.requests) counts.set(shortName(request), (counts.get(shortName(request)) ?? 0) + 1);
    shortNames.set(run.requests, counts);
  }
  const short = shortName(run.requests[r]);
  return counts.get(short) === 1 ? short : visible(run.requests[r].id);
}

/**
 * Return a generator of numbers that look random and are always the same: `random(n)` is below `n`. (mulberry32)
 * @param {number} seed
 */
function randomFrom(seed) {
  let state = seed + 0x9e3779b9;
  return (/** @type {number} */ n) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * n);
  };
}

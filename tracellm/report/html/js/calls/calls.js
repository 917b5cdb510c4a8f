/**
 * All calls of the run, in columns, as `tracellm.report.html.calls_data` wrote them; decoded on first use.
 *
 * A call is a span; its number is its place in the recording, ordered by start.
 *
 * @typedef {object} Thread
 * @property {string} process
 * @property {number} pid
 * @property {string} thread empty for the main thread
 * @property {number | null} engine index of the engine whose steps ran in this process, if there is exactly one
 */

import { unpack } from "../base/unpack.js";
import { select, selected } from "../run/selection.js";

const FAILED = 1;
const OPEN = 2;
const LEFT_OUT = 1;

/** @typedef {import("../run/selection.js").Selectable} Selectable */
/** @typedef {import("../run/selection.js").Selection} Selection */

/** @type {Promise<Calls> | undefined} */
let reading;

/** Return whether the page has calls. */
export function hasCalls() {
  return document.getElementById("calls-data") !== null;
}

/**
 * Return all calls of the run.
 * @returns {Promise<Calls>}
 */
export function readCalls() {
  reading ??= unpack(/** @type {HTMLElement} */ (document.getElementById("calls-data")))
    .then((content) => content.arrayBuffer())
    .then((bytes) => new Calls(new Uint8Array(bytes)));
  return reading;
}

/** The last change of each run's selection that named a step, a request or a call. */
/** @type {WeakMap<Selectable, Partial<Selection>>} */
const lastChoice = new WeakMap();

/**
 * After the selection of a call, select its step and its request too, unless the change names a step, or something else
 * was chosen while the calls were read.
 * @param {Selectable} run
 * @param {Partial<Selection>} change
 */
export async function followCall(run, change) {
  if (["engine", "step", "request", "call"].some((name) => name in change)) lastChoice.set(run, change);
  const { call, step } = change;
  if (typeof call !== "number" || step !== undefined || !hasCalls()) return;
  const calls = await readCalls();
  if (call >= calls.count || lastChoice.get(run) !== change) return;
  const request = calls.request(call);
  const found = { ...calls.step(call), ...(request !== null && { request }) };
  const now = selected(run);
  if (Object.entries(found).some(([name, value]) => now[/** @type {keyof Selection} */ (name)] !== value)) select(run, found);
}

/**
 * Return the selected call; null if none is selected, or one that the run does not have.
 * @param {Selectable} run
 * @param {Calls} calls
 */
export function selectedCall(run, calls) {
  const { call } = selected(run);
  return call !== null && call < calls.count ? call : null;
}

/** The calls: columns with an element per call, and functions of a call's number. Times are microseconds. */
export class Calls {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    const headLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + headLength)));
    const columns = new Columns(bytes, 4 + headLength, head.count);
    this.count = /** @type {number} */ (head.count);
    this.names = /** @type {string[]} */ (head.names);
    this.threads = /** @type {Thread[]} */ (head.threads);
    /** Number of calls whose attributes were left out. */
    this.leftOut = /** @type {number} */ (head.leftOut);
    /** Start of each call since the first one. */
    this.start = columns.times();
    for (let i = 1; i < this.count; i += 1) this.start[i] += this.start[i - 1];
    this.us = columns.times();
    /** Caller of each call, or -1. */
    this.parent = columns.next(Int32Array);
    for (let i = 0; i < this.count; i += 1) {
      const code = this.parent[i];
      this.parent[i] = code === 0 ? -1 : i - (code & 1 ? -(code + 1) / 2 : code / 2);
    }
    this.kinds = columns.next(Uint32Array);
    /** Place of each call's name in `names`. */
    this.name = this.kinds.map(valueOf(head.kinds, 0));
    /** Place of each call's thread in `threads`. */
    this.thread = this.kinds.map(valueOf(head.kinds, 2));
    /** Time of each call, without its callees, that the recording took. */
    this.recording = columns.times();
    for (const times of [this.start, this.us, this.recording]) for (let i = 0; i < this.count; i += 1) times[i] /= 10;
    /** Whether the time that the recording took is known. */
    this.hasRecording = this.recording.some((time) => time > 0);
    this.sets = columns.next(Uint32Array);
    this.head = head;
    /** @type {Map<number, [engine: number, step: number]>} */
    this.steps = new Map();
    head.steps.forEach((/** @type {number[]} */ own, /** @type {number} */ engine) => {
      own.forEach((call, step) => this.steps.set(call, [engine, step]));
    });
    /** @type {Map<number, number>} */
    this.requests = new Map(head.requests.map((/** @type {number} */ call, /** @type {number} */ r) => [call, r]));
    const { firstChild, below } = link(this.parent);
    this.firstChild = firstChild;
    this.below = below;
    /** @type {Float64Array | undefined} */
    this.owns = undefined;
  }

  /**
   * Return the time at which a call ended, since the start of the first one.
   * @param {number} i
   */
  end(i) {
    return this.start[i] + this.us[i];
  }

  /**
   * Return the calls that a call made, ordered by start; the requests that it submitted are among them.
   * @param {number} i the call, or -1 for those without a caller
   */
  children(i) {
    const at = i < 0 ? this.count : i;
    return this.below.subarray(this.firstChild[at], this.firstChild[at + 1]);
  }

  /**
   * Return the time of a call that neither its callees in the same thread nor the recording took.
   * @param {number} i
   */
  own(i) {
    this.owns ??= ownTimes(this);
    return Math.max(0, this.owns[i]);
  }

  /**
   * Return the depth of a call in the engine: request, step, layer or kernel.
   * @param {number} i
   * @returns {string}
   */
  level(i) {
    return this.head.levels[this.head.kinds[this.kinds[i]][1]];
  }

  /**
   * Return whether an exception left a call.
   * @param {number} i
   */
  failed(i) {
    return (this.head.kinds[this.kinds[i]][3] & FAILED) > 0;
  }

  /**
   * Return whether the recording ended before a call did.
   * @param {number} i
   */
  open(i) {
    return (this.head.kinds[this.kinds[i]][3] & OPEN) > 0;
  }

  /**
   * Return whether a span is no call, but a request from its submission to its end.
   * @param {number} i
   */
  isRequest(i) {
    return this.requests.has(i);
  }

  /**
   * Return the request that a span is, or that a call submitted; null if it is about none or several.
   * @param {number} i
   */
  request(i) {
    let found = this.requests.get(i) ?? null;
    if (found !== null) return found;
    for (const child of this.children(i)) {
      const submitted = this.requests.get(child);
      if (submitted === undefined) continue;
      if (found !== null) return null;
      found = submitted;
    }
    return found;
  }

  /**
   * Return the step that a call is, or is part of, as indexes of engine and step.
   * @param {number} i
   */
  step(i) {
    for (let at = i; at >= 0; at = this.parent[at]) {
      const found = this.steps.get(at);
      if (found) return { engine: found[0], step: found[1] };
    }
    return null;
  }

  /**
   * Return the call that runs a step; null in a variant.
   * @param {number} engine
   * @param {number} step
   * @returns {number | null}
   */
  stepCall(engine, step) {
    return this.stepCalls(engine)[step] ?? null;
  }

  /**
   * Return the calls that run an engine's steps.
   * @param {number} engine
   * @returns {number[]}
   */
  stepCalls(engine) {
    return this.head.steps[engine] ?? [];
  }

  /**
   * Return the recorded attributes of a call, without those that the page's steps and requests hold.
   * @param {number} i
   * @returns {Record<string, any>}
   */
  attributes(i) {
    const { "": _, ...found } = this.allAttributes(i);
    return found;
  }

  /**
   * Return whether the attributes of a call were left out.
   * @param {number} i
   */
  attributesLeftOut(i) {
    return this.sets[i] === LEFT_OUT;
  }

  /**
   * Return the exception that left a call; empty if there was none or it was left out.
   * @param {number} i
   * @returns {string}
   */
  error(i) {
    return this.allAttributes(i)[""] ?? "";
  }

  /** @private @param {number} i @returns {Record<string, any>} */
  allAttributes(i) {
    if (this.sets[i] <= LEFT_OUT) return {};
    return Object.fromEntries(this.head.sets[this.sets[i] - 2].map((/** @type {number} */ pair) => this.head.pairs[pair]));
  }
}

/**
 * Return a function that gives each kind one of its values.
 * @param {number[][]} kinds
 * @param {number} place
 */
function valueOf(kinds, place) {
  const values = Uint32Array.from(kinds, (kind) => kind[place]);
  return (/** @type {number} */ kind) => values[kind];
}

/**
 * Return the place of each call's first child in a list of all children, at its end that of the roots, and the list.
 * @param {Int32Array} parent
 */
function link(parent) {
  const count = parent.length;
  const firstChild = new Uint32Array(count + 2);
  const above = (/** @type {number} */ i) => (parent[i] < 0 ? count : parent[i]);
  for (let i = 0; i < count; i += 1) firstChild[above(i) + 1] += 1;
  for (let i = 0; i <= count; i += 1) firstChild[i + 1] += firstChild[i];
  const next = firstChild.slice();
  const below = new Uint32Array(count);
  for (let i = 0; i < count; i += 1) {
    below[next[above(i)]] = i;
    next[above(i)] += 1;
  }
  return { firstChild, below };
}

/**
 * Return the own time of each call; below zero where a recording is damaged. Callees of coroutines may overlap.
 * @param {Calls} calls
 */
function ownTimes(calls) {
  const { start, us, parent, thread } = calls;
  const own = us.map((time, i) => time - calls.recording[i]);
  const reached = start.slice();
  for (let i = 0; i < calls.count; i += 1) {
    const caller = parent[i];
    if (caller < 0 || thread[caller] !== thread[i] || calls.isRequest(i)) continue;
    const from = Math.max(start[i], reached[caller]);
    const to = Math.min(calls.end(i), calls.end(caller));
    if (to > from) {
      own[caller] -= to - from;
      reached[caller] = to;
    }
  }
  return own;
}

/** Columns of numbers in LEB128, one after the other. */
class Columns {
  /**
   * @param {Uint8Array} bytes
   * @param {number} at
   * @param {number} count
   */
  constructor(bytes, at, count) {
    this.bytes = bytes;
    this.at = at;
    this.count = count;
  }

  /**
   * Return the next column.
   * @template {Int32Array | Uint32Array | Float64Array} T
   * @param {new (length: number) => T} type
   * @returns {T}
   */
  next(type) {
    const { bytes, count } = this;
    const column = new type(count);
    let { at } = this;
    for (let i = 0; i < count; i += 1) {
      let byte = bytes[at];
      let value = byte & 127;
      for (let unit = 128; byte & 128; unit *= 128) {
        at += 1;
        byte = bytes[at];
        value += (byte & 127) * unit;
      }
      at += 1;
      column[i] = value;
    }
    this.at = at;
    return column;
  }

  times() {
    return this.next(Float64Array);
  }
}

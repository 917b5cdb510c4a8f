/** The flat profile: one row for each function of a part of the run, with the times of all its calls together. */

import { timesOnce } from "./overlap.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {"name" | "calls" | "total" | "own" | "recording"} Column */

/**
 * @typedef {object} ProfileRow times are microseconds of all calls together
 * @property {string} name
 * @property {number} calls
 * @property {number} total of the calls that are not inside a call of the same function
 * @property {number} own
 * @property {number} recording
 * @property {number} failed number of calls that an exception left
 * @property {number} longest the longest call
 */

/**
 * Return the functions of the calls below and at some roots, in the order of their first calls.
 * @param {Calls} calls
 * @param {ArrayLike<number>} roots
 * @returns {ProfileRow[]}
 */
export function profileOf(calls, roots) {
  const { start, us, name, thread, recording } = calls;
  /** @type {ProfileRow[]} */
  const rows = [];
  /** @type {(ProfileRow | undefined)[]} by the number of the name */
  const found = Array(calls.names.length);
  /** The latest end of a function's calls so far, by thread. */
  const reached = new Float64Array(calls.names.length * calls.threads.length);
  /** @type {Map<number, {row: ProfileRow, all: number[], outermost: number[]}>} functions whose calls may overlap */
  const overlapping = new Map();
  walk(calls, roots, (i, depth) => {
    const called = name[i];
    let row = found[called];
    if (!row) {
      row = { name: calls.names[called], calls: 0, total: 0, own: 0, recording: 0, failed: 0, longest: i };
      found[called] = row;
      rows.push(row);
    }
    row.calls += 1;
    if (depth === 0) {
      row.total += us[i];
      const place = called * calls.threads.length + thread[i];
      if (start[i] < reached[place]) overlapping.set(called, { row, all: [], outermost: [] });
      reached[place] = Math.max(reached[place], start[i] + us[i]);
    }
    row.own += calls.own(i);
    row.recording += recording[i];
    if (calls.failed(i)) row.failed += 1;
    if (us[i] > us[row.longest]) row.longest = i;
  });
  if (overlapping.size) {
    walk(calls, roots, (i, depth) => {
      const found = overlapping.get(name[i]);
      found?.all.push(i);
      if (depth === 0) found?.outermost.push(i);
    });
  }
  for (const { row, all, outermost } of overlapping.values()) Object.assign(row, timesOnce(calls, all, outermost));
  return rows;
}

/**
 * Visit the calls at and below some roots, each with the number of running calls of the same function.
 * @param {Calls} calls
 * @param {ArrayLike<number>} roots
 * @param {(i: number, depth: number) => void} visit
 */
function walk(calls, roots, visit) {
  const { name, firstChild, below } = calls;
  const running = new Uint32Array(calls.names.length);
  /** @type {number[]} the running calls, outermost first */
  const callers = [];
  /** @type {number[]} the place of each running call's next callee */
  const next = [];
  const begin = (/** @type {number} */ i) => {
    if (calls.isRequest(i)) return;
    visit(i, running[name[i]]);
    running[name[i]] += 1;
    callers.push(i);
    next.push(firstChild[i]);
  };
  for (let at = 0; at < roots.length; at += 1) {
    begin(roots[at]);
    while (callers.length) {
      const last = callers.length - 1;
      const i = callers[last];
      if (next[last] < firstChild[i + 1]) {
        next[last] += 1;
        begin(below[next[last] - 1]);
      } else {
        running[name[i]] -= 1;
        callers.pop();
        next.pop();
      }
    }
  }
}

/**
 * Return rows in the order of a column: names from A, numbers from the largest; or the other way round.
 * @param {ProfileRow[]} rows
 * @param {Column} column
 * @param {boolean} reversed
 */
export function sortedProfile(rows, column, reversed) {
  const sign = reversed ? -1 : 1;
  return [...rows].sort((one, other) => {
    if (column === "name") return sign * one.name.localeCompare(other.name, "en");
    return sign * (other[column] - one[column]);
  });
}

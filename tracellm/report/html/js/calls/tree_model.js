/** The call tree's rows: calls of one name below one row are one row, and the rows below it are made when needed. */

import { timesOnce } from "./overlap.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {"first" | "total" | "own"} Order */

/**
 * @param {TreeRow | null} row
 * @returns {number}
 */
function depthOf(row) {
  return row ? row.depth : -1;
}

/** A row: calls of one name, made by the calls of the row above. Times are microseconds of all together. */
export class TreeRow {
  /**
   * @param {Calls} calls
   * @param {TreeRow | null} above null for the row above the first ones, which is not shown
   * @param {number[]} numbers the row's calls, ordered by start within each caller
   */
  constructor(calls, above, numbers) {
    this.calls = calls;
    this.above = above;
    this.numbers = numbers;
    this.depth = depthOf(above) + 1;
    this.open = false;
    /** Index of the shown call among the row's. */
    this.at = 0;
    const { total, own } = timesOnce(calls, numbers);
    this.total = total;
    this.own = own;
    this.recording = 0;
    this.failed = 0;
    for (const i of numbers) {
      this.recording += calls.recording[i];
      if (calls.failed(i)) this.failed += 1;
    }
    /** @type {TreeRow[] | null} */
    this.made = null;
  }

  /** The call that is shown. */
  get call() {
    return this.numbers[this.at];
  }

  /** The name of the row's calls. */
  get name() {
    return this.calls.names[this.calls.name[this.call]];
  }

  /** True if the row's calls made calls. */
  get hasRows() {
    if (this.made) return this.made.length > 0;
    return this.numbers.some((i) => this.calls.children(i).some((child) => !this.calls.isRequest(child)));
  }

  /** The rows below, ordered by their first calls. */
  get rows() {
    this.made ??= merge(this, this.above ? this.numbers.map((i) => this.calls.children(i)) : [this.numbers]);
    return this.made;
  }
}

/**
 * Return the rows of calls. Calls in another thread than their caller's are apart from those in its own; the threads of
 * a pool, whose names differ in a number, do the same work.
 * @param {TreeRow} above
 * @param {ArrayLike<number>[]} lists
 */
function merge(above, lists) {
  const { calls } = above;
  /** @type {Map<string, number[]>} */
  const found = new Map();
  for (const list of lists) {
    for (let at = 0; at < list.length; at += 1) {
      const i = list[at];
      if (calls.isRequest(i)) continue;
      const key = rowKey(calls, i);
      const own = found.get(key);
      if (own) own.push(i);
      else found.set(key, [i]);
    }
  }
  const rows = [...found.values()].map((numbers) => new TreeRow(calls, above, numbers));
  return rows.sort((one, other) => one.numbers[0] - other.numbers[0]);
}

/**
 * @param {Calls} calls
 * @param {number} i
 */
function rowKey(calls, i) {
  if (!moved(calls, i)) return `${calls.name[i]}`;
  const { process, pid, thread } = calls.threads[calls.thread[i]];
  return `${calls.name[i]} ${process} ${pid} ${thread.replace(/[\d_-]+$/, "")}`;
}

/**
 * Return whether a call runs in another process or thread than its caller, or has no caller.
 * @param {Calls} calls
 * @param {number} i
 */
function moved(calls, i) {
  const caller = calls.parent[i];
  return caller < 0 || calls.thread[caller] !== calls.thread[i];
}

/**
 * Return the row above the first ones of a tree.
 * @param {Calls} calls
 * @param {ArrayLike<number>} roots
 */
export function treeOf(calls, roots) {
  return new TreeRow(calls, null, Array.from(roots).filter((i) => !calls.isRequest(i)));
}

/**
 * Return the rows below a row in an order.
 * @param {TreeRow} row
 * @param {Order} order
 */
export function ordered(row, order) {
  return order === "first" ? [...row.rows] : [...row.rows].sort((one, other) => other[order] - one[order]);
}

/**
 * Return the rows that are shown: those below open ones.
 * @param {TreeRow} top
 * @param {Order} order
 */
export function shownRows(top, order) {
  /** @type {TreeRow[]} */
  const shown = [];
  const waiting = ordered(top, order).reverse();
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    shown.push(row);
    if (row.open) waiting.push(...ordered(row, order).reverse());
  }
  return shown;
}

/**
 * Return all rows whose name has a text in it, in their order; upper and lower case are the same.
 * @param {TreeRow} top
 * @param {string} text
 * @param {Order} order
 */
export function findRows(top, text, order) {
  const wanted = text.toLowerCase();
  const named = new Set(top.calls.names.filter((name) => name.toLowerCase().includes(wanted)));
  /** @type {TreeRow[]} */
  const found = [];
  if (!wanted || !named.size) return found;
  const waiting = ordered(top, order).reverse();
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    if (named.has(row.name)) found.push(row);
    waiting.push(...ordered(row, order).reverse());
  }
  return found;
}

/**
 * Open all rows above a row.
 * @param {TreeRow} row
 */
export function openTo(row) {
  for (let above = row.above; above; above = above.above) above.open = true;
}

/**
 * Return the row with a call, after making that call the one it shows; null if the tree does not have the call.
 * @param {TreeRow} top
 * @param {number} call
 */
export function rowOf(top, call) {
  const { calls } = top;
  /** @type {number[]} */
  const path = [];
  const roots = new Set(top.numbers);
  for (let i = call; i >= 0; i = calls.parent[i]) {
    path.push(i);
    if (!roots.has(i)) continue;
    /** @type {TreeRow | null} */
    let row = top;
    while (row && path.length) {
      const next = /** @type {number} */ (path.pop());
      const key = rowKey(calls, next);
      row = row.rows.find((one) => rowKey(calls, one.numbers[0]) === key) ?? null;
      if (row) row.at = Math.max(0, row.numbers.indexOf(next));
    }
    return row;
  }
  return null;
}

/**
 * Open a row and all rows below it, the nearest first, and return whether all could be opened.
 * @param {TreeRow} row
 * @param {number} most number of rows that this may show
 */
export function openBelow(row, most) {
  let shown = 0;
  const waiting = [row];
  for (let at = 0; at < waiting.length; at += 1) {
    shown += waiting[at].rows.length;
    if (shown > most) return false;
    waiting[at].open = waiting[at].rows.length > 0;
    waiting.push(...waiting[at].rows);
  }
  return true;
}

/**
 * Close all rows of a tree.
 * @param {TreeRow} top
 */
export function closeAll(top) {
  const waiting = [top];
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    row.open = false;
    waiting.push(...(row.made ?? []));
  }
}

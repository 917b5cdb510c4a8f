/**
 * Times of calls that overlap: coroutines of one thread wait side by side, and their times summed may exceed the run by
 * far. A moment counts once for a thread, as in `tracellm.report.tree.overlap`.
 */

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {[start: number, end: number]} Interval */

/**
 * Return the time of calls together, and that without callees in the same thread, in microseconds.
 * @param {Calls} calls
 * @param {number[]} numbers
 * @param {number[]} [outermost] those not inside another of them; all, unless a function calls itself
 */
export function timesOnce(calls, numbers, outermost = numbers) {
  let [total, own] = [0, 0];
  for (const i of outermost) total += calls.us[i];
  for (const i of numbers) own += calls.own(i);
  if (!overlap(calls, outermost)) return { total, own };
  const once = sum(byThread(calls, outermost).map((list) => length(list.map((i) => [calls.start[i], calls.end(i)]))));
  const alone = sum(byThread(calls, numbers).map((list) => length(list.flatMap((i) => withoutCallees(calls, i)))));
  return { total: once, own: Math.min(own, alone) };
}

/**
 * Return whether two of the calls overlap in one thread.
 * @param {Calls} calls
 * @param {number[]} numbers
 */
function overlap(calls, numbers) {
  const reached = new Map();
  let ordered = true;
  for (const i of numbers) {
    const thread = calls.thread[i];
    if (calls.start[i] < (reached.get(thread) ?? 0)) ordered = false;
    reached.set(thread, Math.max(reached.get(thread) ?? 0, calls.end(i)));
  }
  if (ordered) return false;
  return byThread(calls, numbers).some((list) => list.some((i, at) => at > 0 && calls.start[i] < calls.end(list[at - 1])));
}

/**
 * Return the calls of each thread, ordered by start.
 * @param {Calls} calls
 * @param {number[]} numbers
 */
function byThread(calls, numbers) {
  /** @type {Map<number, number[]>} */
  const lists = new Map();
  for (const i of numbers) {
    const thread = calls.thread[i];
    const list = lists.get(thread);
    if (list) list.push(i);
    else lists.set(thread, [i]);
  }
  return [...lists.values()].map((list) => list.sort((one, other) => calls.start[one] - calls.start[other]));
}

/**
 * Return the time in at least one of the intervals.
 * @param {Interval[]} intervals
 */
function length(intervals) {
  let [total, reached] = [0, 0];
  for (const [start, end] of intervals.sort((one, other) => one[0] - other[0])) {
    total += Math.max(0, end - Math.max(start, reached));
    reached = Math.max(reached, end);
  }
  return total;
}

/**
 * Return the parts of a call in which none of its callees in the same thread was under way.
 * @param {Calls} calls
 * @param {number} i
 */
function withoutCallees(calls, i) {
  /** @type {Interval[]} */
  const parts = [];
  let reached = calls.start[i];
  for (const child of calls.children(i)) {
    if (calls.isRequest(child) || calls.thread[child] !== calls.thread[i]) continue;
    if (calls.start[child] > reached) parts.push([reached, calls.start[child]]);
    reached = Math.max(reached, calls.end(child));
  }
  if (calls.end(i) > reached) parts.push([reached, calls.end(i)]);
  return parts;
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((all, one) => all + one, 0);
}

/** The timeline's rows, and the calls drawn at a scale: single ones, or blocks of those that are too narrow. */

/** @typedef {import("./calls.js").Calls} Calls */

/**
 * @typedef {object} Lane a thread
 * @property {number} thread index of the thread
 * @property {Row[]} rows one for each depth of calls
 *
 * @typedef {object} Row calls that do not overlap, in order
 * @property {Uint32Array} numbers ascending
 * @property {Float64Array} busy microseconds of all calls before each one, and at its end of all
 *
 * @typedef {object} Block what is drawn: one call, or several that share pixels
 * @property {number} from pixels
 * @property {number} to
 * @property {number} call the first call
 * @property {number} count
 * @property {number} busy share of the time in which a call runs, 0 to 1
 */

/** Width from which a call is drawn as one, and of a block of narrower calls. */
const SINGLE_PIXELS = 2;

/**
 * Return a lane for each thread, ordered by process and then by first call. A call stands below its caller; calls of
 * coroutines, which overlap, get the next free row.
 * @param {Calls} calls
 * @returns {Lane[]}
 */
export function lanes(calls) {
  const rowOf = new Uint16Array(calls.count);
  /** The calls of each thread's rows. @type {number[][][]} */
  const rows = calls.threads.map(() => []);
  /** Threads in the order of their first calls. @type {number[]} */
  const order = [];
  for (let i = 0; i < calls.count; i += 1) {
    if (calls.isRequest(i)) continue;
    const thread = calls.thread[i];
    const caller = calls.parent[i];
    const own = rows[thread];
    if (!own.length) order.push(thread);
    let row = caller >= 0 && caller < i && calls.thread[caller] === thread ? rowOf[caller] + 1 : 0;
    while (row < own.length && calls.end(own[row][own[row].length - 1]) > calls.start[i]) row += 1;
    if (row === own.length) own.push([]);
    own[row].push(i);
    rowOf[i] = row;
  }
  const process = (/** @type {number} */ thread) => calls.threads[thread].pid;
  const processes = [...new Set(order.map(process))];
  order.sort((one, other) => processes.indexOf(process(one)) - processes.indexOf(process(other)));
  return order.map((thread) => ({ thread, rows: rows[thread].map((numbers) => laneRow(calls, numbers)) }));
}

/**
 * @param {Calls} calls
 * @param {number[]} numbers
 * @returns {Row}
 */
function laneRow(calls, numbers) {
  const busy = new Float64Array(numbers.length + 1);
  numbers.forEach((i, at) => (busy[at + 1] = busy[at] + calls.us[i]));
  return { numbers: Uint32Array.from(numbers), busy };
}

/**
 * Return the first place of a row, from `low` on, whose call has a property that all later ones have too.
 * @param {Row} row
 * @param {(call: number) => boolean} has
 * @param {number} [low]
 */
function firstWith(row, has, low = 0) {
  let high = row.numbers.length;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (has(row.numbers[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Return the place of a call in a row, or -1.
 * @param {Row} row
 * @param {number} call
 */
export function placeOf(row, call) {
  const at = firstWith(row, (i) => i >= call);
  return row.numbers[at] === call ? at : -1;
}

/**
 * Return the place of the first call of a row, from `low` on, that ends after a time.
 * @param {Calls} calls
 * @param {Row} row
 * @param {number} time
 * @param {number} [low]
 * @returns {number}
 */
export function firstAfter(calls, row, time, low = 0) {
  return firstWith(row, (i) => calls.end(i) > time, low);
}

/**
 * Return what is drawn of a row between two times: work grows with the pixels, not with the calls.
 * @param {Calls} calls
 * @param {Row} row
 * @param {number} from microseconds
 * @param {number} to
 * @param {number} width pixels
 * @returns {Block[]}
 */
export function rowBlocks(calls, row, from, to, width) {
  const scale = width / (to - from);
  const { numbers, busy } = row;
  const blocks = [];
  let at = firstAfter(calls, row, from);
  while (at < numbers.length && calls.start[numbers[at]] < to) {
    const call = numbers[at];
    const left = (calls.start[call] - from) * scale;
    const right = left + calls.us[call] * scale;
    if (right - left >= SINGLE_PIXELS) {
      blocks.push({ from: Math.max(left, -1), to: Math.min(right, width + 1), call, count: 1, busy: 1 });
      at += 1;
      continue;
    }
    const start = Math.floor(left / SINGLE_PIXELS) * SINGLE_PIXELS;
    const end = Math.max(firstAfter(calls, row, from + (start + SINGLE_PIXELS) / scale, at), at + 1);
    const share = ((busy[end] - busy[at]) * scale) / SINGLE_PIXELS;
    blocks.push({ from: start, to: start + SINGLE_PIXELS, call, count: end - at, busy: Math.min(1, share) });
    at = end;
  }
  return blocks;
}

/**
 * Return the distance of an axis' marks: 1, 2 or 5 times a power of ten, at least `least`.
 * @param {number} least
 */
export function markDistance(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * (/** @type {number} */ ([1, 2, 5, 10].find((factor) => factor * power >= least * 0.999)));
}

/**
 * Return calls, busy time and longest call of a row between two times.
 * @param {Calls} calls
 * @param {Row} row
 * @param {number} from
 * @param {number} to
 */
export function summary(calls, row, from, to) {
  const first = firstAfter(calls, row, from);
  let longest = -1;
  let end = first;
  let busy = 0;
  for (; end < row.numbers.length && calls.start[row.numbers[end]] < to; end += 1) {
    const i = row.numbers[end];
    busy += Math.min(to, calls.end(i)) - Math.max(from, calls.start[i]);
    if (longest < 0 || calls.us[i] > calls.us[longest]) longest = i;
  }
  return { count: end - first, busy, longest };
}

/** The timeline's rows, and the calls drawn at a scale: single ones, or blocks of those that are too narrow. */

/** @typedef {import("./calls.js").Calls} Calls */

/**
 * @typedef {object} Lane a thread
 * @property {number} thread index of the thread
 * @property {Row[]} rows one for each depth of calls
 *
 * @typedef {object} Row calls that do not overlap, in order
 * @property {Uint32Array} numbers
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
  /** Ends of the last calls of each thread's rows. @type {number[][]} */
  const ends = calls.threads.map(() => []);
  /** @type {number[][]} */
  const counts = calls.threads.map(() => []);
  /** @type {number[]} */
  const order = [];
  for (let i = 0; i < calls.count; i += 1) {
    if (calls.isRequest(i)) continue;
    const thread = calls.thread[i];
    const caller = calls.parent[i];
    if (!ends[thread].length) order.push(thread);
    let row = caller >= 0 && caller < i && calls.thread[caller] === thread ? rowOf[caller] + 1 : 0;
    while (ends[thread][row] > calls.start[i]) row += 1;
    while (ends[thread].length <= row) {
      ends[thread].push(-Infinity);
      counts[thread].push(0);
    }
    ends[thread][row] = calls.start[i] + calls.us[i];
    counts[thread][row] += 1;
    rowOf[i] = row;
  }
  const rows = counts.map((own) => own.map((count) => ({ numbers: new Uint32Array(count), busy: new Float64Array(count + 1) })));
  const filled = counts.map((own) => own.map(() => 0));
  for (let i = 0; i < calls.count; i += 1) {
    if (calls.isRequest(i)) continue;
    const thread = calls.thread[i];
    const row = rows[thread][rowOf[i]];
    const at = filled[thread][rowOf[i]];
    row.numbers[at] = i;
    row.busy[at + 1] = row.busy[at] + calls.us[i];
    filled[thread][rowOf[i]] = at + 1;
  }
  /** Places of processes by their ids. @type {Map<number, number>} */
  const first = new Map();
  for (const thread of order) first.set(calls.threads[thread].pid, first.get(calls.threads[thread].pid) ?? first.size);
  const place = (/** @type {number} */ thread) => first.get(calls.threads[thread].pid) ?? 0;
  return order.sort((one, other) => place(one) - place(other)).map((thread) => ({ thread, rows: rows[thread].filter((row) => row.numbers.length) }));
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
  let high = row.numbers.length;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const i = row.numbers[middle];
    if (calls.start[i] + calls.us[i] > time) high = middle;
    else low = middle + 1;
  }
  return low;
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
    busy += Math.min(to, calls.start[i] + calls.us[i]) - Math.max(from, calls.start[i]);
    if (longest < 0 || calls.us[i] > calls.us[longest]) longest = i;
  }
  return { count: end - first, busy, longest };
}

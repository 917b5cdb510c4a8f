/** The flat profile: one row for each function of a part of the run, with the sums of its calls. */

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {"name" | "calls" | "total" | "own" | "recording"} Column */

/**
 * @typedef {object} ProfileRow times are sums in microseconds
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
  const { us, name, recording, firstChild, below } = calls;
  /** @type {ProfileRow[]} */
  const rows = [];
  /** @type {(ProfileRow | undefined)[]} by the number of the name */
  const found = Array(calls.names.length);
  const running = new Uint32Array(calls.names.length);
  /** @type {number[]} the running calls, outermost first */
  const callers = [];
  /** @type {number[]} the place of each running call's next callee */
  const next = [];
  const begin = (/** @type {number} */ i) => {
    if (calls.isRequest(i)) return;
    const called = name[i];
    let row = found[called];
    if (!row) {
      row = { name: calls.names[called], calls: 0, total: 0, own: 0, recording: 0, failed: 0, longest: i };
      found[called] = row;
      rows.push(row);
    }
    row.calls += 1;
    if (!running[called]) row.total += us[i];
    row.own += calls.own(i);
    row.recording += recording[i];
    if (calls.failed(i)) row.failed += 1;
    if (us[i] > us[row.longest]) row.longest = i;
    running[called] += 1;
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
  return rows;
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

/** Whole numbers as text in ranges, such as `3-5,9`. */

/**
 * Return the numbers that a text such as `3-5,9` lists.
 * @param {string} text
 * @returns {number[]}
 */
export function parseRanges(text) {
  /** @type {number[]} */
  const numbers = [];
  for (const part of text ? text.split(",") : []) {
    const [first, last = first] = part.split("-").map(Number);
    for (let number = first; number <= last; number += 1) numbers.push(number);
  }
  return numbers;
}

/**
 * Return the first and the last number of each range: 3 and 5, 9 and 9 for 3, 4, 5, 9.
 * @param {Iterable<number>} numbers
 */
export function toRanges(numbers) {
  /** @type {[first: number, last: number][]} */
  const runs = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && last[1] + 1 === number) last[1] = number;
    else runs.push([number, number]);
  }
  return runs;
}

/**
 * Return numbers as ranges: `3-5, 9` for 3, 4, 5, 9.
 * @param {number[]} numbers
 */
export function formatRanges(numbers) {
  return toRanges(numbers).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

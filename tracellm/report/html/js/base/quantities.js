/** Quantities as text: counts, times, shares, bytes, operations and rates; those that are rounded have three digits. */

/**
 * Return all digits of a number, with separators: `1,024`.
 * @param {number} value
 */
export function number(value) {
  return value.toLocaleString("en-US");
}

/**
 * Return a number with three digits, or all of a larger whole part: `0.042`, `4.20`, `41.3`, `1,024`.
 * @param {number} value
 */
export function threeDigits(value) {
  if (value >= 99.95) return number(Math.round(value));
  if (value >= 9.995) return value.toFixed(1);
  return value >= 0.995 || value === 0 ? value.toFixed(value ? 2 : 0) : value.toPrecision(2);
}

/**
 * Return microseconds in the unit that fits: `0.3 µs`, `850 µs`, `17.8 ms`, `2.31 s`.
 * @param {number} us
 */
export function duration(us) {
  if (us < 999.5) return `${us < 100 ? Math.round(us * 10) / 10 : Math.round(us)} µs`;
  return us < 1e6 ? `${threeDigits(us / 1e3)} ms` : `${threeDigits(us / 1e6)} s`;
}

/**
 * Return a probability or a share in percent: `97.3%`, `<0.1%`.
 * @param {number} share
 */
export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "<0.1%";
  return `${value >= 99.95 || value < 0.05 ? value.toFixed(0) : value.toFixed(1)}%`;
}

/**
 * @param {number} value
 * @param {string[]} units each a thousand times the one before
 */
function scaled(value, units) {
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const shown = unit === 0 && Number.isInteger(value) ? String(value) : threeDigits(value);
  return `${shown} ${units[unit]}`.trim();
}

/**
 * Return bytes in decimal units.
 * @param {number} count
 */
export function byteSize(count) {
  return scaled(count, ["B", "kB", "MB", "GB", "TB"]);
}

/**
 * Return a number of operations: `768`, `12.3 M`.
 * @param {number} count
 */
export function shortCount(count) {
  return scaled(count, ["", "k", "M", "G", "T", "P"]);
}

/**
 * Return bytes or operations per second.
 * @param {number} perSecond
 * @param {string} unit `B/s` or `FLOP/s`
 */
export function rate(perSecond, unit) {
  return scaled(perSecond, [unit, `k${unit}`, `M${unit}`, `G${unit}`, `T${unit}`, `P${unit}`]);
}

/** The limit of the machine, and the roofline chart: operations per byte of each part against operations per second. */

import { s } from "../base/dom.js";
import { number, rate } from "../base/quantities.js";
import { t } from "../base/text.js";

/**
 * @typedef {object} Limit
 * @property {number} flops per second
 * @property {number} bytes per second
 * @property {"peak" | "fastest"} source the GPU's data sheet, or the fastest parts of this run
 *
 * @typedef {object} Point
 * @property {string} label
 * @property {number} intensity FLOPs per byte
 * @property {number | null} flops per second; null if not measured
 */

const MOST_TICKS = 7;
const CHART = { width: 560, height: 300, left: 92, right: 14, top: 12, bottom: 40 };

/**
 * Return the FLOPs per second that the limit allows at an intensity.
 * @param {Limit} limit
 * @param {number} intensity
 */
export function attainable(limit, intensity) {
  return Math.min(limit.flops, limit.bytes * intensity);
}

/**
 * Return which share of its limit a work reached: the shortest time that the limit allows, over the time it took.
 * @param {number} flops
 * @param {number} moved bytes
 * @param {number} seconds
 * @param {{flops: number, bytes: number}} limit per second
 */
export function limitShare(flops, moved, seconds, limit) {
  return Math.max(flops / limit.flops, moved / limit.bytes) / seconds;
}

/**
 * Return the chart, both axes logarithmic. A point that was not measured is at the limit, and hollow.
 * @param {Limit} limit
 * @param {Point[]} points
 */
export function rooflineChart(limit, points) {
  const ridge = limit.flops / limit.bytes;
  const heights = points.map(({ flops, intensity }) => flops ?? attainable(limit, intensity));
  const [left, right] = decades([...points.map(({ intensity }) => intensity), ridge]);
  const [low, high] = decades([...heights, limit.flops, attainable(limit, 10 ** left)]);
  /** @param {number} value */
  const x = (value) => CHART.left + ((Math.log10(value) - left) / (right - left)) * (CHART.width - CHART.left - CHART.right);
  /** @param {number} value */
  const y = (value) => CHART.height - CHART.bottom - ((Math.log10(value) - low) / (high - low)) * (CHART.height - CHART.top - CHART.bottom);
  const between = (/** @type {number} */ a, /** @type {number} */ b) => Array.from({ length: b - a + 1 }, (_, i) => a + i);
  const corners = [10 ** left, ridge, 10 ** right].map((value) => `${x(value)},${y(attainable(limit, value))}`);
  const ticks = between(low, high).filter((_, i, all) => i % Math.ceil(all.length / MOST_TICKS) === 0);
  return s(
    "svg",
    { class: "roofline", viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": t("model.roofline.alt") },
    ...between(left, right).map((power) => s("path", { class: "rule", d: `M${x(10 ** power)},${CHART.top}V${CHART.height - CHART.bottom}` })),
    ...ticks.map((power) => s("path", { class: "rule", d: `M${CHART.left},${y(10 ** power)}H${CHART.width - CHART.right}` })),
    ...between(left, right).map((power) => s("text", { class: "tick", x: x(10 ** power), y: CHART.height - CHART.bottom + 16, "text-anchor": "middle" }, powerOfTen(power))),
    ...ticks.map((power) => s("text", { class: "tick", x: CHART.left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, rate(10 ** power, "FLOP/s").replace(".00 ", " "))),
    s("text", { class: "tick", x: CHART.width - CHART.right, y: CHART.height - 6, "text-anchor": "end" }, t("model.roofline.x")),
    s("polyline", { class: "roof", points: corners.join(" ") }),
    ...points.map(({ label, intensity, flops }, i) =>
      s(
        "g",
        { class: flops === null ? "point possible" : "point" },
        s("title", {}, label),
        s("circle", { cx: x(intensity), cy: y(heights[i]), r: 9 }),
        s("text", { x: x(intensity), y: y(heights[i]) + 4, "text-anchor": "middle" }, i + 1),
      ),
    ),
  );
}

/**
 * Return the powers of ten around some values.
 * @param {number[]} values
 */
function decades(values) {
  const logs = values.map((value) => Math.log10(value));
  const low = Math.floor(Math.min(...logs) - 0.1);
  return [low, Math.max(low + 1, Math.ceil(Math.max(...logs) + 0.1))];
}

/** @param {number} power */
function powerOfTen(power) {
  return power < 0 ? `1/${number(10 ** -power)}` : number(10 ** power);
}

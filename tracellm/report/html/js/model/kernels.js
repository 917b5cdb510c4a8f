/** The Triton kernels of a step or of the whole run, a row for each, with the times of launches and of the GPU apart. */

import { h, scrollFrame } from "../base/dom.js";
import { byteSize, duration, number, percent, rate, threeDigits } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { limitShare } from "./roofline.js";

/**
 * @typedef {[engine: number, step: number, name: string, launches: number, launchNs: number, bytes: number, flops: number, timed: number, gpuNs: number, timedBytes: number, timedFlops: number]} KernelRow
 */

/**
 * Return the rows of a step, or of the whole run, with the rows of one kernel added up; the longest first.
 * @param {KernelRow[]} rows
 * @param {{engine: number, step: number} | null} only
 * @returns {KernelRow[]}
 */
export function sumKernels(rows, only) {
  /** @type {Map<string, KernelRow>} */
  const found = new Map();
  for (const [engine, step, name, ...values] of rows) {
    if (only && (engine !== only.engine || step !== only.step)) continue;
    const sum = found.get(name);
    found.set(name, sum ? addRow(sum, values) : [engine, step, name, ...values]);
  }
  return [...found.values()].sort(([, , , , aLaunch, , , , aGpu], [, , , , bLaunch, , , , bGpu]) => bGpu - aGpu || bLaunch - aLaunch);
}

/**
 * @param {KernelRow} row
 * @param {number[]} values those after its name
 */
function addRow([engine, step, name, ...sums], values) {
  return /** @type {KernelRow} */ ([engine, step, name, ...sums.map((sum, i) => sum + values[i])]);
}

/**
 * Return the table of kernels.
 * @param {KernelRow[]} rows
 * @param {{flops: number, bytes: number} | null} limit the GPU's peak rates per second, if known
 */
export function kernelTable(rows, limit) {
  const columns = ["name", "launches", "cpu", "gpu", "bytes", "flops", "intensity", "share"];
  /** @param {string} column @param {...(Node | string | null | false)} children */
  const cell = (column, ...children) => h("td", { class: "number", "data-label": t(`model.kernels.${column}`) }, ...children);
  return scrollFrame(
    t("model.kernels"),
    h(
      "table",
      { class: "boundary work" },
      h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { scope: "col", class: column === "name" ? null : "number" }, t(`model.kernels.${column}`))))),
      h(
        "tbody",
        {},
        ...rows.map(([, , name, launches, launchNs, moved, flops, timed, gpuNs, timedBytes, timedFlops]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, h("code", {}, visible(name))),
            cell("launches", number(launches)),
            cell("cpu", duration(launchNs / 1000)),
            cell(
              "gpu",
              timed ? duration(gpuNs / 1000) : t("model.kernels.none"),
              timed > 0 && timed < launches && h("small", {}, ` ${t("model.kernels.timed", { n: timed })}`),
            ),
            cell("bytes", byteSize(moved), gpuNs > 0 && h("small", {}, ` ${rate((1e9 * timedBytes) / gpuNs, "B/s")}`)),
            cell("flops", number(flops), gpuNs > 0 && timedFlops > 0 && h("small", {}, ` ${rate((1e9 * timedFlops) / gpuNs, "FLOP/s")}`)),
            cell("intensity", moved ? threeDigits(flops / moved) : ""),
            cell("share", limit && gpuNs ? percent(limitShare(timedFlops, timedBytes, gpuNs / 1e9, limit)) : "–"),
          ),
        ),
      ),
    ),
  );
}

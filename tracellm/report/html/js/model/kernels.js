/** The Triton kernels of a step or of the whole run, a row for each, with the times of launches and of the GPU apart. */

import { h, scrollFrame } from "../base/dom.js";
import { byteSize, duration, number, percent, rate, threeDigits } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { limitShare } from "./roofline.js";

/**
 * @typedef {[engine: number, step: number, name: string, launches: number, launchNs: number, bytes: number, flops: number, timed: number, gpuNs: number, timedBytes: number, timedFlops: number]} KernelRow
 */

const FIRST_SUMMED = 3; // the columns before it identify the row

/**
 * Return the rows of a step, or of the whole run, with the rows of one kernel added up; the longest first.
 * @param {KernelRow[]} rows
 * @param {{engine: number, step: number} | null} only
 * @returns {KernelRow[]}
 */
export function sumKernels(rows, only) {
  /** @type {Map<string, KernelRow>} */
  const found = new Map();
  for (const row of rows) {
    if (only && (row[0] !== only.engine || row[1] !== only.step)) continue;
    const sum = found.get(row[2]);
    if (!sum) found.set(row[2], [...row]);
    else for (let i = FIRST_SUMMED; i < row.length; i += 1) /** @type {number[]} */ (/** @type {unknown} */ (sum))[i] += /** @type {number} */ (row[i]);
  }
  return [...found.values()].sort((a, b) => b[8] - a[8] || b[4] - a[4]);
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

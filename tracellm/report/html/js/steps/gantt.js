/** Requests and steps as one picture: a row for each request, and what it did in each step. */

import { h, s, scrollFrame } from "../base/dom.js";
import { duration, number } from "../base/quantities.js";
import { toRanges } from "../base/ranges.js";
import { t, visible } from "../base/text.js";
import { colour, shortName } from "../run/names.js";
import { select, selected } from "../run/selection.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */

/**
 * @typedef {object} Columns the steps of a picture that is aligned with another
 * @property {(Step | null)[]} steps null where only the other picture has a step
 * @property {() => number} at returns the selected one
 * @property {Set<number>} differing those that differ from the other picture's, in order
 *
 * @typedef {object} Segment
 * @property {"waiting" | "prefill" | "decode" | "preempted" | "idle"} kind
 * @property {number} first index of the first step
 * @property {number} last
 * @property {number} tokens
 */

const MOST_ROWS = 256;
/** Advance of a character of a label, in pixels. */
const CHARACTER = 7.2;
const ROW_HEIGHT = 18;

/** @type {Record<Segment["kind"], string>} */
const KINDS = { waiting: "page.kind.waiting", prefill: "page.prefill", decode: "page.decode", preempted: "page.preempted", idle: "page.idle" };

/**
 * Return each request's segments: runs of steps in which it did the same. Prefill chunks stay apart.
 * @param {(Step | null)[]} steps
 * @returns {Map<number, Segment[]>}
 */
export function segments(steps) {
  /** @type {Map<number, Segment[]>} */
  const found = new Map();
  /** @type {Set<number>} */
  const preempted = new Set();
  steps.forEach((step, index) => {
    if (!step) return;
    /** @param {number} r @param {Segment["kind"]} kind @param {number} tokens */
    const add = (r, kind, tokens) => {
      const own = found.get(r) ?? [];
      if (!own.length) found.set(r, own);
      const last = own.at(-1);
      if (last && last.kind === kind && last.last === index - 1 && kind !== "prefill") {
        last.last = index;
        last.tokens += tokens;
      } else own.push({ kind, first: index, last: index, tokens });
    };
    /** @type {Set<number>} */
    const working = new Set();
    for (const [r, tokens, , decode] of step.scheduled ?? []) {
      working.add(r);
      preempted.delete(r);
      add(r, decode ? "decode" : "prefill", tokens);
    }
    for (const r of step.preempted ?? []) preempted.add(r);
    for (const r of step.waiting ?? []) add(r, preempted.has(r) ? "preempted" : "waiting", 0);
    for (const r of step.running ?? []) if (!working.has(r)) add(r, "idle", 0);
  });
  return found;
}

/**
 * Return the picture of the selected engine, and a function that moves its marks to the selection. A click selects
 * request and step.
 * @param {Run} run
 * @param {number} width
 * @param {Columns} [columns] the selected engine's steps, unless the picture is aligned with another
 * @returns {{element: HTMLElement, update: () => void}}
 */
export function ganttPicture(run, width, columns) {
  const engine = run.engines[selected(run).engine];
  const { steps, at, differing } = columns ?? { steps: engine.steps, at: () => selected(run).step, differing: new Set() };
  const rows = [...segments(steps)].sort(([one], [other]) => (columns ? one - other : 0));
  const count = steps.length;
  const labels = 12 + CHARACTER * Math.max(10, ...run.requests.slice(0, MOST_ROWS).map((request) => shortName(request).length));
  const scale = Math.min(28, Math.max((width - labels) / count, 0.2));
  const whole = labels + count * scale;
  const height = ROW_HEIGHT * Math.min(rows.length, MOST_ROWS) + 22;
  const every = tickDistance(count, scale);
  const ticks = [];
  for (let index = every - 1; index < count; index += every) ticks.push(index);
  const cursor = s("rect", { class: "cursor", y: 0, width: Math.max(scale, 1.5), height });
  const pictureRows = rows.slice(0, MOST_ROWS).map(([r, own], i) => ganttRow(run, steps, r, own, { x: labels, y: 20 + i * ROW_HEIGHT, scale }));
  const [first] = differing;
  const picture = s(
    "svg",
    { class: "gantt", width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "img", "aria-label": t("page.gantt") },
    cursor,
    ...ticks.map((index) =>
      s("text", { class: "tick", x: labels + (index === count - 1 ? count : index + 0.5) * scale, y: 12, "text-anchor": index === count - 1 ? "end" : "middle" }, number(steps[index]?.n ?? index + 1)),
    ),
    ...toRanges(differing).map(([from, to]) =>
      s("rect", { class: "differs", x: labels + from * scale, y: 15, width: (to - from + 1) * scale, height: 3 }),
    ),
    first !== undefined && firstDifference(labels + first * scale, height),
    ...pictureRows,
  );
  picture.addEventListener("click", (event) => {
    const row = /** @type {SVGElement | null} */ (/** @type {Element} */ (event.target).closest("[data-request]"));
    const column = Math.floor((event.clientX - picture.getBoundingClientRect().left - labels) / scale);
    const clicked = steps.slice(0, column + 1).findLast((step) => step); // or the one before, where only the other run has a step
    select(run, {
      ...(row && { request: Number(row.dataset.request) }),
      ...(clicked && { step: engine.steps.indexOf(clicked) }),
    });
  });
  const update = () => {
    cursor.setAttribute("x", String(labels + at() * scale));
    for (const row of pictureRows) row.classList.toggle("chosen", Number(row.dataset.request) === selected(run).request);
  };
  update();
  const element = h(
    "div",
    {},
    h(
      "ul",
      { class: "legend" },
      ...Object.entries(KINDS).map(([kind, key]) => h("li", {}, h("i", { class: `gantt-key ${kind}` }), h("span", {}, t(key)))),
      differing.size > 0 && h("li", {}, h("i", { class: "gantt-key differs" }), t("diff.page.differs")),
      differing.size > 0 && h("li", {}, h("i", { class: "gantt-key first" }, "≠"), t("diff.page.first")),
    ),
    scrollFrame(t("page.gantt"), picture),
    rows.length > MOST_ROWS && h("p", { class: "empty" }, t("page.more", { n: rows.length - MOST_ROWS })),
  );
  return { element, update };
}

/**
 * @param {Run} run
 * @param {(Step | null)[]} steps
 * @param {number} r
 * @param {Segment[]} own
 * @param {{x: number, y: number, scale: number}} at where the first step begins, and pixels of a step
 */
function ganttRow(run, steps, r, own, { x, y, scale }) {
  return s(
    "g",
    { class: `row ${colour(r)}`, "data-request": r },
    s("text", { class: "label", x: x - 8, y: y + 12, "text-anchor": "end" }, shortName(run.requests[r])),
    ...own.map((segment) => {
      const waits = segment.kind === "waiting" || segment.kind === "preempted";
      return s(
        "rect",
        {
          class: segment.kind,
          x: x + segment.first * scale + 0.5,
          y: waits ? y + 6 : y + 2,
          width: Math.max((segment.last - segment.first + 1) * scale - (scale > 3 ? 1 : 0), 0.4),
          height: waits ? 4 : ROW_HEIGHT - 5,
        },
        s("title", {}, segmentTitle(run, steps, r, segment, t(KINDS[segment.kind]))),
      );
    }),
  );
}

/**
 * Return the mark of the first step that differs: a line with a sign on top.
 * @param {number} x
 * @param {number} height
 */
function firstDifference(x, height) {
  return s(
    "g",
    { class: "first-difference" },
    s("title", {}, t("diff.page.first")),
    s("line", { x1: x, x2: x, y1: 0, y2: height }),
    s("text", { x: x - 3, y: 11, "text-anchor": "end" }, "≠"),
  );
}

/**
 * Return the distance of the numbers above the picture, in steps.
 * @param {number} count
 * @param {number} scale
 */
function tickDistance(count, scale) {
  for (const every of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]) {
    if (every * scale > 34 || every >= count) return every;
  }
  return 10000;
}

/**
 * @param {Run} run
 * @param {(Step | null)[]} steps
 * @param {number} r
 * @param {Segment} segment
 * @param {string} kind
 */
function segmentTitle(run, steps, r, segment, kind) {
  const [first, last] = /** @type {Step[]} */ ([steps[segment.first], steps[segment.last]]);
  const range = first.n === last.n ? t("page.step", { n: first.n }) : t("page.steps", { first: first.n, last: last.n });
  const tokens = segment.tokens ? `, ${t("common.tokens", { n: segment.tokens })}` : "";
  const time = first.at === undefined ? "" : `, ${duration((last.at ?? 0) + (last.us ?? 0) - first.at)}`;
  return `${visible(run.requests[r].id)}: ${kind}, ${range}${tokens}${time}`;
}

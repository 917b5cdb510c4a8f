/** The timeline: calls by process and thread on a canvas that zooms from the whole run to single calls. */

import { h } from "../base/dom.js";
import { pressViewKey } from "../base/keys.js";
import { duration, number } from "../base/quantities.js";
import { t } from "../base/text.js";
import { select, selected } from "../run/selection.js";
import { selectedCall } from "./calls.js";
import { firstAfter, lanes, markDistance, placeOf, rowBlocks, summary } from "./timeline_model.js";
import { callName, threadName } from "./words.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("./timeline_model.js").Lane} Lane */
/** @typedef {import("./timeline_model.js").Row} Row */
/** @typedef {{x: number, y: number}} Point */

const AXIS_HEIGHT = 20;
const STEPS_HEIGHT = 18;
const LANE_LABEL_HEIGHT = 20;
const CALL_HEIGHT = 16;
const LANE_GAP = 6;
const MOST_LANE_ROWS = 60;
const LEAST_US = 0.5;
const MARK_PIXELS = 90;
const CHARACTER_PIXELS = 6.7;
const CLICK_PIXELS = 4;
const NEAR_PIXELS = 3;
const MARGIN = 0.15;

/** The style sheet's colours by what they show. */
const CANVAS_COLOURS = {
  background: "--bg", raised: "--raised", text: "--fg", soft: "--soft", line: "--line", accent: "--accent", tint: "--tint", bad: "--bad",
  on: "--on", request: "--request", step: "--step", layer: "--layer", kernel: "--kernel",
};

/** The timeline's canvas, the part of the run in sight, and the controls. */
class Timeline {
  /**
   * @param {Run} run
   * @param {Calls} calls
   */
  constructor(run, calls) {
    this.run = run;
    this.calls = calls;
    this.end = calls.start.reduce((end, _, i) => Math.max(end, calls.end(i)), 1);
    this.from = 0;
    this.to = this.end;
    /** Places of rows on the canvas. @type {{row: Row, y: number}[]} */
    this.rows = [];
    /** @type {{lane: Lane, y: number}[]} */
    this.labels = [];
    let y = AXIS_HEIGHT + STEPS_HEIGHT;
    for (const lane of lanes(calls)) {
      this.labels.push({ lane, y });
      y += LANE_LABEL_HEIGHT;
      for (const row of lane.rows.slice(0, MOST_LANE_ROWS)) {
        this.rows.push({ row, y });
        y += CALL_HEIGHT;
      }
      y += LANE_GAP;
    }
    this.height = y;
    this.canvas = /** @type {HTMLCanvasElement} */ (
      h("canvas", { tabindex: "0", role: "application", "aria-label": t("timeline.label"), "aria-describedby": "timeline-keys", style: { height: `${y}px` } })
    );
    this.tip = h("div", { class: "timeline-tip", role: "status", hidden: true });
    this.frame = h("div", { class: "timeline-frame" }, this.canvas, this.tip);
    this.chosen = h("p", { class: "timeline-chosen" });
    this.table = h("div", { class: "scroll" });
    this.details = h("details", { class: "source", ontoggle: () => this.showTable() }, h("summary", {}, t("timeline.table")), this.table);
    this.element = h(
      "div",
      { class: "timeline" },
      h(
        "p",
        { class: "timeline-bar" },
        this.button("timeline.in", "+", () => this.zoom(0.5)),
        this.button("timeline.out", "−", () => this.zoom(2)),
        this.button("timeline.all", t("timeline.all"), () => this.show(0, this.end)),
        this.button("timeline.step", t("timeline.step"), () => this.showStep()),
        this.button("timeline.call", t("timeline.call"), () => this.showCall()),
        h(
          "span",
          { class: "legend" },
          ...["request", "step", "layer", "kernel"].map((level) => h("span", {}, h("i", { class: `level of-${level}` }), t(`timeline.level.${level}`))),
        ),
      ),
      this.frame,
      this.chosen,
      h("p", { class: "empty", id: "timeline-keys" }, t("timeline.keys")),
      this.details,
    );
    /** Positions of pressed pointers. @type {Map<number, Point>} */
    this.pointers = new Map();
    this.moved = 0;
    this.width = 1000;
    /** The selected call that was brought in sight. @type {number | null} */
    this.call = null;
    /** @type {number | undefined} */
    this.frameAsked = undefined;
    this.listen();
  }

  /**
   * @param {string} label
   * @param {string} sign
   * @param {() => void} onclick
   */
  button(label, sign, onclick) {
    return h("button", { type: "button", "aria-label": t(label), onclick }, sign);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    canvas.addEventListener("pointermove", (event) => this.pointed(event));
    canvas.addEventListener("pointerup", (event) => this.released(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      this.width = Math.max(1, this.frame.clientWidth);
      this.draw();
    }).observe(this.frame);
  }

  /** @param {number} time */
  x(time) {
    return ((time - this.from) * this.width) / (this.to - this.from);
  }

  /** @param {number} x */
  time(x) {
    return this.from + (x * (this.to - this.from)) / this.width;
  }

  /**
   * Show the run between two times, as far as it goes.
   * @param {number} from
   * @param {number} to
   */
  show(from, to) {
    const length = Math.min(Math.max(to - from, LEAST_US), this.end);
    this.from = Math.min(Math.max(0, from), this.end - length);
    this.to = this.from + length;
    this.tip.hidden = true;
    this.draw();
    this.showTable();
  }

  /**
   * Show more or less time; the time at `x` stays where it is.
   * @param {number} factor
   * @param {number} [x]
   */
  zoom(factor, x = this.width / 2) {
    const length = Math.min(Math.max((this.to - this.from) * factor, LEAST_US), this.end);
    const from = this.time(x) - (x / this.width) * length;
    this.show(from, from + length);
  }

  /** @param {number} pixels */
  pan(pixels) {
    const by = (pixels * (this.to - this.from)) / this.width;
    this.show(this.from + by, this.to + by);
  }

  showStep() {
    const { engine, step } = selected(this.run);
    const call = this.calls.stepCall(engine, step);
    if (call !== null) this.showAround(call);
  }

  showCall() {
    const call = selectedCall(this.run, this.calls);
    if (call !== null) this.showAround(call);
  }

  /** @param {number} call */
  showAround(call) {
    const margin = Math.max(this.calls.us[call], LEAST_US) * MARGIN;
    this.show(this.calls.start[call] - margin, this.calls.end(call) + margin);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (event.ctrlKey || event.metaKey || document.activeElement === this.canvas) {
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX);
      else this.zoom(2 ** (Math.max(-60, Math.min(60, event.deltaY)) / 100), event.offsetX);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX || event.deltaY);
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  pressed(event) {
    if (event.button > 0) return;
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (this.pointers.size === 1) this.moved = 0;
    this.canvas.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  pointed(event) {
    const before = this.pointers.get(event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    if (!before) {
      this.hover(now);
      return;
    }
    const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    this.pointers.set(event.pointerId, now);
    this.moved += Math.abs(now.x - before.x) + (other ? CLICK_PIXELS : 0);
    if (other) {
      const apart = Math.max(10, Math.abs(before.x - other.x));
      this.zoom(apart / Math.max(10, Math.abs(now.x - other.x)), (now.x + other.x) / 2);
    } else if (this.moved > CLICK_PIXELS) this.pan(before.x - now.x);
  }

  /** @param {PointerEvent} event */
  released(event) {
    const pressed = this.pointers.delete(event.pointerId);
    if (!pressed || this.pointers.size || this.moved > CLICK_PIXELS) return;
    const point = { x: event.offsetX, y: event.offsetY };
    const call = this.callAt(point)?.call;
    if (call !== undefined) select(this.run, { call });
    else this.clickStep(point);
  }

  /**
   * Return what is drawn at a point.
   * @param {Point} point
   */
  callAt({ x, y }) {
    const place = this.rows.find((one) => y >= one.y && y < one.y + CALL_HEIGHT);
    if (!place) return null;
    // calls may be narrow: a neighbour is near enough
    const near = rowBlocks(this.calls, place.row, this.time(x - NEAR_PIXELS), this.time(x + NEAR_PIXELS), 2 * NEAR_PIXELS);
    return near.sort((one, other) => distance(one, NEAR_PIXELS) - distance(other, NEAR_PIXELS))[0] ?? null;
  }

  /** @param {Point} point */
  clickStep({ x, y }) {
    if (y < AXIS_HEIGHT || y >= AXIS_HEIGHT + STEPS_HEIGHT) return;
    const { engine } = selected(this.run);
    const time = this.time(x);
    const step = this.calls.stepCalls(engine).findIndex((call) => this.calls.start[call] <= time && time < this.calls.end(call));
    if (step >= 0) select(this.run, { step });
  }

  /** @param {Point} point */
  hover(point) {
    const found = this.callAt(point);
    this.tip.hidden = !found;
    this.canvas.classList.toggle("over", Boolean(found));
    if (!found) return;
    const { calls } = this;
    const { call, count, busy } = found;
    const more = count > 1 ? t("timeline.more", { n: count, busy: Math.round(100 * busy) }) : "";
    this.tip.replaceChildren(
      h("strong", {}, callName(calls, call)),
      ` ${duration(calls.us[call])} `,
      h("small", {}, t("timeline.at", { at: duration(calls.start[call]) }), more && ` ${more}`),
    );
    const left = Math.min(point.x + 12, Math.max(0, this.width - this.tip.offsetWidth));
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${point.y + 18}px`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { calls } = this;
    const call = selectedCall(this.run, calls);
    /** @param {number | undefined} to */
    const go = (to) => {
      if (to !== undefined && to >= 0) select(this.run, { call: to });
    };
    pressViewKey(event, {
      ArrowLeft: () => this.pan(-this.width / 8),
      ArrowRight: () => this.pan(this.width / 8),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.show(0, this.end),
      s: () => this.showStep(),
      c: () => this.showCall(),
      ArrowUp: () => go(call === null ? undefined : calls.parent[call]),
      ArrowDown: () => go(call === null ? this.firstInSight() : calls.children(call)[0]),
      n: () => go(this.neighbour(call, 1)),
      p: () => go(this.neighbour(call, -1)),
    });
  }

  firstInSight() {
    const row = this.rows[0]?.row;
    return row?.numbers[firstAfter(this.calls, row, this.from)];
  }

  /**
   * Return the call beside another in its row.
   * @param {number | null} call
   * @param {number} by
   */
  neighbour(call, by) {
    if (call === null) return this.firstInSight();
    const row = this.rowOf(call)?.row;
    return row?.numbers[placeOf(row, call) + by];
  }

  /** @param {number} call */
  rowOf(call) {
    return this.rows.find(({ row }) => placeOf(row, call) >= 0);
  }

  /** Draw the marks of the selection in the colours of the theme, and bring a newly selected call in sight. */
  update() {
    const call = selectedCall(this.run, this.calls);
    if (call !== this.call) {
      this.call = call;
      if (call !== null) this.bringInSight(call);
      this.chosen.replaceChildren(...(call === null ? [] : this.chosenFacts(call)));
    }
    this.draw();
  }

  /** @param {number} call */
  bringInSight(call) {
    if (this.calls.end(call) < this.from || this.calls.start[call] > this.to) this.showAround(call);
  }

  /** @param {number} call */
  chosenFacts(call) {
    const facts = { name: callName(this.calls, call), total: duration(this.calls.us[call]), at: duration(this.calls.start[call]) };
    const show = () => document.getElementById("calls")?.scrollIntoView();
    return [t("timeline.selected", facts), " ", h("button", { class: "link", type: "button", onclick: show }, t("timeline.show"))];
  }

  /** Draw before the next frame. */
  draw() {
    this.frameAsked ??= requestAnimationFrame(() => {
      this.frameAsked = undefined;
      this.drawNow();
    });
  }

  drawNow() {
    const { canvas, width, height } = this;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const colour = /** @type {Record<string, string>} */ (
      Object.fromEntries(Object.entries(CANVAS_COLOURS).map(([name, property]) => [name, style.getPropertyValue(property).trim()]))
    );
    pen.fillStyle = colour.background;
    pen.fillRect(0, 0, width, height);
    pen.font = `11.5px ${style.getPropertyValue("--mono")}`;
    pen.textBaseline = "middle";
    this.drawSteps(pen, colour);
    this.drawAxis(pen, colour);
    for (const { lane, y } of this.labels) {
      pen.fillStyle = colour.line;
      pen.fillRect(0, y - LANE_GAP / 2, width, 1);
      pen.fillStyle = colour.soft;
      const hidden = lane.rows.length - MOST_LANE_ROWS;
      pen.fillText(threadName(this.calls.threads[lane.thread]) + (hidden > 0 ? ` ${t("timeline.hidden", { n: hidden })}` : ""), 4, y + LANE_LABEL_HEIGHT / 2);
    }
    for (const { row, y } of this.rows) this.drawRow(pen, colour, row, y);
    this.drawCall(pen, colour);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colour
   */
  drawAxis(pen, colour) {
    const every = markDistance(((this.to - this.from) * MARK_PIXELS) / this.width);
    for (let time = Math.ceil(this.from / every) * every; time <= this.to; time += every) {
      const x = Math.round(this.x(time));
      pen.fillStyle = colour.line;
      pen.fillRect(x, 0, 1, this.height);
      pen.fillStyle = colour.soft;
      pen.fillText(axisText(time, every), x + 4, AXIS_HEIGHT / 2);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colour
   */
  drawSteps(pen, colour) {
    const { engine, step } = selected(this.run);
    const steps = this.run.engines[engine]?.steps ?? [];
    const chosen = this.calls.stepCall(engine, step);
    if (chosen !== null) {
      const x = this.x(this.calls.start[chosen]);
      const width = Math.max(2, this.x(this.calls.end(chosen)) - x);
      pen.fillStyle = colour.tint;
      pen.fillRect(x, AXIS_HEIGHT, width, this.height);
      pen.fillStyle = colour.accent;
      pen.fillRect(x, AXIS_HEIGHT, width, 2);
    }
    let reached = -Infinity;
    this.calls.stepCalls(engine).forEach((call, index) => {
      const x = this.x(this.calls.start[call]);
      const end = this.x(this.calls.end(call));
      if (end < 0 || x > this.width || end < reached + 1) return;
      reached = end;
      pen.fillStyle = index === step ? colour.accent : colour.soft;
      pen.globalAlpha = index === step ? 1 : 0.35;
      pen.fillRect(x, AXIS_HEIGHT + 2, Math.max(1, end - x - 1), STEPS_HEIGHT - 4);
      pen.globalAlpha = 1;
      const name = number(steps[index]?.n ?? index + 1);
      const from = Math.max(x, 0);
      if (end - from < name.length * CHARACTER_PIXELS + 6) return;
      pen.fillStyle = index === step ? colour.background : colour.text;
      pen.fillText(name, from + 4, AXIS_HEIGHT + STEPS_HEIGHT / 2 + 1);
    });
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colour
   * @param {Row} row
   * @param {number} y
   */
  drawRow(pen, colour, row, y) {
    const { calls } = this;
    for (const block of rowBlocks(calls, row, this.from, this.to, this.width)) {
      const width = block.to - block.from;
      pen.fillStyle = colour[calls.failed(block.call) ? "bad" : calls.level(block.call)];
      pen.globalAlpha = 0.25 + 0.75 * block.busy;
      pen.fillRect(block.from, y + 1, width > 3 ? width - 1 : width, CALL_HEIGHT - 2);
      pen.globalAlpha = 1;
      const left = Math.max(block.from, 0);
      const room = Math.floor((Math.min(block.to, this.width) - left - 8) / CHARACTER_PIXELS);
      if (block.count > 1 || room < 3) continue;
      const name = callName(calls, block.call);
      const short = name.length <= room ? name : name.split(".").at(-1) ?? name;
      pen.fillStyle = colour.on;
      pen.fillText(short.length <= room ? short : `${short.slice(0, room - 1)}…`, left + 4, y + CALL_HEIGHT / 2 + 0.5);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colour
   */
  drawCall(pen, colour) {
    const { call } = this;
    const place = call !== null && this.rowOf(call);
    if (!place) return;
    const x = Math.max(-4, this.x(this.calls.start[call]));
    const end = Math.min(this.width + 4, this.x(this.calls.end(call)));
    if (end < 0 || x > this.width) return;
    pen.strokeStyle = colour.text;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, place.y, Math.max(3, end - x + 1), CALL_HEIGHT);
    pen.fillStyle = colour.text;
    pen.beginPath();
    pen.moveTo((x + end) / 2 - 5, place.y - 6);
    pen.lineTo((x + end) / 2 + 5, place.y - 6);
    pen.lineTo((x + end) / 2, place.y);
    pen.fill();
  }

  /** Show the part in sight as a table. */
  showTable() {
    if (!(/** @type {HTMLDetailsElement} */ (this.details).open)) return;
    const heads = ["where", "calls", "busy", "longest"];
    const rows = this.labels.map(({ lane }) => {
      const all = lane.rows.map((row) => summary(this.calls, row, this.from, this.to));
      const { busy, longest } = all[0];
      const count = all.reduce((sum, one) => sum + one.count, 0);
      const name = longest < 0 ? "" : `${callName(this.calls, longest)} (${duration(this.calls.us[longest])})`;
      return [threadName(this.calls.threads[lane.thread]), number(count), duration(busy), name];
    });
    this.table.replaceChildren(
      h("p", {}, t("timeline.range", { from: duration(this.from), to: duration(this.to) })),
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, t(`timeline.table.${head}`))))),
        h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, i) => h("td", { "data-label": t(`timeline.table.${heads[i]}`) }, cell))))),
      ),
    );
  }
}

/**
 * Return the timeline, and a function that brings it up to date.
 * @param {Run} run
 * @param {Calls} calls
 */
export function timeline(run, calls) {
  const view = new Timeline(run, calls);
  return { element: view.element, update: () => view.update() };
}

/**
 * @param {{from: number, to: number}} block
 * @param {number} x
 */
function distance(block, x) {
  return block.from > x ? block.from - x : block.to < x ? x - block.to : 0;
}

/**
 * Return a time on the axis, as exact as the distance of the marks needs.
 * @param {number} time
 * @param {number} every
 */
function axisText(time, every) {
  const [unit, name] = time >= 1e6 ? [1e6, "s"] : time >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const digits = Math.max(0, Math.ceil(-Math.log10(every / unit) - 1e-9));
  return `${(time / unit).toFixed(digits)} ${name}`;
}

/** The flat profile's table: a row for each function, of which only those in sight are elements. */

import { h } from "../base/dom.js";
import { pressViewKey } from "../base/keys.js";
import { duration, number } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { select } from "../run/selection.js";
import { selectedCall } from "./calls.js";
import { profileOf, sortedProfile } from "./profile_model.js";
import { timeBar } from "./words.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("./profile_model.js").Column} Column */
/** @typedef {import("./profile_model.js").ProfileRow} ProfileRow */

const PROFILE_ROW_PIXELS = 28;
const PROFILE_SPARE_ROWS = 12;
const ROWS_BEFORE_LAYOUT = 40;

/** The profile of a part of the run: state, and elements that show it. */
export class Profile {
  /**
   * @param {Run} run
   * @param {Calls} calls
   * @param {{match: unknown, matches: unknown[], refresh: () => void}} search the field whose matches are marked
   */
  constructor(run, calls, search) {
    this.run = run;
    this.calls = calls;
    this.search = search;
    /** @type {Column} */
    this.column = "own";
    this.reversed = false;
    /** @type {ProfileRow[]} */
    this.rows = [];
    /** Largest total of a row. */
    this.longest = 0;
    this.focused = 0;
    this.columns = /** @type {Column[]} */ (["name", "calls", "total", "own", ...(calls.hasRecording ? ["recording"] : [])]);
    this.head = h("div", { role: "rowgroup" });
    this.body = h("div", { class: "profile-rows", role: "rowgroup", onkeydown: (/** @type {KeyboardEvent} */ event) => this.pressed(event) });
    this.element = h(
      "div",
      { class: "tree-frame profile", role: "grid", "aria-label": t("calls.profile"), "aria-colcount": this.columns.length, onscroll: () => this.draw() },
      this.head,
      this.body,
    );
  }

  /**
   * Make the rows of a part of the run.
   * @param {ArrayLike<number>} roots
   */
  make(roots) {
    this.rows = sortedProfile(profileOf(this.calls, roots), this.column, this.reversed);
    this.longest = this.rows.reduce((most, row) => Math.max(most, row.total), 0);
    this.focused = 0;
    this.element.scrollTop = 0;
  }

  show() {
    this.head.replaceChildren(h("div", { class: "tree-head", role: "row" }, ...this.columns.map((column) => this.headCell(column)), h("span", { class: "bar" })));
    this.body.style.setProperty("height", `${this.rows.length * PROFILE_ROW_PIXELS}px`);
    this.element.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.draw();
  }

  /** @param {Column} column */
  headCell(column) {
    const label = t(column === "name" || column === "calls" ? `calls.profile.${column}` : `calls.${column}`);
    const chosen = this.column === column;
    const ascending = (column === "name") !== this.reversed;
    return h(
      "span",
      { class: cellClass(column), role: "columnheader", "aria-sort": chosen ? (ascending ? "ascending" : "descending") : "none" },
      h("button", { type: "button", class: "sort", "aria-pressed": String(chosen), title: t("calls.sort", { by: label }), onclick: () => this.sortBy(column) }, label),
    );
  }

  /** Show the rows in sight, those near them, and the one with the focus. */
  draw() {
    const hadFocus = this.body.contains(document.activeElement);
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / PROFILE_ROW_PIXELS) - PROFILE_SPARE_ROWS);
    const end = Math.min(this.rows.length, first + (clientHeight ? Math.ceil(clientHeight / PROFILE_ROW_PIXELS) : ROWS_BEFORE_LAYOUT) + 2 * PROFILE_SPARE_ROWS);
    const inSight = Array.from({ length: end - first }, (_, i) => first + i);
    if (this.rows.length && this.focused < first) inSight.unshift(this.focused);
    if (this.rows.length && this.focused >= end) inSight.push(this.focused);
    const matches = new Set(this.search.matches);
    const call = selectedCall(this.run, this.calls);
    const chosen = call === null ? null : this.calls.names[this.calls.name[call]];
    this.body.replaceChildren(...inSight.map((i) => this.rowElement(i, this.rows[i].name === chosen, matches.has(this.rows[i]))));
    if (!this.rows.length) this.body.append(h("p", { class: "empty" }, t("calls.none")));
    if (hadFocus) this.focusedElement()?.focus({ preventScroll: true });
  }

  /**
   * @param {number} i
   * @param {boolean} chosen whether the selected call is one of the row's function
   * @param {boolean} matches
   */
  rowElement(i, chosen, matches) {
    const row = this.rows[i];
    const name = visible(row.name);
    const allFailed = row.failed === row.calls;
    /** @param {Column} column */
    const text = (column) => {
      if (column === "name") return allFailed ? `✗ ${name}` : row.failed ? `${name} ✗ ${t("calls.failed.some", { n: row.failed })}` : name;
      if (column === "calls") return number(row.calls);
      return column === "recording" && !row.recording ? "" : duration(row[column]);
    };
    return h(
      "div",
      {
        class: `tree-row${matches ? " match" : ""}${this.search.match === row ? " now" : ""}`,
        role: "row",
        tabindex: i === this.focused ? "0" : "-1",
        "aria-rowindex": i + 2,
        "aria-selected": String(chosen),
        "data-row": i,
        style: { top: `${i * PROFILE_ROW_PIXELS}px` },
        onclick: () => this.choose(i),
      },
      ...this.columns.map((column) =>
        h(
          "span",
          { class: cellClass(column), role: "gridcell", title: column === "name" && name },
          column === "name" ? h("span", { class: allFailed ? "name failed" : "name" }, text(column)) : text(column),
        ),
      ),
      timeBar(row, this.longest),
    );
  }

  /**
   * Select the longest call of a row's function.
   * @param {number} i
   */
  choose(i) {
    this.focused = i;
    select(this.run, { call: this.rows[i].longest });
    this.focus(i);
  }

  /** @param {Column} column */
  sortBy(column) {
    this.reversed = column === this.column && !this.reversed;
    this.column = column;
    const row = this.rows[this.focused];
    this.rows = sortedProfile(this.rows, column, this.reversed);
    this.focused = Math.max(0, this.rows.indexOf(row));
    this.search.refresh();
    this.show();
    /** @type {HTMLElement | null} */ (this.head.querySelector("[aria-pressed=true]"))?.focus({ preventScroll: true });
  }

  /**
   * Return the rows with a text in their names.
   * @param {string} text
   */
  find(text) {
    const wanted = text.toLowerCase();
    return this.rows.filter(({ name }) => name.toLowerCase().includes(wanted));
  }

  /**
   * Show a row that the search found.
   * @param {ProfileRow} row
   */
  goToMatch(row) {
    this.focused = this.rows.indexOf(row);
    this.scrollTo(this.focused);
    this.draw();
  }

  /** @param {number} i */
  focus(i) {
    if (i < 0 || i >= this.rows.length) return;
    this.focused = i;
    this.scrollTo(i);
    this.draw();
    this.focusedElement()?.focus({ preventScroll: true });
  }

  /** @returns {HTMLElement | null} */
  focusedElement() {
    return this.body.querySelector(`[data-row="${this.focused}"]`);
  }

  /**
   * Scroll the table, never the page, until a row is in sight.
   * @param {number} i
   */
  scrollTo(i) {
    const { element, head } = this;
    const top = i * PROFILE_ROW_PIXELS;
    const bottom = top + PROFILE_ROW_PIXELS + head.offsetHeight - element.clientHeight;
    if (element.scrollTop > top) element.scrollTop = top;
    else if (element.scrollTop < bottom) element.scrollTop = bottom;
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (!this.rows.length) return;
    const { focused } = this;
    const page = Math.max(1, Math.floor(this.element.clientHeight / PROFILE_ROW_PIXELS) - 2);
    const last = this.rows.length - 1;
    pressViewKey(event, {
      ArrowDown: () => this.focus(focused + 1),
      ArrowUp: () => this.focus(focused - 1),
      PageDown: () => this.focus(Math.min(last, focused + page)),
      PageUp: () => this.focus(Math.max(0, focused - page)),
      Home: () => this.focus(0),
      End: () => this.focus(last),
      Enter: () => this.choose(focused),
      " ": () => this.choose(focused),
    });
  }
}

/** @param {Column} column */
function cellClass(column) {
  return { name: "entry", calls: "calls-count", total: "total", own: "own", recording: "own recording" }[column];
}

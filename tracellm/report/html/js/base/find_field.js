/** A search field with buttons for the previous and the next match, of the call tree and of the sequence diagram. */

import { h } from "./dom.js";
import { t } from "./text.js";

const FIND_DELAY_MS = 200;

/**
 * The field, its matches, and the one that is shown.
 * @template T
 */
export class FindField {
  /**
   * @param {string} label
   * @param {object} view
   * @param {(text: string) => T[]} view.find returns the matches of a text
   * @param {() => void} view.typed called a short while after the text has changed, since a search may be slow
   * @param {(match: T) => void} view.show
   * @param {(matches: T[]) => string} [view.remark] returns a text shown beside their number
   */
  constructor(label, view) {
    this.view = view;
    /** @type {T[]} */
    this.matches = [];
    this.at = -1;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    const input = { type: "search", placeholder: label, "aria-label": label, oninput: () => this._typed(), onkeydown: (/** @type {KeyboardEvent} */ event) => this._key(event) };
    this.input = /** @type {HTMLInputElement} */ (h("input", input));
    this.status = h("output", { class: "matches" });
    this.element = h("span", { class: "find" }, this.input, this._button("page.find.previous", "↑", -1), this._button("page.find.next", "↓", 1), this.status);
  }

  /** The match that is shown, if any. */
  get match() {
    return this.matches[this.at];
  }

  /** Find the text again; no match is shown. */
  refresh() {
    const text = this.input.value.trim();
    this.matches = text ? this.view.find(text) : [];
    this.at = -1;
    this._report();
  }

  /**
   * Show the next match, or the previous one; after the last comes the first.
   * @param {1 | -1} by
   */
  go(by) {
    if (this.timer !== undefined) this._findNow();
    const { length } = this.matches;
    if (!length) return;
    this.at = this.at < 0 ? (by > 0 ? 0 : length - 1) : (this.at + by + length) % length;
    this._report();
    this.view.show(this.matches[this.at]);
  }

  _report() {
    const { matches, at } = this;
    const count = at < 0 ? t("page.find.matches", { n: matches.length }) : t("page.find.at", { at: at + 1, n: matches.length });
    const remark = (matches.length && this.view.remark?.(matches)) || "";
    this.status.textContent = this.input.value.trim() ? `${count} ${remark}`.trim() : "";
  }

  _typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this._findNow();
      this.view.typed();
    }, FIND_DELAY_MS);
  }

  _findNow() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.refresh();
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.key !== "Enter") return;
    this.go(event.shiftKey ? -1 : 1);
    event.preventDefault();
  }

  /**
   * @param {string} label
   * @param {string} sign
   * @param {1 | -1} by
   */
  _button(label, sign, by) {
    return h("button", { type: "button", "aria-label": t(label), onclick: () => this.go(by) }, sign);
  }
}

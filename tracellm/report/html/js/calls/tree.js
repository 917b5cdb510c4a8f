/**
 * The call tree: rows that open and close, sorted and searched, of the run, a step, or the steps of a request. A switch
 * shows a flat profile of the same calls instead.
 */

import { h, scrollInto } from "../base/dom.js";
import { FindField } from "../base/find_field.js";
import { pressViewKey } from "../base/keys.js";
import { duration, number } from "../base/quantities.js";
import { t } from "../base/text.js";
import { select, selected } from "../run/selection.js";
import { selectedCall } from "./calls.js";
import { Profile } from "./profile.js";
import { closeAll, findRows, openBelow, openTo, rowOf, shownRows, treeOf } from "./tree_model.js";
import { callDetail, callName, movedTo, timeBar } from "./words.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("./tree_model.js").Order} Order */
/** @typedef {import("./tree_model.js").TreeRow} TreeRow */
/** @typedef {"run" | "step" | "request"} Scope */

/** @typedef {TreeRow | import("./profile_model.js").ProfileRow} Found */
/** @typedef {"caller" | "function"} Kind rows by caller, a tree, or by function, a flat profile */

const TREE_KINDS = /** @type {const} */ (["caller", "function"]);
const SCOPES = /** @type {const} */ (["run", "step", "request"]);
const OPEN_DEPTH = 3;
const MOST_OPENED = 2000;
const MOST_OPENED_AT_FIRST = 11;
const MOST_INDENTS = 20;

/**
 * Return the calls at the top of a scope's tree.
 * @param {Run} run
 * @param {Calls} calls
 * @param {Scope} scope
 * @returns {ArrayLike<number>}
 */
function scopeRoots(run, calls, scope) {
  const { engine, step, request } = selected(run);
  if (scope === "run") return calls.children(-1);
  if (scope === "step") return [calls.stepCall(engine, step)].filter((call) => call !== null);
  return run.engines.flatMap(({ steps }, e) =>
    steps.flatMap(({ scheduled }, index) => {
      const call = calls.stepCall(e, index);
      return call !== null && scheduled?.some(([r]) => r === request) ? [call] : [];
    }),
  );
}

/** The call tree's view: state, and elements that show it. */
class TreeView {
  /**
   * @param {Run} run
   * @param {Calls} calls
   */
  constructor(run, calls) {
    this.run = run;
    this.calls = calls;
    /** @type {Scope} */
    this.scope = "run";
    /** @type {Kind} */
    this.kind = "caller";
    /** @type {Order} */
    this.order = "first";
    /** The selected call. @type {number | null} */
    this.call = null;
    /** Scope of the shown tree, with its step or request. */
    this.madeFor = "";
    this.top = treeOf(calls, []);
    /** The rows that are shown. @type {TreeRow[]} */
    this.rows = [];
    /** @type {TreeRow | null} */
    this.focused = null;
    this.body = h("div", { class: "tree", role: "tree", "aria-label": t("html.calls"), onkeydown: (/** @type {KeyboardEvent} */ event) => this.pressed(event) });
    /** @type {FindField<Found>} */
    this.search = new FindField(t("calls.search"), {
      find: (/** @type {string} */ text) => /** @type {Found[]} */ (this.kind === "function" ? this.profile.find(text) : findRows(this.top, text, this.order)),
      typed: () => (this.search.matches.length ? this.search.go(1) : this.show()),
      show: (row) => ("numbers" in row ? this.goToMatch(row) : this.profile.goToMatch(row)),
      remark: (rows) => t("calls.matches", { n: rows.reduce((sum, row) => sum + ("numbers" in row ? row.numbers.length : row.calls), 0) }),
    });
    this.profile = new Profile(run, calls, this.search);
    this.scopes = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": t("calls.scope"), onchange: () => this.setScope(/** @type {Scope} */ (this.scopes.value)) })
    );
    this.kinds = h("div", { class: "tree-kinds", role: "group", "aria-label": t("calls.kind") });
    this.opening = h(
      "div",
      { class: "tree-opening" },
      h("button", { type: "button", title: t("calls.open.below.key"), onclick: () => this.openBelow() }, t("calls.open.below")),
      h("button", { type: "button", title: t("calls.close.key"), onclick: () => this.closeAll() }, t("calls.close")),
    );
    this.head = h("div", { class: "tree-head" });
    this.frame = h("div", { class: "tree-frame" }, this.head, this.body);
    this.element = h(
      "div",
      { class: "tree-view" },
      h("div", { class: "tree-bar" }, this.kinds, this.scopes, this.search.element, this.opening),
      this.frame,
      this.profile.element,
    );
  }

  /** Show the selection: another tree if the scope's step or request is another, and the selected call. */
  update() {
    const { engine, step, request } = selected(this.run);
    const call = selectedCall(this.run, this.calls);
    if (this.scope === "request" && request === null) this.scope = "run";
    const wanted = { run: "run", step: `step ${engine} ${step}`, request: `request ${request}` }[this.scope];
    if (wanted !== this.madeFor) {
      this.madeFor = wanted;
      this.make();
    } else if (call === this.call) {
      this.showScopes();
      return;
    }
    this.call = call;
    if (this.kind === "function") {
      this.show();
      return;
    }
    const row = call === null ? null : rowOf(this.top, call);
    if (row) {
      openTo(row);
      this.focused = row;
    }
    this.show();
    if (row) this.scrollTo(row);
  }

  /** Make the tree or the profile of the scope. */
  make() {
    const roots = scopeRoots(this.run, this.calls, this.scope);
    if (this.kind === "function") {
      this.profile.make(roots);
      this.search.refresh();
      return;
    }
    this.top = treeOf(this.calls, roots);
    let [level, depth] = [this.top.rows, 1];
    for (; depth < OPEN_DEPTH && level.length && level.length <= MOST_OPENED_AT_FIRST; depth += 1) {
      for (const row of level) row.open = true;
      level = level.flatMap((row) => row.rows);
    }
    this.focused = null;
    this.search.refresh();
  }

  /** @param {Kind} kind */
  setKind(kind) {
    if (kind === this.kind) return;
    this.kind = kind;
    this.madeFor = "";
    this.update();
    /** @type {HTMLElement | null} */ (this.kinds.querySelector("[aria-pressed=true]"))?.focus({ preventScroll: true });
  }

  /** @param {Scope} scope */
  setScope(scope) {
    this.scope = scope;
    this.update();
  }

  showScopes() {
    const { engine, step, request } = selected(this.run);
    const shown = this.run.engines[engine]?.steps[step];
    const options = SCOPES.map((scope) => {
      const off = scope === "step" ? this.calls.stepCall(engine, step) === null : scope === "request" && request === null;
      const id = request === null ? "" : this.run.requests[request]?.id;
      const text = off ? t(`calls.scope.${scope}.none`) : t(`calls.scope.${scope}`, { n: shown?.n, id });
      return h("option", { value: scope, selected: scope === this.scope, disabled: off }, text);
    });
    this.scopes.replaceChildren(...options);
  }

  show() {
    this.showScopes();
    const isTree = this.kind === "caller";
    this.kinds.replaceChildren(
      ...TREE_KINDS.map((kind) => h("button", { type: "button", "aria-pressed": String(kind === this.kind), onclick: () => this.setKind(kind) }, t(`calls.kind.${kind}`))),
    );
    this.frame.hidden = this.opening.hidden = !isTree;
    this.profile.element.hidden = isTree;
    if (isTree) this.showTree();
    else this.profile.show();
  }

  showTree() {
    /** @param {Order} order */
    const sort = (order, /** @type {string} */ label) =>
      h(
        "button",
        { type: "button", class: "sort", "aria-pressed": String(this.order === order), title: t("calls.sort", { by: t(label) }), onclick: () => this.sortBy(order) },
        t(label),
      );
    this.head.replaceChildren(
      h("span", { class: "entry" }, sort("first", "calls.column.call")),
      h("span", { class: "total" }, sort("total", "calls.total")),
      h("span", { class: "own" }, sort("own", "calls.own")),
      ...(this.calls.hasRecording ? [h("span", { class: "own recording" }, t("calls.recording"))] : []),
      h("span", { class: "bar" }),
    );
    const hadFocus = this.body.contains(document.activeElement);
    this.rows = shownRows(this.top, this.order);
    if (!this.focused || !this.rows.includes(this.focused)) this.focused = this.rows[0] ?? null;
    const matches = new Set(this.search.matches);
    /** Number of rows so far below each row. @type {Map<TreeRow | null, number>} */
    const places = new Map();
    const elements = this.rows.map((row) => {
      const place = (places.get(row.above) ?? 0) + 1;
      places.set(row.above, place);
      return this.rowElement(row, place, matches.has(row));
    });
    this.body.replaceChildren(...elements);
    if (!this.rows.length) this.body.append(h("p", { class: "empty" }, t("calls.none")));
    if (hadFocus) this.focus(this.focused);
  }

  /**
   * @param {TreeRow} row
   * @param {number} place the row's place among those below the same row, from 1
   * @param {boolean} matches
   */
  rowElement(row, place, matches) {
    const { calls } = this;
    const i = row.call;
    const below = row.hasRows;
    const above = /** @type {TreeRow} */ (row.above);
    const where = movedTo(calls, i);
    const name = callName(calls, i);
    const chosen = this.call === i;
    const allFailed = row.failed === row.numbers.length;
    return h(
      "div",
      {
        class: `tree-row${matches ? " match" : ""}${this.search.match === row ? " now" : ""}`,
        role: "treeitem",
        tabindex: row === this.focused ? "0" : "-1",
        "aria-level": row.depth,
        "aria-posinset": place,
        "aria-setsize": above.rows.length,
        "aria-expanded": below ? String(row.open) : null,
        "aria-selected": String(chosen),
        "aria-label": t("calls.row", { name, n: row.numbers.length, total: duration(row.total), own: duration(row.own) }),
        onclick: (/** @type {MouseEvent} */ event) => this.clicked(event, row),
      },
      h(
        "span",
        { class: "entry", style: { "--depth": Math.min(row.depth - 1, MOST_INDENTS) } },
        h("span", { class: "twisty", "aria-hidden": "true" }, below ? (row.open ? "▾" : "▸") : ""),
        h("span", { class: `name${allFailed ? " failed" : ""}` }, allFailed ? `✗ ${name}` : name),
        where && h("span", { class: "where" }, ` ${where}`),
        row.numbers.length > 1 && h("span", { class: "count" }, ` ×${number(row.numbers.length)}`),
        row.failed > 0 && !allFailed && h("span", { class: "count failed" }, ` ✗ ${t("calls.failed.some", { n: row.failed })}`),
        row.numbers.length > 1 && chosen && this.stepper(row),
        h("span", { class: "detail" }, ` ${callDetail(calls, i)}`),
      ),
      h("span", { class: "total" }, duration(row.total)),
      h("span", { class: "own" }, duration(row.own)),
      this.calls.hasRecording && h("span", { class: "own recording" }, row.recording > 0 ? duration(row.recording) : ""),
      timeBar(row, above.total),
    );
  }

  /**
   * Return the buttons that go through the calls of a row.
   * @param {TreeRow} row
   */
  stepper(row) {
    /** @param {string} label @param {string} sign @param {number} by */
    const button = (label, sign, by) =>
      h(
        "button",
        { type: "button", tabindex: "-1", title: t(label), "aria-label": t(label), disabled: row.at + by < 0 || row.at + by >= row.numbers.length, "data-by": by },
        sign,
      );
    return h(
      "span",
      { class: "stepper" },
      button("calls.call.previous", "‹", -1),
      t("calls.call.at", { at: number(row.at + 1), n: number(row.numbers.length) }),
      button("calls.call.next", "›", 1),
    );
  }

  /**
   * @param {MouseEvent} event
   * @param {TreeRow} row
   */
  clicked(event, row) {
    const target = /** @type {HTMLElement} */ (event.target);
    const button = target.closest("button");
    this.focused = row;
    if (button) this.stepThrough(row, Number(button.dataset.by));
    else if (target.closest(".twisty") && row.hasRows) this.toggle(row);
    else this.choose(row);
  }

  /** @param {TreeRow} row */
  choose(row) {
    if (selected(this.run).call === row.call) this.toggle(row);
    else select(this.run, { call: row.call });
    this.focus(this.focused);
  }

  /**
   * @param {TreeRow} row
   * @param {number} by
   */
  stepThrough(row, by) {
    const at = row.at + by;
    if (at < 0 || at >= row.numbers.length) return;
    row.at = at;
    select(this.run, { call: row.call });
  }

  /** @param {TreeRow} row */
  toggle(row) {
    if (!row.hasRows) return;
    row.open = !row.open;
    this.show();
    this.focus(row);
  }

  /** Open all rows below the focused one, as many as can be shown. */
  openBelow() {
    const row = this.focused;
    if (!row) return;
    const all = openBelow(row, MOST_OPENED);
    this.show();
    this.scrollTo(row);
    if (!all) this.search.status.textContent = t("calls.open.some", { n: number(MOST_OPENED) });
  }

  /** Close all rows; the focus goes to the outermost row above the focused one. */
  closeAll() {
    while (this.focused?.above?.above) this.focused = this.focused.above;
    closeAll(this.top);
    this.show();
    if (this.focused) this.scrollTo(this.focused);
  }

  /** @param {Order} order */
  sortBy(order) {
    this.order = order;
    this.search.refresh();
    this.show();
  }

  /** @param {TreeRow | null} row */
  focus(row) {
    const at = row ? this.rows.indexOf(row) : -1;
    if (!row || at < 0) return;
    for (const other of this.body.querySelectorAll("[tabindex='0']")) other.setAttribute("tabindex", "-1");
    const element = /** @type {HTMLElement} */ (this.body.children[at]);
    this.focused = row;
    element.tabIndex = 0;
    element.focus({ preventScroll: true });
    this.scrollTo(row);
  }

  /** @param {TreeRow} row */
  scrollTo(row) {
    const element = /** @type {HTMLElement | undefined} */ (this.body.children[this.rows.indexOf(row)]);
    if (element) scrollInto(this.frame, element, this.head.offsetHeight);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const { rows, focused } = this;
    if (!focused) return;
    const at = rows.indexOf(focused);
    pressViewKey(event, {
      ArrowDown: () => this.focus(rows[at + 1] ?? null),
      ArrowUp: () => this.focus(rows[at - 1] ?? null),
      ArrowRight: () => (focused.hasRows && !focused.open ? this.toggle(focused) : this.focus(focused.open ? rows[at + 1] : null)),
      ArrowLeft: () => (focused.open ? this.toggle(focused) : this.focus(focused.above)),
      Home: () => this.focus(rows[0]),
      End: () => this.focus(rows[rows.length - 1]),
      Enter: () => select(this.run, { call: focused.call }),
      " ": () => select(this.run, { call: focused.call }),
      "*": () => this.openBelow(),
      "-": () => this.closeAll(),
      "[": () => this.stepThrough(focused, -1),
      "]": () => this.stepThrough(focused, 1),
    });
  }

  /** @param {TreeRow} row */
  goToMatch(row) {
    openTo(row);
    this.focused = row;
    this.show();
    this.scrollTo(row);
  }
}

/**
 * Return the call tree, and a function that brings it up to date.
 * @param {Run} run
 * @param {Calls} calls
 */
export function callTree(run, calls) {
  const view = new TreeView(run, calls);
  return { element: view.element, update: () => view.update() };
}

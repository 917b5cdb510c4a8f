/** The sequence diagram: its controls, the drawing with its minimap, and its text for Mermaid. */

import { h } from "../base/dom.js";
import { FindField } from "../base/find_field.js";
import { pressViewKey } from "../base/keys.js";
import { number } from "../base/quantities.js";
import { language, t } from "../base/text.js";
import { isDark } from "../base/theme.js";
import { hasCalls, readCalls } from "../calls/calls.js";
import { shortName } from "../run/names.js";
import { select, selected } from "../run/selection.js";
import { LABEL_SIZE, layOut, TITLE_SIZE } from "./layout.js";
import { toMermaid } from "./mermaid.js";
import { SequenceModel, ZOOMS } from "./model.js";
import { DiagramBody, drawHeads, drawMinimap, minimapPicture, minimapScale, partEdges } from "./svg.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("./layout.js").DiagramLayout} DiagramLayout */
/** @typedef {import("./layout.js").Part} Part */
/** @typedef {import("./model.js").SequenceData} SequenceData */
/** @typedef {import("./model.js").SequenceNode} SequenceNode */
/** @typedef {import("./model.js").Arrow} Arrow */
/** @typedef {import("./model.js").Block} Block */

const MOST_LISTED_REQUESTS = 1000;
const MOST_SHOWN_MERMAID = 100_000;
const COPIED_FOR = 2000;

/** The view of a run's sequence diagram; `element` is its place in the page. */
export class SequenceView {
  /**
   * @param {Run} run
   * @param {SequenceModel} model
   */
  constructor(run, model) {
    this.run = run;
    this.model = model;
    this.measure = textMeasure();
    /** @type {SequenceNode | undefined} */
    this.found = undefined;
    /** @type {SequenceNode | undefined} */
    this.marked = undefined;
    /** Whether the marked node is the one that was clicked, and not found from the selected call. */
    this.clicked = false;
    /** Index of the part that the Tab key reaches. */
    this.active = 0;
    /** @type {number | null | undefined} */
    this.call = undefined;
    /** @type {import("../calls/calls.js").Calls | undefined} */
    this.calls = undefined;
    this.zooms = ZOOMS.map((zoom) =>
      h("button", { type: "button", "data-zoom": zoom, onclick: () => this._zoom(zoom) }, t(`sequence.zoom.${zoom}`)),
    );
    this.follow = /** @type {HTMLSelectElement} */ (this._requestMenu());
    /** @type {FindField<SequenceNode>} */
    this.search = new FindField(t("sequence.find"), {
      find: (text) => this.model.find(text, language()),
      typed: () => this._forgetMatch(),
      show: (call) => this._goToMatch(call),
    });
    this.copy = h("button", { type: "button", id: "copy" }, t("sequence.copy"));
    this.fit = h("button", { type: "button", id: "fit", "aria-pressed": "false" }, t("sequence.fit"));
    this.hint = h("span");
    this.wide = h("p", { id: "wide", hidden: true }, this.fit, " ", this.hint);
    this.summary = h("p", { class: "lead sequence-summary" });
    this.status = h("p", { class: "spans", id: "spans", role: "status", hidden: true });
    this.source = h("pre", { id: "mermaid", tabindex: "0" });
    this.frame = h("div", { class: "sequence", role: "region", "aria-labelledby": "sequence", tabindex: "0" });
    this.minimap = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "minimap", "aria-hidden": "true", title: t("sequence.minimap") }));
    /** The minimap without its frame. @type {HTMLCanvasElement | undefined} */
    this.picture = undefined;
    /** Whether the minimap has the colours of the dark theme. */
    this.dark = false;
    this.element = this._element();
    this._listen();
    this._draw();
  }

  _element() {
    return h(
      "div",
      {},
      h(
        "div",
        { class: "sequence-controls" },
        h("div", { class: "zooms", role: "group", "aria-label": t("sequence.zoom") }, ...this.zooms),
        h("label", {}, t("sequence.follow"), " ", this.follow),
        this.search.element,
        this.copy,
      ),
      this.summary,
      this.wide,
      h("div", { class: "sequence-frame" }, this.frame, h("div", { class: "minimap-frame" }, this.minimap)),
      this.status,
      h("details", { class: "source" }, h("summary", {}, t("sequence.mermaid")), h("p", {}, t("sequence.mermaid.lead")), this.source),
    );
  }

  _requestMenu() {
    const options = this.run.requests
      .slice(0, MOST_LISTED_REQUESTS)
      .map((request, r) => h("option", { value: r }, shortName(request)));
    const change = () => {
      const value = this.follow.value;
      this._follow(value === "" ? null : Number(value));
      if (value !== "") select(this.run, { request: Number(value) });
    };
    return h("select", { onchange: change, "aria-label": t("sequence.follow") }, h("option", { value: "" }, t("sequence.everything")), ...options);
  }

  _listen() {
    this.copy.addEventListener("click", () => this._copy());
    this.fit.addEventListener("click", () => {
      this.fit.setAttribute("aria-pressed", String(this.frame.classList.toggle("fitted")));
      this._resize();
    });
    this.frame.addEventListener("scroll", () => this._scrolled());
    this.frame.addEventListener("click", (event) => this._click(event));
    this.frame.addEventListener("keydown", (event) => this._key(event));
    const drag = (/** @type {PointerEvent} */ event) => {
      if (event.buttons & 1) this._scrollTo(event);
    };
    this.minimap.addEventListener("pointerdown", (event) => {
      this.minimap.setPointerCapture(event.pointerId);
      drag(event);
    });
    this.minimap.addEventListener("pointermove", drag);
    new ResizeObserver(() => this._resize()).observe(this.frame);
    window.onbeforeprint = () => this.body?.draw(0, this.layout?.height ?? 0);
  }

  /** Show what the page has selected, in the theme's colours: mark its call, and follow its request if one is followed. */
  update() {
    const { call, request } = selected(this.run);
    if (this.model.request !== null && request !== null && request !== this.model.request) this._follow(request);
    if (call !== this.call) {
      this.call = call;
      this._mark();
      this._redraw();
      if (call !== null && !this.calls && hasCalls()) void this._readCallers();
    } else if (this.dark !== isDark()) this._drawMinimap();
  }

  /** Mark the nearest drawn caller of a call that is not drawn itself. */
  async _readCallers() {
    this.calls = await readCalls();
    if (this.clicked) return;
    this._mark();
    this._redraw();
  }

  /** @param {string} zoom */
  _zoom(zoom) {
    this.model.setZoom(zoom);
    this._draw();
    this.frame.scrollTop = 0;
  }

  /** @param {number | null} request */
  _follow(request) {
    this.model.follow(request);
    this._draw();
    this.frame.scrollTop = 0;
    this.search.refresh();
    this._forgetMatch();
  }

  /** Draw the view anew: other items are drawn than before. */
  _draw() {
    const view = this.model.view(language());
    this.layout = layOut(view, this.measure);
    const label = view.lifelines.map((one) => `${one.label} ${one.below}`.trim()).join(", ");
    this.body = new DiagramBody(this.layout, label, (part, index) => this._describe(part, index));
    this.active = Math.min(this.active, Math.max(this.layout.parts.length - 1, 0));
    this.frame.replaceChildren(drawHeads(this.layout), this.body.element);
    this.mermaid = toMermaid(view);
    this.source.replaceChildren(h("code", {}, this.mermaid.slice(0, MOST_SHOWN_MERMAID), this.mermaid.length > MOST_SHOWN_MERMAID && "…"));
    for (const button of this.zooms) button.setAttribute("aria-pressed", String(button.dataset.zoom === this.model.zoom));
    const { request } = this.model;
    this.follow.value = request === null ? "" : String(request);
    const summary = [t("sequence.sentence", { text: this.model.count(view.arrows) })];
    if (view.left) summary.push(t("sequence.sentence", { text: view.left }));
    if (request !== null) summary.push(t("sequence.followed", { id: shortName(this.run.requests[request]) }));
    if (!this.layout.parts.length) summary.push(t("sequence.nothing"));
    this.summary.textContent = summary.join(" ");
    this._mark();
    this._resize();
  }

  /** Draw the same items again, with other marks. */
  _redraw() {
    const { body } = this;
    if (body && body.to > body.from) body.draw(body.from, body.to);
    this._drawMinimap();
  }

  _mark() {
    this.clicked = false;
    this.marked = this.call === null || this.call === undefined ? undefined : this.model.nearest(this.call, (call) => this.calls?.parent[call] ?? -1);
  }

  /**
   * @param {Part} part
   * @param {number} index
   */
  _describe({ item }, index) {
    const { node, toggle, text } = /** @type {Arrow | Block} */ (item);
    const classes = ["arrow", node === this.marked && "chosen", node === this.found && "found"];
    const marks = { class: classes.filter(Boolean).join(" "), tabindex: index === this.active ? 0 : -1, role: "button" };
    const expanded = toggle ? String(toggle === "close") : null;
    return { ...marks, "aria-expanded": expanded, "aria-label": text, title: this._details(node, text) };
  }

  /**
   * Return an arrow's whole text, its calls, and the number of calls inside.
   * @param {SequenceNode} node
   * @param {string} text
   */
  _details(node, text) {
    const lines = [text];
    if (node.n) lines.push(node.c ? t("sequence.calls", { n: node.c, first: number(node.n[0]) }) : t("sequence.call", { first: number(node.n[0]) }));
    const more = this.model.sizeInside(node);
    if (more > 0) lines.push(t("sequence.inside", { n: more }));
    if (node.h) lines.push(t("sequence.hidden", { n: node.h }));
    return lines.join("\n");
  }

  /** @param {MouseEvent} event */
  _click(event) {
    const target = /** @type {Element} */ (event.target);
    const element = /** @type {SVGElement | null} */ (target.closest("[data-part]"));
    if (!element) return;
    this.active = Number(element.dataset.part);
    const { node, toggle } = this._item(this.active);
    if (toggle && (target.classList.contains("toggle") || node.g)) this._toggle(this.active);
    else this._select(this.active);
    this.body?.part(this.active)?.focus({ preventScroll: true });
  }

  /**
   * @param {number} index
   * @returns {Arrow | Block}
   */
  _item(index) {
    return /** @type {Arrow | Block} */ (/** @type {DiagramLayout} */ (this.layout).parts[index].item);
  }

  /** @param {number} index */
  _select(index) {
    const { node, text } = this._item(index);
    this.status.textContent = this._details(node, text);
    this.status.hidden = false;
    const found = this.model.selection(node);
    if (Object.keys(found).length) select(this.run, found);
    this.marked = node;
    this.clicked = true;
    this._redraw();
  }

  /**
   * Open or close a part, which stays where it is in the window.
   * @param {number} index
   */
  _toggle(index) {
    const { node, toggle } = this._item(index);
    const before = this.layout?.parts[index].top ?? 0;
    this.model.toggle(node, toggle);
    this._draw();
    this.active = Math.max(this._indexOf(node), 0);
    this.frame.scrollTop += ((this.layout?.parts[this.active]?.top ?? before) - before) * this._scale();
    this._redraw();
    this.body?.part(this.active)?.focus({ preventScroll: true });
  }

  /** @param {SequenceNode | undefined} node */
  _indexOf(node) {
    return this.layout?.parts.findIndex(({ item }) => "node" in item && item.node === node) ?? -1;
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const parts = this.layout?.parts.length ?? 0;
    if (!parts || !(/** @type {Element} */ (event.target).closest("[data-part]"))) return;
    const { node, toggle } = this._item(this.active);
    const open = () => this._toggle(this.active);
    const choose = () => this._select(this.active);
    const close = () => this._closeAround(node);
    pressViewKey(event, {
      ArrowDown: () => this._moveTo(this.active + 1),
      ArrowUp: () => this._moveTo(this.active - 1),
      Home: () => this._moveTo(0),
      End: () => this._moveTo(parts - 1),
      Enter: toggle === "open" ? open : choose,
      " ": choose,
      ...(toggle === "open" && { ArrowRight: open }),
      ArrowLeft: close,
      Escape: close,
    });
  }

  /** @param {number} index */
  _moveTo(index) {
    this.active = Math.max(0, Math.min(index, (this.layout?.parts.length ?? 1) - 1));
    this._scrollToPart(this.active);
    this._redraw();
    this.body?.part(this.active)?.focus({ preventScroll: true });
  }

  /**
   * Close a node, or the nearest one around it that has something inside.
   * @param {SequenceNode} node
   */
  _closeAround(node) {
    const closable = this.model.closable(node);
    const index = this._indexOf(closable);
    if (!closable || index < 0) return;
    this.active = index;
    this.model.toggle(closable, "close");
    this._draw();
    this._moveTo(Math.max(this._indexOf(closable), 0));
  }

  _forgetMatch() {
    this.found = undefined;
    this._redraw();
  }

  /**
   * Show a call of the whole diagram that was found.
   * @param {SequenceNode} call
   */
  _goToMatch(call) {
    this.found = this.model.reveal(call);
    this._draw();
    const index = this._indexOf(this.found);
    if (index < 0) return;
    this.active = index;
    this._scrollToPart(index);
    this._redraw();
  }

  async _copy() {
    const text = this.mermaid ?? "";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      /** @type {HTMLDetailsElement} */ (this.source.parentElement).open = true;
      this.source.textContent = text;
      window.getSelection()?.selectAllChildren(this.source);
      if (!document.execCommand("copy")) return;
    }
    this.copy.textContent = t("sequence.copied");
    setTimeout(() => {
      this.copy.textContent = t("sequence.copy");
    }, COPIED_FOR);
  }

  /** Return how large the drawing is in the window: 1, or less if it is fitted to the width. */
  _scale() {
    return this.frame.classList.contains("fitted") ? this.frame.clientWidth / (this.layout?.width ?? 1) : 1;
  }

  /** Return what is in the window, in the diagram's pixels. */
  _seen() {
    const scale = this._scale();
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.frame;
    const heads = (this.layout?.headHeight ?? 0) * scale;
    return { x: scrollLeft / scale, y: scrollTop / scale, width: clientWidth / scale, height: (clientHeight - heads) / scale };
  }

  _resize() {
    const { frame, layout } = this;
    if (!layout) return;
    const fitted = frame.classList.contains("fitted");
    this.wide.hidden = !fitted && frame.scrollWidth <= frame.clientWidth;
    this.hint.textContent = t(fitted ? "sequence.fitted" : "sequence.wide");
    /** @type {HTMLElement} */ (this.minimap.parentElement).hidden = frame.scrollHeight <= frame.clientHeight && frame.scrollWidth <= frame.clientWidth;
    this._scrolled();
    this._drawMinimap();
  }

  _scrolled() {
    const { y, height } = this._seen();
    this.body?.show(y, y + height);
    this._frameMinimap();
  }

  /** Draw the minimap anew, and what is in the window on it. */
  _drawMinimap() {
    if (!this.layout || this.minimap.parentElement?.hidden) return;
    this.dark = isDark();
    const marked = this.layout.parts.filter(({ item }) => "node" in item && (item.node === this.marked || item.node === this.found));
    this.picture = minimapPicture(this.minimap, this.layout, new Set(marked));
    this._frameMinimap();
  }

  /** Move the minimap's frame to what is in the window: while the diagram scrolls, nothing else changes. */
  _frameMinimap() {
    if (!this.layout || !this.picture || this.minimap.parentElement?.hidden) return;
    drawMinimap(this.minimap, this.layout, this.picture, this._seen());
  }

  /** @param {PointerEvent} event */
  _scrollTo(event) {
    if (!this.layout) return;
    const [across, down] = minimapScale(this.minimap, this.layout);
    const { width, height } = this._seen();
    const scale = this._scale();
    this.frame.scrollTo((event.offsetX / across - width / 2) * scale, (event.offsetY / down - height / 2) * scale);
  }

  /** @param {number} index */
  _scrollToPart(index) {
    const part = this.layout?.parts[index];
    if (!part) return;
    const { x, y, width, height } = this._seen();
    const scale = this._scale();
    const [left, right] = partEdges(part);
    if (part.top < y || part.bottom > y + height) this.frame.scrollTop = (part.top - height / 3) * scale;
    if (left < x || right > x + width) this.frame.scrollLeft = (left - 40) * scale;
    this._scrolled();
  }
}

/**
 * Return a function that measures texts in the diagram's fonts, each text once.
 * @returns {import("./layout.js").Measure}
 */
function textMeasure() {
  const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  const family = getComputedStyle(document.documentElement).getPropertyValue("--mono");
  const fonts = { title: `600 ${TITLE_SIZE}px ${family}`, label: `${LABEL_SIZE}px ${family}` };
  const known = { title: /** @type {Map<string, number>} */ (new Map()), label: /** @type {Map<string, number>} */ (new Map()) };
  return (text, size = "label") => {
    let width = known[size].get(text);
    if (width === undefined) {
      context.font = fonts[size];
      width = context.measureText(text).width;
      known[size].set(text, width);
    }
    return width;
  };
}

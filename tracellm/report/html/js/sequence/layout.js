/**
 * The places of everything in a sequence diagram, in pixels: heads, lifelines, arrows, activations, notes and loops.
 *
 * `layOut` places lifelines as close together as the texts between them allow, then walks down the diagram once.
 *
 * @typedef {import("./model.js").DiagramView} DiagramView
 * @typedef {import("./model.js").DiagramItem} DiagramItem
 * @typedef {import("./model.js").Arrow} Arrow
 * @typedef {import("./model.js").Block} Block
 * @typedef {import("./model.js").SequenceNode} SequenceNode
 * @typedef {(text: string, size?: "title" | "label") => number} Measure returns the width of a text
 *
 * @typedef {object} Shape
 * @property {"rect" | "path" | "text"} tag
 * @property {string} kind its class
 * @property {number} x left edge, or the middle of a centred text
 * @property {number} y
 * @property {number} width
 * @property {number} height
 * @property {string} [d] of a path
 * @property {string} [text]
 *
 * @typedef {object} Part what is drawn of one item, and can be selected
 * @property {DiagramItem} item
 * @property {Shape[]} shapes
 * @property {number} top
 * @property {number} bottom
 *
 * @typedef {object} DiagramLayout
 * @property {number} width
 * @property {number} height
 * @property {number} headHeight
 * @property {Shape[]} heads
 * @property {Shape[]} under frames and bands behind the lifelines
 * @property {Shape[]} stems
 * @property {Shape[]} bars activations
 * @property {Part[]} parts from top to bottom
 */

import { usedLifelines } from "./model.js";

const DIAGRAM_MARGIN = 16;
const ACTIVATION_WIDTH = 8;
const LINE_HEIGHT = 15;
export const LABEL_SIZE = 11.5;
export const TITLE_SIZE = 13;
const WIDEST_LABEL = 180;
const MOST_LINES = 3;
const NOTE_LINES = 10;
const LOOP_LABEL = 120;
const BOUNDARY_WIDTH = 36;
const NARROWEST_DIAGRAM = 260;
const MARK_WIDTH = 14;

/** Pieces between which a line may break: at blanks, after punctuation, and around characters beyond ASCII. */
const LABEL_PIECES = /\s+|[!-~…]*?[({=,;:)\]}>]+|[!-~…]+|./gsu;
/** Words of at most 48 characters; longer ones are broken. */
const LONGEST_WORDS = /.{1,48}/gsu;

/**
 * Return a text in lines of at most `widest` pixels. A word is never broken, unless it has more than 48 characters.
 * Text beyond `most` lines is cut, with an ellipsis.
 * @param {string} text
 * @param {number} widest
 * @param {number} most
 * @param {Measure} measure
 */
export function wrapText(text, widest, most, measure) {
  const lines = [];
  let line = "";
  for (const piece of (text.match(LABEL_PIECES) ?? []).flatMap((word) => word.match(LONGEST_WORDS) ?? [])) {
    if (line.trim() && measure((line + piece).trimEnd()) > widest) {
      lines.push(line.trimEnd());
      line = piece.trimStart();
    } else line += piece;
  }
  if (line.trim() || !lines.length) lines.push(line.trimEnd());
  if (lines.length <= most) return lines;
  return [...lines.slice(0, most - 1), `${lines[most - 1]}…`];
}

/**
 * @param {DiagramView} view
 * @param {Measure} measure
 * @returns {DiagramLayout}
 */
export function layOut(view, measure) {
  return new DiagramWalk(view, measure).result();
}

class DiagramWalk {
  /**
   * @param {DiagramView} view
   * @param {Measure} measure
   */
  constructor(view, measure) {
    this.view = view;
    this.measure = measure;
    /** @type {Map<number, number>} place of each lifeline, from the left */
    this.order = new Map(view.lifelines.map(({ key }, place) => [key, place]));
    this.headWidths = view.lifelines.map(({ label, below }) => Math.max(measure(label, "title"), measure(below)) + 24);
    /** @type {number[]} */
    this.middles = [];
    this.width = this._columns();
    this.y = 12;
    /** @type {Map<number, number[]>} start of each open activation */
    this.open = new Map(view.lifelines.map(({ key }) => [key, []]));
    /** @type {Shape[]} */
    this.under = [];
    /** @type {Shape[]} */
    this.bars = [];
    /** @type {Part[]} */
    this.parts = [];
  }

  /** @returns {DiagramLayout} */
  result() {
    this._items(this.view.items, 0);
    const height = this.y + 10;
    const stems = this.middles.map((x) => pathShape("stem", x, 0, x, height, `M${tenths(x)} 0V${tenths(height)}`));
    stems.push(...this._boundaries().map((x) => pathShape("boundary", x, 0, x, height, `M${tenths(x)} 0V${tenths(height)}`)));
    const { heads, headHeight } = this._heads();
    return { width: this.width, height, headHeight, heads, under: this.under, stems, bars: this.bars, parts: this.parts };
  }

  /**
   * Return the width that a label takes, in lines.
   * @param {string} text
   * @param {number} [widest]
   * @param {number} [most]
   */
  _label(text, widest = WIDEST_LABEL, most = MOST_LINES) {
    const lines = wrapText(text, widest, most, this.measure);
    return { lines, width: Math.max(...lines.map((line) => this.measure(line))) };
  }

  /** @param {number} key */
  _place(key) {
    return this.order.get(key) ?? 0;
  }

  /** @param {number} key */
  _x(key) {
    return this.middles[this._place(key)] ?? DIAGRAM_MARGIN;
  }

  /** Place each lifeline as far left as the heads and labels before it permit, and return the drawing's width. */
  _columns() {
    /** @type {Map<number, number>[]} pixels between two lifelines' middles, by the right one and the left one */
    const needs = this.view.lifelines.map(() => new Map());
    /** @type {{left: number, width: number}[]} texts that extend to the right of a lifeline's middle */
    const beside = [];
    for (const { item, depth } of flatItems(this.view.items)) {
      if (item.kind === "close" || item.kind === "phase") continue;
      if (item.kind === "loop") {
        const first = Math.min(...[...usedLifelines(item.items)].map((key) => this._place(key)), this.headWidths.length - 1);
        beside.push({ left: first, width: LOOP_LABEL + 60 + 6 * depth });
        continue;
      }
      const isArrow = "source" in item;
      const [left, right] = (isArrow ? [item.source, item.target] : [item.first, item.last]).map((key) => this._place(key)).sort((a, b) => a - b);
      const width = isArrow ? this._label(item.text).width + MARK_WIDTH : this._block(item, 0).width;
      if (isArrow && left === right) {
        beside.push({ left, width: width + 36 });
        this._need(needs, left, left + 1, Math.min(width + 34, 130));
      } else if (isArrow) this._need(needs, left, right, width + 34);
      else {
        beside.push({ left: right, width: width / 2 + 12 });
        if (left < right) this._need(needs, left, right, width - 40);
      }
    }
    const boxStarts = new Set(this.view.boxes.map(({ lifelines }) => this._place(lifelines[0])));
    this.headWidths.forEach((head, place) => {
      if (!place) {
        this.middles.push(DIAGRAM_MARGIN + head / 2 + 8);
        return;
      }
      let at = this.middles[place - 1] + (this.headWidths[place - 1] + head) / 2 + 14 + (boxStarts.has(place) ? BOUNDARY_WIDTH : 0);
      for (const [left, wanted] of needs[place]) at = Math.max(at, this.middles[left] + wanted);
      this.middles.push(at);
    });
    const last = this.middles.length - 1;
    const heads = last < 0 ? 0 : this.middles[last] + this.headWidths[last] / 2;
    const edge = beside.reduce((most, { left, width }) => Math.max(most, (this.middles[left] ?? 0) + width), heads);
    return Math.ceil(Math.max(edge + DIAGRAM_MARGIN + 8, NARROWEST_DIAGRAM));
  }

  /**
   * @param {Map<number, number>[]} needs
   * @param {number} left
   * @param {number} right
   * @param {number} wanted
   */
  _need(needs, left, right, wanted) {
    needs[right]?.set(left, Math.max(needs[right].get(left) ?? 0, wanted));
  }

  _heads() {
    const top = this.view.boxes.length ? 22 : 4;
    const tall = this.view.lifelines.some(({ below }) => below) ? 44 : 28;
    /** @type {Shape[]} */
    const heads = [];
    for (const { label, lifelines } of this.view.boxes) {
      const [first, last] = [this._place(lifelines[0]), this._place(lifelines[lifelines.length - 1])];
      const left = this.middles[first] - this.headWidths[first] / 2 - 6;
      const right = this.middles[last] + this.headWidths[last] / 2 + 6;
      heads.push(rectShape("box", left, 2, right - left, top + tall + 2));
      heads.push(textShape("boxname", left + 8, 16, this._cut(label, right - left - 12), this.measure(label)));
    }
    this.view.lifelines.forEach(({ label, below }, place) => {
      const [x, width] = [this.middles[place], this.headWidths[place]];
      heads.push(rectShape("lifeline", x - width / 2, top, width, tall));
      const middle = top + tall / 2 - (below ? 8 : 0);
      heads.push(textShape("name", x, middle + TITLE_SIZE * 0.36, label, this.measure(label, "title")));
      if (below) heads.push(textShape("below", x, middle + 16 + LABEL_SIZE * 0.36, below, this.measure(below)));
    });
    return { heads, headHeight: top + tall + 6 };
  }

  /**
   * @param {string} text
   * @param {number} widest
   */
  _cut(text, widest) {
    if (this.measure(text) <= widest) return text;
    let fits = text;
    while (fits && this.measure(`${fits}…`) > widest) fits = fits.slice(0, -1);
    return `${fits}…`;
  }

  /** Return where a line separates the boxes of two processes. */
  _boundaries() {
    return this.view.boxes.slice(1).map((box, i) => {
      const before = this.view.boxes[i].lifelines;
      const [left, right] = [this._place(before[before.length - 1]), this._place(box.lifelines[0])];
      return (this.middles[left] + this.headWidths[left] / 2 + this.middles[right] - this.headWidths[right] / 2) / 2;
    });
  }

  /**
   * @param {DiagramItem[]} items
   * @param {number} depth
   */
  _items(items, depth) {
    for (const item of items) {
      if (item.kind === "close") this._close(item.lifeline);
      else if ("source" in item) this._arrow(item);
      else if (item.kind === "phase") this._phase(item);
      else if (item.kind === "loop") this._loop(item, depth);
      else this._note(item);
    }
  }

  /**
   * Return the x at which an arrow meets a lifeline: at the side of its innermost activation.
   * @param {number} key
   * @param {number} side
   */
  _edge(key, side) {
    const depth = this.open.get(key)?.length ?? 0;
    return this._x(key) + (depth ? (depth - 1) * 3 + (side * ACTIVATION_WIDTH) / 2 : 0);
  }

  /** @param {number} key */
  _close(key) {
    const open = this.open.get(key) ?? [];
    const began = open.pop() ?? this.y;
    this.bars.push(rectShape("activation", this._x(key) - ACTIVATION_WIDTH / 2 + open.length * 3, began, ACTIVATION_WIDTH, Math.max(this.y - began, 6)));
  }

  /** @param {Arrow} arrow */
  _arrow(arrow) {
    const begun = this.y;
    const room = Math.max(WIDEST_LABEL, Math.abs(this._x(arrow.target) - this._x(arrow.source)) - 40 - MARK_WIDTH);
    const { lines } = this._label(arrow.text, room);
    /** @type {Shape[]} */
    const shapes = [];
    if (arrow.source === arrow.target) this._toItself(arrow, lines, shapes);
    else this._across(arrow, lines, shapes);
    this.parts.push({ item: arrow, shapes, top: begun, bottom: this.y });
  }

  /**
   * @param {Arrow} arrow
   * @param {string[]} lines
   * @param {Shape[]} shapes
   */
  _across(arrow, lines, shapes) {
    const side = this._x(arrow.target) > this._x(arrow.source) ? 1 : -1;
    const start = this._edge(arrow.source, side);
    const baseline = this.y + LINE_HEIGHT - 3;
    this.y += lines.length * LINE_HEIGHT + 5;
    if (arrow.opens) this.open.get(arrow.target)?.push(this.y);
    const end = this._edge(arrow.target, -side);
    const middle = (start + end) / 2 + (arrow.toggle ? MARK_WIDTH / 2 : 0);
    shapes.push(...this._lines(`label ${arrow.kind} middle`, middle, baseline, lines));
    if (arrow.toggle) shapes.push(this._mark(arrow.toggle, middle - this.measure(lines[0]) / 2 - MARK_WIDTH, baseline));
    shapes.push(pathShape(arrow.kind, Math.min(start, end), this.y, Math.max(start, end), this.y, `M${tenths(start)} ${tenths(this.y)}H${tenths(end - side)}`));
    shapes.push(tipShape(arrow.kind, end, this.y, side));
    if (arrow.closes) this._close(arrow.source);
    this.y += 9;
  }

  /**
   * @param {Arrow} arrow
   * @param {string[]} lines
   * @param {Shape[]} shapes
   */
  _toItself(arrow, lines, shapes) {
    const start = this._edge(arrow.source, 1);
    const tall = Math.max(lines.length * LINE_HEIGHT, 16);
    const top = this.y + 6;
    if (arrow.closes) this._close(arrow.source);
    if (arrow.opens) {
      this.y = top + tall;
      this.open.get(arrow.target)?.push(this.y);
    }
    const end = this._edge(arrow.target, 1);
    const out = Math.max(start, end) + 18;
    shapes.push(pathShape(arrow.kind, Math.min(start, end), top, out, top + tall, `M${tenths(start)} ${tenths(top)}H${tenths(out)}V${tenths(top + tall)}H${tenths(end + 1)}`));
    shapes.push(tipShape(arrow.kind, end, top + tall, -1));
    const baseline = top + tall / 2 - ((lines.length - 1) * LINE_HEIGHT) / 2 + LABEL_SIZE * 0.35;
    shapes.push(...this._lines(`label ${arrow.kind}`, out + 6 + (arrow.toggle ? MARK_WIDTH : 0), baseline, lines));
    if (arrow.toggle) shapes.push(this._mark(arrow.toggle, out + 4, baseline));
    this.y = top + tall + 9;
  }

  /**
   * @param {string} kind
   * @param {number} x
   * @param {number} y
   * @param {string[]} lines
   */
  _lines(kind, x, y, lines) {
    return lines.map((line, i) => textShape(kind, x, y + i * LINE_HEIGHT, line, this.measure(line)));
  }

  /**
   * @param {"open" | "close"} toggle
   * @param {number} x
   * @param {number} y
   */
  _mark(toggle, x, y) {
    return textShape(`toggle ${toggle}`, x, y, toggle === "open" ? "▸" : "▾", 10);
  }

  /**
   * Return the lines of a note or of a closed group, and the width of its frame.
   * @param {Block} block
   * @param {number} room
   */
  _block(block, room) {
    const most = block.kind === "folded" ? 3 : NOTE_LINES;
    const lines = block.text.split("\n").flatMap((text) => wrapText(text, Math.max(240, room), most, this.measure)).slice(0, most);
    const widest = Math.max(...lines.map((line) => this.measure(line)));
    return { lines, width: widest + 18 + (block.toggle ? 2 * MARK_WIDTH : 0) + (block.kind === "folded" ? 6 : 0) };
  }

  /** @param {Block} block */
  _note(block) {
    const [left, right] = [this._x(block.first), this._x(block.last)].sort((a, b) => a - b);
    const { lines, width } = this._block(block, right - left + 40);
    const wide = Math.max(right - left + 60, width);
    const x = Math.max(DIAGRAM_MARGIN / 2, Math.min((left + right) / 2 - wide / 2, this.width - DIAGRAM_MARGIN / 2 - wide));
    const tall = lines.length * LINE_HEIGHT + 8;
    const shapes = [rectShape(block.kind === "folded" ? "folded" : "note", x, this.y + 3, wide, tall)];
    if (block.kind === "folded") shapes.push(rectShape("stacked", x + 4, this.y + 7, wide, tall));
    shapes.reverse();
    shapes.push(...this._lines("label noted middle", x + wide / 2, this.y + LINE_HEIGHT + 3, lines));
    if (block.toggle) shapes.push(this._mark(block.toggle, x + 6, this.y + LINE_HEIGHT + 3));
    this.parts.push({ item: block, shapes, top: this.y, bottom: this.y + tall + 8 });
    this.y += tall + 12;
  }

  /** @param {Block} phase */
  _phase(phase) {
    const { lines } = this._label(phase.text, this.width - 4 * DIAGRAM_MARGIN, 2);
    const tall = lines.length * LINE_HEIGHT + 12;
    this.y += 8;
    const shapes = [rectShape("phase", DIAGRAM_MARGIN / 2, this.y, this.width - DIAGRAM_MARGIN, tall)];
    shapes.push(...this._lines("label phase", DIAGRAM_MARGIN + 4 + (phase.toggle ? MARK_WIDTH : 0), this.y + LINE_HEIGHT + 1, lines));
    if (phase.toggle) shapes.push(this._mark(phase.toggle, DIAGRAM_MARGIN, this.y + LINE_HEIGHT + 1));
    this.parts.push({ item: phase, shapes, top: this.y, bottom: this.y + tall });
    this.y += tall + 10;
  }

  /**
   * @param {Block} loop
   * @param {number} depth
   */
  _loop(loop, depth) {
    const xs = [...usedLifelines(loop.items)].map((key) => this._x(key));
    const inset = depth * 6;
    let left = 4 + inset;
    let right = this.width - 4;
    if (xs.length) {
      left = Math.max(Math.min(...xs) - 24, 4) + inset;
      right = Math.max(this._reach(loop.items), Math.max(...xs) + 40) - inset;
    }
    const top = this.y + 4;
    const tag = this.measure("loop") + 14 + MARK_WIDTH;
    const { lines, width } = this._label(loop.text, Math.max(right - left - tag - 16, LOOP_LABEL), 2);
    right = Math.min(Math.max(right, left + tag + 16 + width), this.width - 4);
    const d = `M${tenths(left)} ${tenths(top)}h${tenths(tag)}v12l-6 6H${tenths(left)}Z`;
    const shapes = [pathShape("tag", left, top, left + tag, top + 18, d), textShape("label tag", left + 6 + MARK_WIDTH, top + 13, "loop", tag - 14)];
    if (loop.toggle) shapes.push(this._mark(loop.toggle, left + 5, top + 13));
    shapes.push(...this._lines("label loop", left + tag + 8, top + 13, lines));
    this.parts.push({ item: loop, shapes, top, bottom: top + lines.length * LINE_HEIGHT + 8 });
    this.y = top + lines.length * LINE_HEIGHT + 12;
    this._items(loop.items, depth + 1);
    this.under.push(rectShape("frame", left, top, right - left, this.y - top + 4));
    this.y += 14;
  }

  /**
   * Return the right edge of the labels of calls to themselves; 0 without any.
   * @param {DiagramItem[]} items
   */
  _reach(items) {
    let reach = 0;
    for (const { item } of flatItems(items)) {
      if ("source" in item && item.source === item.target) {
        reach = Math.max(reach, this._x(item.source) + this._label(item.text).width + 40 + MARK_WIDTH);
      }
    }
    return reach;
  }
}

/**
 * Yield all items, those in loops too, with the number of loops around each.
 * @param {DiagramItem[]} items
 * @param {number} [depth]
 * @returns {Generator<{item: DiagramItem, depth: number}>}
 */
function* flatItems(items, depth = 0) {
  for (const item of items) {
    yield { item, depth };
    if ("items" in item) yield* flatItems(item.items, depth + 1);
  }
}

/** @param {number} value */
function tenths(value) {
  return Math.round(value * 10) / 10;
}

/**
 * @param {string} kind
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @returns {Shape}
 */
function rectShape(kind, x, y, width, height) {
  return { tag: "rect", kind, x: tenths(x), y: tenths(y), width: tenths(width), height: tenths(height) };
}

/**
 * @param {string} kind
 * @param {number} left
 * @param {number} top
 * @param {number} right
 * @param {number} bottom
 * @param {string} d
 * @returns {Shape}
 */
function pathShape(kind, left, top, right, bottom, d) {
  return { tag: "path", kind, x: tenths(left), y: tenths(top), width: tenths(right - left), height: tenths(bottom - top), d };
}

/**
 * @param {string} kind
 * @param {number} x
 * @param {number} y
 * @param {string} text
 * @param {number} width
 * @returns {Shape}
 */
function textShape(kind, x, y, text, width) {
  return { tag: "text", kind, x: tenths(x), y: tenths(y), width: tenths(width), height: LINE_HEIGHT, text };
}

/**
 * Return the head of an arrow.
 * @param {string} kind
 * @param {number} x
 * @param {number} y
 * @param {number} side 1 for an arrow to the right, -1 for one to the left
 */
function tipShape(kind, x, y, side) {
  const back = tenths(x - side * 8);
  const [top, bottom] = [tenths(y - 4), tenths(y + 4)];
  const [left, right] = [Math.min(x, back), Math.max(x, back)];
  if (kind === "call") return pathShape("tip", left, top, right, bottom, `M${tenths(x)} ${tenths(y)}L${back} ${top}V${bottom}Z`);
  if (kind !== "error") {
    return pathShape(`${kind} solid`, left, top, right, bottom, `M${back} ${top}L${tenths(x)} ${tenths(y)}L${back} ${bottom}`);
  }
  const d = `M${back - 4} ${top}L${back + 4} ${bottom}M${back - 4} ${bottom}L${back + 4} ${top}`;
  return pathShape("error solid", back - 4, top, back + 4, bottom, d);
}

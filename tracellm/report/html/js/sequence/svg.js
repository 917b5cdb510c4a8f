/** The sequence diagram as SVG and its minimap, drawn from a layout; only the part of a long diagram near the window. */

import { s } from "../base/dom.js";

/** @typedef {import("./layout.js").DiagramLayout} DiagramLayout */
/** @typedef {import("./layout.js").Part} Part */
/** @typedef {import("./layout.js").Shape} Shape */

/** Most parts that are drawn all at once; a longer diagram is drawn only near the window. */
const MOST_DRAWN_PARTS = 1500;
/** Pixels drawn above and below the window. */
const DRAWN_AROUND = 2000;

/** Largest ratio of the minimap's vertical to its horizontal scale. */
const MOST_STRETCHED = 3;

/** @param {DiagramLayout} layout */
export function drawHeads(layout) {
  const { width, headHeight } = layout;
  return s("svg", { class: "heads", width, height: headHeight, viewBox: `0 0 ${width} ${headHeight}`, "aria-hidden": "true" }, ...layout.heads.map(drawShape));
}

/** The drawing below the heads. */
export class DiagramBody {
  /**
   * @param {DiagramLayout} layout
   * @param {string} label
   * @param {(part: Part, index: number) => Record<string, any>} describe returns attributes of a part, and its `title`
   */
  constructor(layout, label, describe) {
    this.layout = layout;
    this.describe = describe;
    const { width, height } = layout;
    this.element = s("svg", { class: "lifelines", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    this.from = Infinity;
    this.to = -Infinity;
  }

  /**
   * Draw what is between two heights, and more around it; nothing if it is drawn already.
   * @param {number} top
   * @param {number} bottom
   */
  show(top, bottom) {
    if (this.from <= Math.max(top, 0) && this.to >= Math.min(bottom, this.layout.height)) return;
    const all = this.layout.parts.length <= MOST_DRAWN_PARTS;
    this.draw(all ? 0 : Math.max(0, top - DRAWN_AROUND), all ? this.layout.height : bottom + DRAWN_AROUND);
  }

  /**
   * Draw what is between two heights.
   * @param {number} from
   * @param {number} to
   */
  draw(from, to) {
    [this.from, this.to] = [from, to];
    const { under, stems, bars, parts } = this.layout;
    const near = (/** @type {Shape} */ shape) => shape.y <= to && shape.y + shape.height >= from;
    const active = document.activeElement instanceof SVGElement && this.element.contains(document.activeElement) ? document.activeElement.dataset.part : undefined;
    this.element.replaceChildren(
      ...[...under.filter(near), ...stems, ...bars.filter(near)].map(drawShape),
      ...parts.flatMap((part, index) => (part.top <= to && part.bottom >= from ? [this._part(part, index)] : [])),
    );
    if (active !== undefined) this.part(Number(active))?.focus({ preventScroll: true });
  }

  /**
   * Return the element of a part, if it is drawn.
   * @param {number} index
   * @returns {SVGElement | null}
   */
  part(index) {
    return this.element.querySelector(`[data-part="${index}"]`);
  }

  /**
   * @param {Part} part
   * @param {number} index
   */
  _part(part, index) {
    const { title, ...attributes } = this.describe(part, index);
    const [left, right] = partEdges(part);
    const hit = { class: "hit", x: left - 2, y: part.top, width: right - left + 4, height: Math.max(part.bottom - part.top, 4) };
    return s("g", { "data-part": index, ...attributes }, title && s("title", {}, title), s("rect", hit), ...part.shapes.map(drawShape));
  }
}

/**
 * Return the left and the right edge of a part.
 * @param {Part} part
 */
export function partEdges({ shapes }) {
  return [Math.min(...shapes.map(leftEdge)), Math.max(...shapes.map((shape) => leftEdge(shape) + shape.width))];
}

/** @param {Shape} shape */
function leftEdge({ tag, kind, x, width }) {
  return tag === "text" && /\b(middle|name|below)\b/.test(kind) ? x - width / 2 : x;
}

/** @param {Shape} shape */
function drawShape({ tag, kind, x, y, width, height, d, text }) {
  if (tag === "text") return s("text", { class: kind, x, y }, text);
  return tag === "path" ? s("path", { class: kind, d }) : s("rect", { class: kind, x, y, width, height, rx: kind === "activation" ? 1.5 : 4 });
}

/**
 * Return the whole diagram, small.
 * @param {HTMLCanvasElement} canvas the canvas on which it is to be drawn
 * @param {DiagramLayout} layout
 * @param {Set<Part>} marked
 */
export function minimapPicture(canvas, layout, marked) {
  const picture = document.createElement("canvas");
  const context = minimapContext(picture, canvas);
  const [across, down] = minimapScale(canvas, layout);
  const style = getComputedStyle(canvas);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name);
  const [line, accent, bad, foreground, soft, tint] = ["--line", "--accent", "--bad", "--fg", "--soft", "--tint"].map(colour);
  /** @param {Shape} shape @param {string} fill @param {number} [thinnest] */
  const fill = (shape, fill, thinnest = 0.5) => {
    context.fillStyle = fill;
    context.fillRect(shape.x * across, shape.y * down, Math.max(shape.width * across, thinnest), Math.max(shape.height * down, thinnest));
  };
  for (const stem of layout.stems) fill(stem, line);
  for (const bar of layout.bars) fill(bar, accent, 1);
  context.strokeStyle = accent;
  for (const frame of layout.under) context.strokeRect(frame.x * across, frame.y * down, frame.width * across, frame.height * down);
  for (const part of layout.parts) {
    const chosen = marked.has(part);
    for (const shape of part.shapes) {
      if (shape.tag === "path" && /^(call|return|error|message)$/.test(shape.kind)) {
        fill(shape, chosen || shape.kind === "error" ? bad : shape.kind === "call" ? foreground : soft, chosen ? 3 : 0.7);
      } else if (shape.tag === "rect") fill(shape, chosen ? bad : tint);
    }
  }
  return picture;
}

/**
 * Draw the minimap, with a frame around what is in the window.
 * @param {HTMLCanvasElement} canvas
 * @param {DiagramLayout} layout
 * @param {HTMLCanvasElement} picture what `minimapPicture` returned
 * @param {{x: number, y: number, width: number, height: number}} seen what is in the window, in the diagram's pixels
 */
export function drawMinimap(canvas, layout, picture, seen) {
  if (!picture.width || !picture.height) return;
  const context = minimapContext(canvas, canvas);
  const { clientWidth: width, clientHeight: height } = canvas;
  const [across, down] = minimapScale(canvas, layout);
  context.drawImage(picture, 0, 0, width, height);
  context.strokeStyle = getComputedStyle(canvas).getPropertyValue("--accent");
  context.lineWidth = 2;
  context.strokeRect(
    Math.max(seen.x * across, 1),
    Math.max(seen.y * down, 1),
    Math.min(seen.width * across, width - 2),
    Math.max(Math.min(seen.height * down, height - 2), 6),
  );
}

/**
 * Return an empty canvas' context, in the pixels that another canvas has in the page.
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLCanvasElement} shown
 */
function minimapContext(canvas, shown) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = shown.clientWidth * ratio;
  canvas.height = shown.clientHeight * ratio;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  return context;
}

/**
 * Return how much smaller than the diagram its minimap is: across and down.
 * @param {HTMLCanvasElement} canvas
 * @param {DiagramLayout} layout
 */
export function minimapScale(canvas, layout) {
  const across = canvas.clientWidth / layout.width;
  return [across, Math.min(canvas.clientHeight / layout.height, MOST_STRETCHED * across)];
}

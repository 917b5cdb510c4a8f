/** The current view of the sequence diagram as Mermaid text; tracellm/report/diagram/mermaid.py escapes the same way. */

/** @typedef {import("./model.js").DiagramItem} DiagramItem */
/** @typedef {import("./model.js").DiagramView} DiagramView */

const MERMAID_ARROWS = { call: "->>", return: "-->>", error: "--x", message: "-)" };
const BLANK = "[\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";

/**
 * Characters that Mermaid takes for syntax: separators, comments, entities, markup, formulas, `@{`; marks that it puts
 * in place of entities; the end of `style` and `classdef`; blanks at the ends, and `wrap:` at the start.
 */
const MERMAID_SYNTAX = new RegExp(
  `["#$%&;<>@\`\\\\\\\\]|[\\ufb02\\u00b6]|(?<=styl)e|(?<=classde)f|^${BLANK}|${BLANK}$|^:|^wrap|^nowrap`,
  "giu",
);

/**
 * Return a text with Mermaid's syntax written as entities.
 * @param {string} text
 */
export function escapeMermaid(text) {
  return text.replace(MERMAID_SYNTAX, (found) => `#${found.codePointAt(0)};${found.slice(1)}`);
}

/**
 * Return a view as Mermaid source, ending in a newline.
 * @param {DiagramView} view
 */
export function toMermaid(view) {
  const ids = new Map(view.lifelines.map(({ key, id }) => [key, id]));
  const declared = new Map(view.lifelines.map((lifeline) => [lifeline.key, `participant ${declaration(lifeline)}`]));
  const lines = ["sequenceDiagram"];
  if (view.remark) lines.push(`    %% ${view.remark}`);
  for (const { label, lifelines } of view.boxes) {
    lines.push(`    box transparent ${escapeMermaid(label)}`, ...lifelines.map((key) => `        ${declared.get(key)}`), "    end");
  }
  if (!view.boxes.length) lines.push(...[...declared.values()].map((line) => `    ${line}`));
  const outermost = [view.lifelines[0], view.lifelines[view.lifelines.length - 1]];
  if (outermost[0]) lines.push(...itemLines(view.items, "    ", ids, outermost.map(({ id }) => id)));
  return `${lines.join("\n")}\n`;
}

/** @param {import("./model.js").Lifeline} lifeline */
function declaration({ id, label, below }) {
  if (below) return `${id} as ${escapeMermaid(label)}<br/>${escapeMermaid(below)}`;
  return id === label ? id : `${id} as ${escapeMermaid(label)}`;
}

/**
 * @param {DiagramItem[]} items
 * @param {string} indent
 * @param {Map<number, string>} ids
 * @param {string[]} outermost
 * @returns {string[]}
 */
function itemLines(items, indent, ids, outermost) {
  return items.flatMap((item) => {
    if (item.kind === "close") return [`${indent}deactivate ${ids.get(item.lifeline)}`];
    if ("source" in item) {
      const sign = item.opens ? "+" : item.closes ? "-" : "";
      return [`${indent}${ids.get(item.source)}${MERMAID_ARROWS[item.kind]}${sign}${ids.get(item.target)}: ${escapeMermaid(item.text)}`];
    }
    if (item.kind === "loop") {
      return [`${indent}loop ${escapeMermaid(item.text)}`, ...itemLines(item.items, `${indent}    `, ids, outermost), `${indent}end`];
    }
    const [first, last] = item.kind === "phase" ? outermost : [ids.get(item.first), ids.get(item.last)];
    const over = first === last ? first : `${first},${last}`;
    return [`${indent}Note over ${over}: ${item.text.split("\n").map(escapeMermaid).join("<br/>")}`];
  });
}

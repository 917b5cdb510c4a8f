/** Python code: its coloured pieces, the names in it that lead to listed functions, and lines with a text. */

import { h } from "../base/dom.js";
import { ownFunction } from "./functions.js";

/** @typedef {import("./functions.js").Source} Source */

const SHORTEST_TEXT = 3;
const KEYWORDS =
  "False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield";
const TOKENS = new RegExp(
  [
    "(?<comment>#[^\\n]*)",
    "(?<string>(?:\\b[rbfRBF]{1,2})?(?:\"\"\"[^]*?(?:\"\"\"|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"|'(?:\\\\.|[^'\\\\\\n])*'))",
    `(?<keyword>\\b(?:${KEYWORDS})\\b)`,
  ].join("|"),
  "g",
);

/**
 * Return Python code as lines of pieces: `[kind, text]`, with the kinds comment, string, keyword and "".
 * @param {string} code
 * @returns {[kind: string, text: string][][]}
 */
export function codePieces(code) {
  /** @type {[string, string][][]} */
  const lines = [[]];
  const add = (/** @type {string} */ kind, /** @type {string} */ text) => {
    text.split("\n").forEach((part, i) => {
      if (i) lines.push([]);
      if (part) lines[lines.length - 1].push([kind, part]);
    });
  };
  let end = 0;
  for (const match of code.matchAll(TOKENS)) {
    add("", code.slice(end, match.index));
    const kinds = Object.entries(match.groups ?? {});
    add(kinds.find(([, text]) => text !== undefined)?.[0] ?? "", match[0]);
    end = match.index + match[0].length;
  }
  add("", code.slice(end).replace(/\n$/, ""));
  return lines;
}

/**
 * Return a function that gives the full name of the listed function that a name in another's code means, or null. The
 * code is tracellm's, so in a vLLM's run the names are those of tracellm's counterparts.
 *
 * `self._x` is a method of the same class or file, and `_x` a function of the same file. Another name counts if it has
 * an underscore inside and just one listed function has it.
 * @param {Source} source
 * @param {string} full name of the function with the code
 * @returns {(before: string, name: string) => string | null}
 */
export function codeLinks(source, full) {
  const { file, path } = ownFunction(source, full) ?? source.functions[full];
  /** @type {Map<string, {full: string, file: string, path: string}[]>} */
  const named = new Map();
  for (const other of Object.keys(source.functions)) {
    const own = ownFunction(source, other);
    if (other === full || !own) continue;
    const name = own.path.slice(own.path.lastIndexOf(".") + 1);
    named.set(name, [...(named.get(name) ?? []), { full: other, file: own.file, path: own.path }]);
  }
  const owner = path.slice(0, path.lastIndexOf(".") + 1);
  return (before, name) => {
    const found = named.get(name) ?? [];
    if (!found.length || /\b(?:def|torch|F|np)[. ]$/.test(before)) return null;
    const near = found.filter((other) => other.file === file);
    if (/\b(?:self|cls)\.$/.test(before)) {
      const own = near.find((other) => other.path === owner + name) ?? (near.length === 1 ? near[0] : null);
      return own?.full ?? null;
    }
    if (!before.endsWith(".")) return near.find((other) => other.path === name)?.full ?? null;
    return /\w_\w/.test(name) && found.length === 1 ? found[0].full : null;
  };
}

/**
 * Return the lines of code that have a text of at least three characters, by index; upper and lower case are the same.
 * @param {string | undefined} code
 * @param {string} text
 * @returns {[index: number, line: string][]}
 */
export function codeHits(code, text) {
  const wanted = text.trim().toLowerCase();
  if (!code || wanted.length < SHORTEST_TEXT) return [];
  const lines = code.split("\n").map((line, i) => /** @type {[number, string]} */ ([i, line]));
  return lines.filter(([, line]) => line.toLowerCase().includes(wanted));
}

/**
 * Return a line's text as nodes, with a text in it marked.
 * @param {string} line
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function marked(line, text) {
  const wanted = text.trim().toLowerCase();
  const lower = line.toLowerCase();
  const parts = [];
  let end = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, end)) {
    parts.push(line.slice(end, at), h("mark", {}, line.slice(at, at + wanted.length)));
    end = at + wanted.length;
  }
  return [...parts, line.slice(end)];
}

/** Links from the terms of the page to their definitions in its glossary. */

import { h } from "./dom.js";

const PLACES = "h3, h4, dt, th, .lead, .legend li, summary";
const UNTOUCHED = "a, button, code, #glossary, #source-index, .step-title";

/**
 * Return a pattern that finds the terms of a glossary, and the id of each term in lower case. An entry's name may have
 * several: `total, own` or `预填充（prefill）`.
 * @param {{id: string, name: string}[]} names
 * @returns {{pattern: RegExp, ids: Map<string, string>}}
 */
export function termPattern(names) {
  /** @type {Map<string, string>} */
  const ids = new Map();
  for (const { id, name } of names) {
    for (const term of name.split(/[,，、（）]/)) if (term.trim().length > 1) ids.set(term.trim().toLowerCase(), id);
  }
  const longestFirst = [...ids.keys()].sort((one, other) => other.length - one.length);
  const escaped = longestFirst.map((term) => term.replace(/[^\w\s\u0080-\uffff]/g, "\\$&"));
  return { pattern: new RegExp(`(?<![\\w.-])(${escaped.join("|") || "(?!)"})s?(?![\\w.(-])`, "i"), ids };
}

/**
 * Link the first occurrence of each term in the headings, labels and leads of an element.
 * @param {Element} element
 */
export function linkTerms(element) {
  const entries = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#glossary dt[id]")]);
  const { pattern, ids } = termPattern(entries.map((entry) => ({ id: entry.id, name: entry.textContent ?? "" })));
  const linked = new Set([...element.querySelectorAll("a.term")].map((link) => link.getAttribute("href")));
  for (const place of element.querySelectorAll(PLACES)) {
    if (place.closest(UNTOUCHED)) continue;
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    for (let text = /** @type {Text | null} */ (texts.nextNode()); text; text = /** @type {Text | null} */ (texts.nextNode())) {
      const found = pattern.exec(text.data);
      const id = found && ids.get(found[1].toLowerCase());
      if (!found || !id || linked.has(`#${id}`) || text.parentElement?.closest(UNTOUCHED)) continue;
      linked.add(`#${id}`);
      const term = text.splitText(found.index);
      term.splitText(found[0].length);
      const meaning = document.getElementById(id)?.nextElementSibling?.textContent ?? "";
      const link = h("a", { class: "term", href: `#${id}`, title: meaning }, found[0]);
      term.replaceWith(link);
      texts.currentNode = link; // the rest of the text comes next
    }
  }
}

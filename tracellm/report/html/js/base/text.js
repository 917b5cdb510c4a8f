/** The page's texts in the chosen language, and the run's texts and tokens made visible. */

import { number } from "./quantities.js";

/** @type {Record<string, Record<string, string>>} */
let all = {};
let chosen = "en";

/**
 * Set the texts of every language and the language to use.
 * @param {Record<string, Record<string, string>>} texts
 * @param {string} language
 */
export function setTexts(texts, language) {
  all = texts;
  chosen = language;
}

/** Return the language in use. */
export function language() {
  return chosen;
}

/** @param {string} key */
export function hasText(key) {
  return key in (all[chosen] ?? {});
}

/**
 * Return the text `key` with its values, as `tracellm.report.texts.text` does: `{name}`, `{n:,}`, `{n:one|many}`.
 * @param {string} key
 * @param {Record<string, any>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const text = all[chosen]?.[key] ?? key;
  return text.replace(/\{(\w+)(?::([^}]*))?\}/g, (_, name, form = "") => {
    const value = values[name];
    if (form === ",") return number(value);
    if (!form.includes("|")) return String(value);
    const [one, many] = form.split("|");
    return `${number(value)} ${value === 1 ? one : many}`;
  });
}

/**
 * Return a text with characters that cannot be seen as escapes: a run's text never changes how the page reads.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(
    // eslint-disable-next-line no-control-regex
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * Return a token's text in one line, with blanks that can be seen.
 * @param {string | undefined} text
 */
export function tokenText(text) {
  if (text === undefined) return "•";
  return visible(text.replaceAll("\n", "↵").replaceAll("\t", "⇥")).replaceAll(" ", "␣") || "∅";
}

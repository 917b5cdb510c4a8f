/** The page's languages: one is shown, the other one is stored compressed. */

import { unpack } from "./unpack.js";

/** @type {Map<string, ChildNode[]>} */
const pages = new Map();

/**
 * Show the page in the other language, and return that language's short name.
 * @param {string} shown the language that is shown now
 * @returns {Promise<string>}
 */
export async function showOtherLanguage(shown) {
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  const source = /** @type {HTMLElement} */ (document.getElementById("other-language"));
  pages.set(shown, [...page.childNodes]);
  if (pages.size === 1) {
    const parsed = new DOMParser().parseFromString(await (await unpack(source)).text(), "text/html");
    pages.set(source.dataset.lang ?? "", [...parsed.body.childNodes]);
  }
  const [next] = [...pages.keys()].filter((language) => language !== shown);
  page.replaceChildren(.../** @type {ChildNode[]} */ (pages.get(next)));
  document.documentElement.lang = next === "zh" ? "zh-CN" : next;
  return next;
}

/**
 * Show the button that switches the language, and set its action.
 * @param {() => void} onSwitch
 */
export function languageButton(onSwitch) {
  const button = document.getElementById("language");
  if (!button) return;
  button.onclick = onSwitch;
  button.hidden = false;
}

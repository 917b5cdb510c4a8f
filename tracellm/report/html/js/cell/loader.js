/** What a notebook cell's frame runs first: unpacks style and script, which the frame's policy allows by their hashes. */

import { unpack } from "../base/unpack.js";

/**
 * Add an element with the content of a packed one.
 * @param {"style" | "script"} tag
 */
async function addUnpacked(tag) {
  const content = await unpack(/** @type {HTMLElement} */ (document.getElementById(`packed-${tag}`)));
  const element = document.createElement(tag);
  element.textContent = await content.text();
  document.body.append(element);
}

addUnpacked("style").then(() => addUnpacked("script"));

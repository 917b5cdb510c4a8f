/** Keys of the page, which move through the steps and answer questions, and keys of a view that has the focus. */

/**
 * Pass a key to the first handler that takes it, if the element with the step view is in sight and the key is not for
 * another element.
 * @param {KeyboardEvent} event
 * @param {string} view id of the element
 * @param {...{key: (key: string) => boolean}} handlers
 */
export function pressKey(event, view, ...handlers) {
  const target = /** @type {HTMLElement} */ (event.target);
  const shown = document.getElementById(view);
  if (event.ctrlKey || event.metaKey || event.altKey || !shown || !inView(shown)) return;
  if (target.closest("input, textarea, select, .scroll") && target.getAttribute("type") !== "range") return;
  if ((event.key === " " || event.key === "Enter") && target.closest("button, summary, a")) return;
  if (handlers.some((handler) => handler.key(event.key))) event.preventDefault();
}

/**
 * Run the action of a key in the view that has the focus, and stop its default and the page's own action.
 * @param {KeyboardEvent} event
 * @param {Record<string, () => void>} actions by key
 */
export function pressViewKey(event, actions) {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, event.key)) return;
  actions[event.key]();
  event.preventDefault();
  event.stopPropagation();
}

/** @param {Element} element */
function inView(element) {
  const box = element.getBoundingClientRect();
  return box.top < window.innerHeight && box.bottom > 0;
}

/** Elements, made without markup: every text is data. */

/**
 * Return a new HTML element.
 *
 * `attributes` sets attributes; `on<event>` adds a listener, `style` sets properties one by one (the page's policy
 * refuses style attributes), and a value of false or null leaves the attribute out.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), attributes, children));
}

/**
 * Return a new SVG element; as `h`.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children));
}

/**
 * @param {Element} element
 * @param {Record<string, any>} attributes
 * @param {any[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") {
      for (const [property, own] of Object.entries(value)) {
        /** @type {HTMLElement} */ (element).style.setProperty(property, String(own));
      }
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false).map(asNode));
  return element;
}

/**
 * Replace an element's children. The focus moves on to the new element with the label of the one that had it.
 * @param {HTMLElement} element
 * @param {Node[]} children
 */
export function replaceKeepingFocus(element, children) {
  const label = element.contains(document.activeElement) && document.activeElement?.getAttribute("aria-label");
  const same = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll(`[aria-label="${CSS.escape(label || "")}"]`)]);
  const which = label ? same().findIndex((one) => one === document.activeElement) : -1;
  element.replaceChildren(...children);
  if (which >= 0) same()[which]?.focus();
}

/**
 * Return a frame in which wide content scrolls, by keyboard too.
 * @param {string} label
 * @param {...(Node | false)} children
 */
export function scrollFrame(label, ...children) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);
}

/**
 * Scroll a frame, never the page, until an element in it is in sight.
 * @param {HTMLElement} frame
 * @param {HTMLElement} element
 * @param {number} head height of the frame's head, which stays in sight
 */
export function scrollInto(frame, element, head) {
  const top = element.offsetTop - head;
  const bottom = element.offsetTop + element.offsetHeight - frame.clientHeight;
  if (frame.scrollTop > top) frame.scrollTop = top;
  else if (frame.scrollTop < bottom) frame.scrollTop = bottom;
}

/**
 * Call `listener` whenever an element comes near the window or leaves it.
 * @param {HTMLElement} element
 * @param {(near: boolean) => void} listener
 */
export function watchNear(element, listener) {
  const report = (/** @type {IntersectionObserverEntry[]} */ entries) => listener(entries[entries.length - 1].isIntersecting);
  const observer = new IntersectionObserver(report, { rootMargin: "400px" });
  observer.observe(element);
  return observer;
}

/** @param {Node | string | number} child */
function asNode(child) {
  return child instanceof Node ? child : String(child);
}

/**
 * Return a text of the page with its commands in backticks as code.
 * @param {string} text
 */
export function withCode(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

/** The page's theme, dark or light as the reader's system is. Style sheets follow it by themselves, canvases do not. */

const DARK_THEME = "(prefers-color-scheme: dark)";

/** Return whether the page is dark. */
export function isDark() {
  return matchMedia(DARK_THEME).matches;
}

/**
 * Call `listener` after each change of the theme.
 * @param {() => void} listener
 */
export function onTheme(listener) {
  matchMedia(DARK_THEME).addEventListener("change", listener);
}

/** Data that is stored compressed in the page. */

/**
 * Return what an element of the page holds in compressed form.
 * @param {HTMLElement} source
 */
export async function unpack(source) {
  const text = atob(source.textContent ?? "");
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));
}

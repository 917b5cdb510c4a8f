/** The page's list of sections, which stays in sight and marks the section that is being read. */

/** Mark the link of the section in sight, now and while the page scrolls. */
export function markSection() {
  const contents = document.getElementById("contents");
  const links = /** @type {HTMLAnchorElement[]} */ ([...(contents?.querySelectorAll("a") ?? [])]);
  const mark = () => {
    const reached = links.filter((link) => (document.querySelector(link.hash)?.getBoundingClientRect().top ?? Infinity) < 120);
    const current = reached.at(-1) ?? links[0];
    if (!contents || !current || current.hasAttribute("aria-current")) return;
    for (const link of links) link.removeAttribute("aria-current");
    current.setAttribute("aria-current", "true");
    contents.scrollTo({ left: current.offsetLeft - contents.clientWidth / 2 });
  };
  document.onscroll = mark;
  mark();
}

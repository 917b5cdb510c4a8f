/** The sequence diagram's controls: copy its Mermaid text, show the spans behind an arrow, fit it to the window. */

/** Bring the controls of the diagram to life; without the script, its source is there to be selected by hand. */
export function diagramControls() {
  copyButton();
  const drawing = /** @type {HTMLElement | null} */ (document.querySelector(".sequence"));
  if (!drawing) return;
  arrows(drawing);
  fitButton(drawing);
}

function copyButton() {
  const button = document.getElementById("copy");
  const source = document.getElementById("mermaid");
  if (!button || !source) return;
  const label = button.textContent;
  const selectAndCopy = () => {
    window.getSelection()?.selectAllChildren(source);
    return document.execCommand("copy");
  };
  const done = () => {
    button.textContent = button.dataset.done ?? "";
    setTimeout(() => {
      button.textContent = label;
    }, 2000);
  };
  button.addEventListener("click", () => {
    if (navigator.clipboard) {
      navigator.clipboard.writeText(source.textContent ?? "").then(done, () => selectAndCopy() && done());
    } else if (selectAndCopy()) done();
  });
  button.hidden = false;
}

/** @param {HTMLElement} drawing */
function arrows(drawing) {
  const spans = document.getElementById("spans");
  if (!spans) return;
  drawing.addEventListener("click", (event) => {
    const arrow = /** @type {Element} */ (event.target).closest(".arrow");
    if (!arrow) return;
    for (const other of drawing.querySelectorAll(".arrow.chosen")) other.classList.remove("chosen");
    arrow.classList.add("chosen");
    spans.textContent = arrow.querySelector("title")?.textContent ?? "";
    spans.hidden = false;
  });
}

/** @param {HTMLElement} drawing */
function fitButton(drawing) {
  const wide = document.getElementById("wide");
  const fit = document.getElementById("fit");
  if (!wide || !fit) return;
  const update = () => {
    wide.hidden = drawing.scrollWidth <= drawing.clientWidth && !drawing.classList.contains("fitted");
  };
  fit.addEventListener("click", () => {
    fit.setAttribute("aria-pressed", String(drawing.classList.toggle("fitted")));
  });
  window.addEventListener("resize", update);
  update();
}

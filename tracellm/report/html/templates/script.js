"use strict";
// The page's only script. A button copies the Mermaid source; without it the source is there to be selected by hand.
// Another shows a diagram that is wider than its frame as a whole.
// An arrow of the diagram that is clicked has said below it what it says to whom points at it: which spans it stands for.
const button = document.getElementById("copy");
const source = document.getElementById("mermaid");
if (button && source) {
  const label = button.textContent;
  const selectAndCopy = () => {
    const selection = window.getSelection();
    selection.selectAllChildren(source);
    return document.execCommand("copy");
  };
  const done = () => {
    button.textContent = button.dataset.done;
    setTimeout(() => { button.textContent = label; }, 2000);
  };
  button.addEventListener("click", () => {
    if (navigator.clipboard) {
      navigator.clipboard.writeText(source.textContent).then(done, () => selectAndCopy() && done());
    } else if (selectAndCopy()) {
      done();
    }
  });
  button.hidden = false;
}
const said = document.getElementById("spans");
const drawing = document.querySelector(".sequence");
if (said && drawing) {
  drawing.addEventListener("click", (event) => {
    const arrow = event.target.closest(".arrow");
    if (arrow) {
      for (const one of drawing.querySelectorAll(".arrow.chosen")) { one.classList.remove("chosen"); }
      arrow.classList.add("chosen");
      said.textContent = arrow.querySelector("title").textContent;
      said.hidden = false;
    }
  });
}
const wide = document.getElementById("wide");
const fit = document.getElementById("fit");
if (wide && fit && drawing) {
  const look = () => {
    wide.hidden = drawing.scrollWidth <= drawing.clientWidth && !drawing.classList.contains("fitted");
  };
  fit.addEventListener("click", () => {
    fit.setAttribute("aria-pressed", drawing.classList.toggle("fitted"));
  });
  window.addEventListener("resize", look);
  look();
}

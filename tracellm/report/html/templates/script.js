"use strict";
// The page's only script: a button that copies the Mermaid source. Without it the source is there to be selected by hand.
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

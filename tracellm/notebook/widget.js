/** The widget of a run in a notebook's page: a frame, and messages that keep its selection and the kernel's the same. */

const NAMES = ["engine", "step", "request", "block"];

/** @param {{model: any, el: HTMLElement}} view */
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.cssText = "width:100%;height:720px;border:1px solid rgba(128,128,128,.4);border-radius:8px";
  frame.srcdoc = model.get("document");
  let receiving = false;
  const receive = (/** @type {MessageEvent} */ { source, data }) => {
    if (source !== frame.contentWindow || !data?.tracellm) return;
    receiving = true;
    for (const name of NAMES) model.set(name, data.tracellm[name]);
    receiving = false;
    model.save_changes();
  };
  const send = () => {
    if (!receiving) frame.contentWindow?.postMessage({ tracellm: Object.fromEntries(NAMES.map((name) => [name, model.get(name)])) }, "*");
  };
  window.addEventListener("message", receive);
  for (const name of NAMES) model.on(`change:${name}`, send);
  el.append(frame);
  return () => window.removeEventListener("message", receive);
}

export default { render };

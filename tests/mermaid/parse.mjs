// Real Mermaid, kept running: reads one JSON string a line (a diagram's source), answers one JSON object a line.
//
//   {"type": "sequence", "participants": [{"id", "label"}], "boxes": [{"label", "participants"}],
//    "events": [{"kind", "from", "to", "text"}]}      the diagram as Mermaid understood it, texts as it would show them
//   {"error": "Parse error on line 3: ..."}           Mermaid refused it
import { createInterface } from "node:readline";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html><body></body>");
// Mermaid and its sanitizer look for a browser when they are imported, so the import comes after.
Object.assign(globalThis, { window, document: window.document, Option: window.Option });
const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false, maxTextSize: 50_000_000 });

const entity = window.document.createElement("textarea");

// Mermaid hides `#35;` from its parser behind these marks and turns them to `&#35;` in the finished SVG.
function shown(text) {
  if (typeof text !== "string") return "";
  entity.innerHTML = text.replace(/ﬂ°°/g, "&#").replace(/ﬂ°/g, "&").replace(/¶ß/g, ";");
  return entity.value;
}

async function read(source) {
  const diagram = await mermaid.mermaidAPI.getDiagramFromText(source);
  if (diagram.type !== "sequence") return { type: diagram.type };
  const kinds = Object.fromEntries(Object.entries(diagram.db.LINETYPE).map(([name, number]) => [number, name]));
  return {
    type: diagram.type,
    participants: [...diagram.db.getActors().values()].map((actor) => ({
      id: actor.name,
      label: shown(actor.description),
    })),
    boxes: diagram.db.getBoxes().map((box) => ({ label: shown(box.name), participants: box.actorKeys })),
    events: diagram.db.getMessages().map((event) => ({
      kind: kinds[event.type],
      from: event.from ?? "",
      to: event.to ?? "",
      text: shown(event.message?.text ?? event.message),
    })),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await read(JSON.parse(line));
  } catch (error) {
    answer = { error: String(error.message ?? error) };
  }
  // ASCII only: lone surrogates cross the pipe, and no setting of the terminal matters.
  const ascii = JSON.stringify(answer).replace(/[^\x20-\x7e]/g, (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"));
  process.stdout.write(ascii + "\n");
}

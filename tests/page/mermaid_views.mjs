// Writes views of sequence diagrams as Mermaid: reads {"data", "engines", "requests" (ids), "random"} as JSON, one a line, and
// answers a list of texts: the overview in English and Chinese, each zoom in both, and `random` views with arrows opened
// and closed at random, some of them following a request. With "follow", it answers what is drawn of each request.
import { createInterface } from "node:readline";

import { parseRanges } from "../../tracellm/report/html/js/base/ranges.js";
import { toMermaid } from "../../tracellm/report/html/js/sequence/mermaid.js";
import { SequenceModel, ZOOMS } from "../../tracellm/report/html/js/sequence/model.js";

const LANGUAGES = ["en", "zh"];

/** Return a function that returns a pseudorandom number below `n`, the same ones in each run. */
function dice() {
  let state = 12345;
  return (n) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * n);
  };
}

function withToggles(items) {
  return items.flatMap((item) => [...(item.toggle ? [item] : []), ...(item.items ? withToggles(item.items) : [])]);
}

function views({ data, engines, requests, random }) {
  const roll = dice();
  const model = new SequenceModel(data, engines, requests);
  const texts = LANGUAGES.map((language) => toMermaid(model.view(language)));
  for (const zoom of ZOOMS) {
    model.setZoom(zoom);
    texts.push(...LANGUAGES.map((language) => toMermaid(model.view(language))));
  }
  for (let i = 0; i < random; i += 1) {
    model.setZoom(ZOOMS[roll(ZOOMS.length)]);
    model.follow(requests.length && roll(3) === 0 ? roll(requests.length) : null);
    for (let toggles = roll(20); toggles > 0; toggles -= 1) {
      const items = withToggles(model.view("en").items);
      if (items.length) {
        const item = items[roll(items.length)];
        model.toggle(item.node, item.toggle);
      }
    }
    texts.push(toMermaid(model.view(LANGUAGES[roll(2)])));
  }
  return texts;
}

const answer = (job) => (job.follow ? followed(job) : views(job));

/** Return what is drawn of each request: the texts of its calls, of its groups, and the indexes of its steps. */
function followed({ data, engines, requests }) {
  const model = new SequenceModel(data, engines, requests);
  model.setZoom("kernel");
  return requests.map((_, request) => {
    model.follow(request);
    const nodes = [...model.drawn()];
    const texts = model.data.texts.en;
    const calls = nodes.filter((node) => !node.g).flatMap((node) => [texts[node.t], ...(node.back === undefined ? [] : [texts[node.back]])]);
    const steps = nodes.flatMap((node) => (node.s ?? []).flatMap(([, indexes]) => parseRanges(indexes)));
    return { calls, steps, mermaid: toMermaid(model.view("en")) };
  });
}

for await (const line of createInterface({ input: process.stdin })) process.stdout.write(`${JSON.stringify(answer(JSON.parse(line)))}\n`);

import assert from "node:assert/strict";
import { test } from "node:test";

import { layOut, wrapText } from "../../tracellm/report/html/js/sequence/layout.js";
import { escapeMermaid, toMermaid } from "../../tracellm/report/html/js/sequence/mermaid.js";
import { inRuns, SequenceModel, ZOOMS } from "../../tracellm/report/html/js/sequence/model.js";
import { setTexts } from "../../tracellm/report/html/js/base/text.js";

const EN = {
  "step.kind.prefill": "prefill",
  "step.kind.decode": "decode",
  "sequence.left": "{n:more call is|more calls are} not drawn",
  "sequence.own.step": "step {steps}: {what}",
  "sequence.own.steps": "steps {steps}: {what} ({n:time|times})",
  "sequence.own.comma": ", ",
  "sequence.own.tokens": "{n:token|tokens}",
  "sequence.own.new": "joins the batch",
  "sequence.own.finished": "finished: {reason}",
};
const LINES = ["script", "Engine", "Scheduler", "Model", "Kernels"];

/** A run of two requests and three steps: the overview has `generate`, `step` and `schedule`. */
function aDiagram() {
  /** @type {string[]} */
  const texts = [];
  const text = (own) => (texts.includes(own) ? texts.indexOf(own) : texts.push(own) - 1);
  const call = (n, b, own, l, items, more = {}) => ({ a: Math.max(b - 1, 0), b, t: text(own), n: [n], l, ...(items ? { items } : {}), ...more });
  const step = (n, index) => [
    call(n, 1, "step()", 1, [
      call(n + 1, 2, "schedule()", 1, [call(n + 2, 3, "allocate()", 2)], { back: text("output") }),
      call(n + 3, 3, "forward()", 1, [{ g: "loop", t: text("2 times"), items: [call(n + 4, 3, "layer()", 2, [call(n + 5, 4, "matmul()", 3)])] }]),
    ]),
  ];
  const whole = [
    { g: "phase", t: text("Start-up"), items: [call(1, 1, "__init__()", 0, [call(2, 3, "load()", 0)])] },
    {
      g: "phase",
      t: text("Generation"),
      items: [
        call(3, 1, "generate()", 0, [
          call(4, 1, "add_request()", 0, [call(5, 2, "add(first)", 0, undefined, { r: [0] })], { r: [0] }),
          call(6, 1, "add_request()", 0, [call(7, 2, "add(second)", 0, undefined, { r: [1] })], { r: [1] }),
          { g: "step", a: 0, b: 1, t: text("step 1: prefill\nboth requests"), s: [[0, "0"]], items: step(10, 0) },
          { g: "loop", t: text("steps 2-3: decode"), s: [[0, "1-2"]], items: step(20, 1) },
        ]),
      ],
    },
  ];
  const overview = [
    { g: "phase", t: text("Generation"), items: [call(3, 1, "generate()", 0, [{ g: "step", a: 0, b: 1, t: text("step 1: prefill\nboth requests"), s: [[0, "0"]], items: [call(10, 1, "step()", 1, [call(11, 2, "schedule()", 1, [], { back: text("output") })])] }])] },
  ];
  const lifelines = LINES.map((label, key) => ({ id: text(`${label}_id`), label: text(label), below: text(""), process: key ? 7 : 3 }));
  const data = {
    overview: { lifelines: [0, 1, 2], left: 0, boxes: { 3: text("main"), 7: text("engine") }, remark: text("some are left out"), items: overview },
    whole: { lifelines: [0, 1, 2, 3, 4], boxes: { 3: text("main"), 7: text("engine") }, remark: text(""), items: whole },
    lifelines,
    texts: { en: texts, zh: texts.map((one) => (!one || one.endsWith("_id") ? one : `中${one}`)) },
  };
  const engines = [{ steps: [{ n: 1, scheduled: [[0, 5, 0, 0, 0], [1, 2, 0, 0, 0]] }, { n: 2, scheduled: [[0, 1, 5, 1, 0]] }, { n: 3, scheduled: [[0, 1, 6, 1, 0]], finished: [[0, "stop"]] }] }];
  return new SequenceModel(data, engines);
}

/** Texts of what is drawn, loops in brackets. */
function drawn(items) {
  return items.flatMap((item) => (item.kind === "close" ? [] : item.kind === "loop" ? [`[${item.text}`, ...drawn(item.items), "]"] : [item.text.split("\n")[0]]));
}

const texts = (model) => drawn(model.view("en").items);
const nodeOf = (model, text) => everyItem(model.view("en").items).find((item) => item.text === text && item.toggle).node;
const nodeNamed = (model, text) => everyItem(model.view("en").items).find((item) => item.text === text).node;
const toggleOf = (model, text) => everyItem(model.view("en").items).find((item) => item.text?.split("\n")[0] === text)?.toggle;

function everyItem(items) {
  return items.flatMap((item) => [item, ...(item.items ? everyItem(item.items) : [])]);
}

test("the overview is the first view, and has a mark where calls are left out", () => {
  const model = aDiagram();
  assert.deepEqual(texts(model), ["Generation", "generate()", "step 1: prefill", "step()", "schedule()", "output"]);
  assert.equal(toggleOf(model, "schedule()"), "open");
  assert.equal(toggleOf(model, "generate()"), "open");
  assert.equal(model.view("en").remark, "some are left out");
});

test("only a view of the whole diagram counts its arrows among all", () => {
  const model = aDiagram();
  setTexts({ en: { "sequence.drawn": "{drawn} of {all}", "sequence.drawn.key": "{n}" } }, "en");
  const count = () => model.count(model.view("en").arrows);
  assert.equal(count(), "3");
  model.setZoom("kernel");
  assert.equal(count(), "19 of 19");
  model.setZoom("request");
  assert.equal(count(), "7 of 19");
  setTexts({}, "en");
});

test("an opened call of the overview shows its callees, and closes again", () => {
  const model = aDiagram();
  const node = nodeOf(model, "step()");
  model.toggle(node, "open");
  assert.deepEqual(texts(model), ["Generation", "generate()", "step 1: prefill", "step()", "schedule()", "output", "forward()"]);
  assert.equal(toggleOf(model, "step()"), "close");
  assert.equal(toggleOf(model, "forward()"), "open");
  model.toggle(node, "close");
  assert.deepEqual(texts(model), ["Generation", "generate()", "step 1: prefill", "step()"]);
  model.toggle(node, "open");
  assert.deepEqual(texts(model), ["Generation", "generate()", "step 1: prefill", "step()", "schedule()", "output"]);
});

test("steps that are not drawn are closed frames, which open", () => {
  const model = aDiagram();
  model.toggle(nodeOf(model, "generate()"), "open");
  assert.equal(texts(model).at(-1), "steps 2-3: decode");
  const folded = model.view("en").items.find(({ kind }) => kind === "folded");
  model.toggle(folded.node, "open");
  assert.deepEqual(texts(model).slice(-3), ["[steps 2-3: decode", "step()", "]"]);
});

test("each zoom draws the calls down to its level, and only lifelines with calls", () => {
  const model = aDiagram();
  const found = Object.fromEntries(ZOOMS.map((zoom) => [zoom, (model.setZoom(zoom), [new Set(texts(model)), model.view("en").lifelines.length])]));
  assert.deepEqual([...found.phases[0]], ["Start-up", "__init__()", "Generation", "generate()"]);
  assert.equal(found.phases[1], 2);
  assert.ok(found.request[0].has("add(first)") && !found.request[0].has("step()"));
  assert.ok(found.step[0].has("forward()") && !found.step[0].has("layer()"));
  assert.ok(found.layer[0].has("layer()") && !found.layer[0].has("matmul()"));
  assert.ok(found.kernel[0].has("matmul()"));
  assert.equal(found.kernel[1], 5);
});

test("a followed request keeps what is its own, the steps that ran it, and the callers", () => {
  const model = aDiagram();
  model.setZoom("kernel");
  model.follow(1);
  const found = texts(model);
  assert.ok(found.includes("add(second)") && found.includes("sequence.own.step") && found.includes("matmul()"));
  assert.ok(!found.includes("add(first)") && !found.includes("[steps 2-3: decode") && !found.includes("Start-up"));
  model.follow(null);
  assert.ok(texts(model).includes("add(first)"));
  model.setZoom("key");
  model.follow(1);
  assert.equal(toggleOf(model, "Generation"), "close");
  assert.equal(toggleOf(model, "generate()"), "open");
});

/** A run of three requests, each with an HTTP request of its own; steps 3 to 6 made the same calls as step 2. */
function aServer() {
  setTexts({ en: EN }, "en");
  /** @type {string[]} */
  const texts = ["nothing", "server", "main", ""];
  const text = (own) => (texts.includes(own) ? texts.indexOf(own) : texts.push(own) - 1);
  const call = (n, own, more = {}) => ({ a: 0, b: 1, t: text(own), n: [n], l: 0, ...more });
  const group = (g, s, own, items, more = {}) => ({ g, t: text(own), a: 0, b: 1, s: [[0, s]], items, ...more });
  const shared = (n, own, texts) => call(n, own, { c: 3, r: [0, 1, 2], o: texts.map((one, i) => [text(one), n + i]) });
  const items = [
    { g: "loop", t: text("3 times"), items: [shared(1, "POST ×3", ["POST", "POST", "POST"]), shared(4, "generate(request_id=request-alpha)", ["generate(request_id=request-alpha)", "generate(request_id=request-beta)", "generate(request_id=request-gamma)"])] },
    call(8, "loop_for_all()"),
    group("step", "0", "step 1: request-alpha joined", [call(10, "step(request-alpha)", { back: text("of request-alpha"), items: [call(11, "put(request-alpha)")] }), call(12, "OUTPUTS 1 request", { m: 1 })]),
    group("loop", "1-2", "steps 2-3: decode (2 times)", [call(20, "step(1)", { c: 2, items: [call(21, "forward(1)", { c: 2 }), call(23, "rarely(1) in 1 of 2", { e: text("rarely(1)") })] }), call(22, "OUTPUTS 1 request", { m: 1 })]),
    group("loop", "3-4", "steps 4-5: decode (2 times)", [call(30, "step(3)", { c: 2, h: 9 })], { k: [20, 22] }),
    call(40, "stream_generator(request)", { r: [1] }),
    group("step", "5", "step 6: request-beta finished", [call(50, "step(2)", { h: 9 })], { k: [20, 22] }),
  ];
  const key = [call(1, "POST"), call(20, "step(1)"), call(22, "OUTPUTS 1 request", { m: 1 })];
  const line = (own) => ({ id: text(own), label: text(own), below: 3, process: 1 });
  const tree = { lifelines: [0, 1], boxes: {}, remark: 0 };
  const data = { overview: { ...tree, left: 17, items: key }, whole: { ...tree, left: 0, items }, lifelines: [line("client"), line("engine")], texts: { en: texts } };
  const steps = [
    { scheduled: [[0, 5, 0, 0, 0]], new: [0] },
    { scheduled: [[0, 1, 5, 1, 0]], finished: [[0, "stop"]] },
    { scheduled: [[1, 4, 0, 0, 0]], new: [1] },
    { scheduled: [[1, 1, 4, 1, 0], [2, 1, 9, 1, 0]] },
    { scheduled: [[1, 1, 5, 1, 0], [2, 1, 9, 1, 0]] },
    { scheduled: [[1, 1, 6, 1, 0]], finished: [[1, "length"]] },
  ];
  const model = new SequenceModel(data, [{ steps: steps.map((step, i) => ({ n: i + 1, ...step })) }], ["request-alpha", "request-beta", "request-gamma"]);
  model.setZoom("kernel");
  return model;
}

test("a request whose steps are like earlier ones is drawn with the calls of those, and its own steps", () => {
  const model = aServer();
  model.follow(1);
  const step = ["step(…)", "forward(…)", "rarely(…)", "OUTPUTS"];
  assert.deepEqual(texts(model), [
    "POST",
    "generate(request_id=request-beta)",
    "step 3: prefill, 4 tokens, joins the batch",
    ...["step(1)", "forward(1)", "rarely(1)", "OUTPUTS 1 request"],
    "[steps 4-5: decode (2 times)",
    ...step,
    "]",
    "stream_generator(request)",
    "step 6: decode, 1 token, finished: length",
    ...step,
  ]);
  const selection = (/** @type {string} */ text) => model.selection(nodeNamed(model, text));
  assert.deepEqual(selection("generate(request_id=request-beta)"), { call: 5, request: 1 });
  assert.deepEqual(selection("forward(…)"), { engine: 0, step: 3 });
});

test("a followed request has its own steps of a loop, and nothing names another request", () => {
  const model = aServer();
  model.follow(0);
  assert.ok(texts(model).includes("step 2: decode, 1 token, finished: stop"));
  assert.ok(!texts(model).some((text) => /steps|beta|gamma/.test(text)));
  model.follow(2);
  assert.deepEqual(texts(model).slice(0, 3), ["POST", "generate(request_id=request-gamma)", "[steps 4-5: decode (2 times)"]);
  assert.ok(!texts(model).some((text) => /alpha|beta/.test(text)));
});

test("the number of calls that are not drawn is the same on the page and in Mermaid", () => {
  const model = aServer();
  model.setZoom("phases");
  const { left, remark, items } = model.view("en");
  const n = 20 - everyItem(items).reduce((sum, { kind, node }) => sum + (kind === "call" ? (node.c ?? 1) : 0), 0);
  assert.ok(left.startsWith(`${n} more calls are not drawn`));
  assert.ok(remark.endsWith(left));
  model.setZoom("key");
  assert.ok(model.view("en").left.startsWith("17 more calls are not drawn"));
  assert.equal(model.view("en").remark, "nothing"); // the overview's own, as in sequence.mmd
});

test("find looks in texts, results and lifelines, and opens the way", () => {
  const model = aDiagram();
  assert.equal(model.find("ALLOCATE", "en").length, 2);
  assert.equal(model.find("Kernels", "en").length, 2);
  assert.equal(model.find("output", "en").length, 2);
  assert.deepEqual(model.find(" ", "en"), []);
  for (const zoom of ZOOMS) {
    for (const call of model.calls) {
      model.setZoom(zoom);
      const node = model.reveal(call);
      assert.ok(everyItem(model.view("en").items).some((item) => item.node === node), `${zoom} ${call.n}`);
    }
  }
});

test("a span is drawn as its own call, as the nearest call around it, or as that of its caller", () => {
  const model = aDiagram();
  assert.deepEqual(model.nearest(11).n, [11]);
  assert.deepEqual(model.nearest(12).n, [11]);
  assert.equal(model.nearest(99), undefined);
  assert.deepEqual(model.nearest(99, (span) => (span === 99 ? 15 : -1)).n, [10]);
  assert.deepEqual(model.selection(model.nearest(11)), { call: 11, engine: 0, step: 0 });
});

test("runs of span numbers hold their numbers and no other", () => {
  const runs = [3, 2, 2, 10, 1];
  assert.deepEqual([...Array(20).keys()].filter((n) => inRuns(runs, n)), [3, 5, 7, 17]);
});

test("Mermaid text has boxes, activations and loops", () => {
  const model = aDiagram();
  model.setZoom("kernel");
  const text = toMermaid(model.view("zh"));
  assert.match(text, /^sequenceDiagram\n {4}%% /);
  assert.match(text, /box transparent 中engine\n {8}participant Engine_id as 中Engine\n/);
  assert.match(text, /loop 中steps 2-3: decode\n {8}script_id->>\+Engine_id: 中step\(\)/);
  assert.equal(text.match(/->>\+/g).length, text.match(/-->>-|deactivate/g).length);
});

test("text that Mermaid would take for syntax is escaped", () => {
  assert.equal(escapeMermaid("a;b #x lifestyle: Wrap"), "a#59;b #35;x lifestyl#101;: Wrap");
  assert.equal(escapeMermaid("wrap: a "), "#119;rap: a#32;");
  assert.equal(escapeMermaid("schedule(n=7, [1, 2]) ×4: 预填充"), "schedule(n=7, [1, 2]) ×4: 预填充");
});

test("everything has room: heads stand apart, labels fit between lifelines, and all is inside the drawing", () => {
  const model = aDiagram();
  const measure = (text, size = "label") => text.length * (size === "title" ? 8 : 7);
  for (const zoom of ZOOMS) {
    model.setZoom(zoom);
    const layout = layOut(model.view("en"), measure);
    const heads = layout.heads.filter(({ kind }) => kind === "lifeline");
    heads.slice(1).forEach((head, i) => assert.ok(head.x > heads[i].x + heads[i].width));
    for (const { x, y, width, height, tag, kind } of [...layout.under, ...layout.bars, ...layout.parts.flatMap(({ shapes }) => shapes)]) {
      const left = tag === "text" && kind.includes("middle") ? x - width / 2 : x;
      assert.ok(left >= 0 && left + width <= layout.width && y >= 0 && y + (tag === "text" ? 0 : height) <= layout.height, `${zoom} ${kind}`);
    }
  }
});

test("a label never breaks a name", () => {
  const measure = (text) => text.length * 7;
  assert.deepEqual(wrapText("EngineCoreClient.make_async_mp_client(executor_class=UniProcExecutor)", 60, 9, measure), ["EngineCoreClient.make_async_mp_client(", "executor_class=", "UniProcExecutor)"]);
  assert.deepEqual(wrapText("a b c", 21, 2, measure), ["a b", "c"]);
  assert.deepEqual(wrapText("a b c d", 7, 2, measure), ["a", "b…"]);
});

/** The forward pass as tables: the whole model with equal layers in one row, and one layer in full; and the roofline. */

import { h, scrollFrame, withCode } from "../base/dom.js";
import { byteSize, duration, number, percent, rate, shortCount, threeDigits } from "../base/quantities.js";
import { formatRanges } from "../base/ranges.js";
import { t, visible } from "../base/text.js";
import { slots } from "../run/replay.js";
import { select, selected } from "../run/selection.js";
import { addKnown, allParts, layerAttention, onCpu, sumWork } from "./model.js";
import { requestReads } from "./reads.js";
import { attainable, limitShare, rooflineChart } from "./roofline.js";
import { hasLayers, timedParts } from "./times.js";

/** @typedef {import("./model.js").Part} Part */
/** @typedef {import("./model.js").Work} Work */

/**
 * @typedef {object} LayersInput
 * @property {import("../run/data.js").Run} run
 * @property {import("../run/replay.js").Replay} replay
 * @property {import("../run/replay.js").State} state
 * @property {import("./model.js").Model} model
 * @property {import("./model.js").Batch} batch
 * @property {import("./model.js").Forward} forward
 * @property {import("./times.js").StepTimes | null} times null until the calls are read
 * @property {import("./roofline.js").Limit | null} limit
 * @property {import("../calls/calls.js").Calls | null} calls
 * @property {import("./view.js").ModelChoice} choice
 * @property {() => void} update draws the section again
 *
 * @typedef {LayersInput & {timed: import("./times.js").TimedPart[], total: Work}} PanelInput with the sum of all parts
 *
 * @typedef {object} Row
 * @property {(Node | string)[]} label
 * @property {string} [note] under the label
 * @property {string} shapes
 * @property {Work} work
 * @property {number | null | undefined} us undefined where a call of another row includes it
 * @property {Work} [timed] work that the time is of, if it differs
 * @property {string[]} unknown
 * @property {string} [kind]
 */

const MOST_BLOCK_LINKS = 8;
const MOST_SLOT_CHARACTERS = 60;
const WORK_COLUMNS = ["part", "shapes", "bytes", "flops", "share", "time", "intensity", "limit"];

/**
 * Return the panels: the forward pass, one layer in full, the limit. The first layer is chosen if none is.
 * @param {LayersInput} input
 */
export function layersPanels(input) {
  const { forward, times, choice } = input;
  const every = forward.groups.flatMap(({ layers }) => layers).sort((a, b) => a - b);
  if (choice.layer === null || !every.includes(choice.layer)) choice.layer = every[0] ?? null;
  const own = { ...input, timed: times ? timedParts(forward, times.parts) : [], total: sumWork(allParts(forward)) };
  return [forwardPanel(own), choice.layer !== null && layerPanel(own, choice.layer, every), limitPanel(own)];
}

/**
 * Return the whole forward pass as a table; layers with the same shapes are one row, which opens.
 * @param {PanelInput} input
 */
function forwardPanel(input) {
  const { forward, times, total } = input;
  const rows = [
    ...forward.before.map((part) => partRow(input, part, -1)),
    ...forward.groups.flatMap((group) => groupRows(input, group)),
    ...forward.after.map((part) => partRow(input, part, -1)),
  ];
  const us = addKnown(times?.forward ?? null, times?.parts.get("-1 logits") ?? null);
  rows.push({ label: [h("strong", {}, t("model.total"))], shapes: "", work: total, us, unknown: unknownOf(allParts(forward)), kind: "total" });
  return h(
    "section",
    { class: "panel wide", "data-shows": "forward" },
    h("h4", {}, t("model.forward"), " ", h("small", {}, t("model.forward.lead"))),
    timesSentence(input),
    workTable(input, rows, "model.forward"),
    ...unknownSentences(rows),
    howComputed(input),
  );
}

/**
 * Return the row of layers with the same shapes, and a row for each of them if it is open.
 * @param {PanelInput} input
 * @param {import("./model.js").Layers} group
 * @returns {Row[]}
 */
function groupRows(input, { layers, parts }) {
  const { batch, forward, times, choice, update } = input;
  const shape = [batch.tokens, forward.hidden];
  /** @param {(Node | string)[]} label @param {number[]} own @returns {Row} */
  const row = (label, own) => ({
    label,
    shapes: shapesText(shape, shape),
    work: sumWork(own.flatMap(() => parts)),
    us: own.map((layer) => times?.layers.get(layer) ?? null).reduce(addKnown),
    unknown: unknownOf(parts),
  });
  if (layers.length === 1) return [row([layerButton(input, layers[0])], layers)];
  const key = layers.join(",");
  const open = choice.opened.has(key);
  const label = t("model.layers", { layers: formatRanges(layers) });
  const button = h(
    "button",
    {
      type: "button",
      class: "opens",
      "aria-expanded": String(open),
      "aria-label": label,
      onclick: () => {
        if (open) choice.opened.delete(key);
        else choice.opened.add(key);
        update();
      },
    },
    label,
  );
  const inner = open ? layers.map((layer) => ({ ...row([layerButton(input, layer)], [layer]), kind: "inner" })) : [];
  return [row([button, h("strong", {}, ` ×${layers.length}`)], layers), ...inner];
}

/**
 * Return one layer with all of its parts.
 * @param {PanelInput} input
 * @param {number} layer
 * @param {number[]} every number of a layer
 */
function layerPanel(input, layer, every) {
  const { forward, times, choice, update } = input;
  const parts = forward.groups.find(({ layers }) => layers.includes(layer))?.parts ?? [];
  const rows = parts.map((part) => partRow(input, part, layer));
  const known = rows.reduce((sum, { us }) => sum + (us ?? 0), 0);
  const whole = times?.layers.get(layer) ?? null;
  const note = whole && known ? t("model.layer.between", { time: duration(Math.max(0, whole - known)) }) : "";
  rows.push({ label: [h("strong", {}, t("model.layer.whole"))], note, shapes: "", work: sumWork(parts), us: whole, unknown: unknownOf(parts), kind: "total" });
  return h(
    "section",
    { class: "panel wide", "data-shows": "layer" },
    h(
      "h4",
      {},
      h("label", {}, `${t("model.layer.full")} `, h(
        "select",
        {
          "aria-label": t("model.layer.choose"),
          onchange: (/** @type {Event} */ event) => {
            choice.layer = Number(/** @type {HTMLSelectElement} */ (event.target).value);
            update();
          },
        },
        ...every.map((each) => h("option", { value: each, selected: each === layer }, each)),
      )),
      " ",
      h("small", {}, t("model.layer.lead")),
    ),
    workTable(input, rows, "model.layer.full"),
    ...unknownSentences(rows),
  );
}

/**
 * Return the limit, and each kind of part in the roofline chart.
 * @param {PanelInput} input
 */
function limitPanel({ forward, timed: launched, limit, model, total: whole }) {
  const all = allParts(forward);
  const timed = onCpu(model) ? launched : [];
  const points = [...new Set(all.map(({ kind }) => kind))].flatMap((kind) => {
    const own = timed.filter(({ part }) => part.kind === kind);
    const work = sumWork(own.length ? own.flatMap(({ parts }) => parts) : all.filter((part) => part.kind === kind));
    const us = own.reduce((sum, each) => sum + each.us, 0);
    if (!work.flops || !work.bytes) return [];
    return [{ label: t(`model.part.${kind}`), intensity: work.flops / work.bytes, flops: us ? (1e6 * work.flops) / us : null, us, work }];
  });
  const shown = timed.length ? points.filter(({ flops }) => flops !== null) : points;
  return h(
    "section",
    { class: "panel wide", "data-shows": "limit" },
    h("h4", {}, t("model.limit"), " ", h("small", {}, t("model.limit.lead"))),
    h(
      "p",
      {},
      limit
        ? t(`model.limit.${limit.source}`, { flops: rate(limit.flops, "FLOP/s"), bytes: rate(limit.bytes, "B/s"), ridge: threeDigits(limit.flops / limit.bytes), device: visible(model.deviceName ?? "") })
        : t(onCpu(model) || !model.deviceName ? "model.limit.none" : "model.limit.unknown", { device: visible(model.deviceName ?? "") }),
    ),
    limit &&
      whole.flops &&
      whole.bytes &&
      h("p", {}, t("model.limit.whole", { intensity: threeDigits(whole.flops / whole.bytes), verdict: verdict(whole.flops / whole.bytes, limit) })),
    limit &&
      shown.length > 0 &&
      h(
        "div",
        { class: "roofline-frame" },
        rooflineChart(limit, shown),
        h(
          "ol",
          { class: "roofline-key" },
          ...shown.map(({ label, intensity, flops, work, us }) =>
            h(
              "li",
              {},
              h("strong", {}, label),
              t(flops === null ? "model.limit.possible" : "model.limit.measured", {
                intensity: threeDigits(intensity),
                rate: rate(flops ?? attainable(limit, intensity), "FLOP/s"),
                share: percent(limitShare(work.flops ?? 0, work.bytes ?? 0, us / 1e6, limit)),
                verdict: verdict(intensity, limit),
              }),
            ),
          ),
        ),
      ),
  );
}

/**
 * Return the limit that work of this intensity meets.
 * @param {number} intensity FLOPs per byte
 * @param {import("./roofline.js").Limit} limit
 */
function verdict(intensity, limit) {
  return t(intensity < limit.flops / limit.bytes ? "model.limit.memory" : "model.limit.compute");
}

/**
 * @param {PanelInput} input
 * @param {Part} part
 * @param {number} layer -1 outside of the layers
 * @returns {Row}
 */
function partRow(input, part, layer) {
  const timed = input.timed.find((each) => each.layer === layer && each.part === part);
  const name = part.kind === "act" ? "" : visible(part.name);
  return {
    label: [t(`model.part.${part.kind}`), ...cacheNote(input, part, layer)],
    note: [name, part.formula && `= ${part.formula}`].filter(Boolean).join(" "),
    shapes: shapesText(part.input, part.output),
    work: sumWork([part]),
    us: part.kind === "residual" ? undefined : (timed?.us ?? null),
    timed: timed && sumWork(timed.parts),
    unknown: unknownOf([part]),
    kind: part.kind,
  };
}

/**
 * Return the slots that a part writes in the KV cache or the blocks that it reads, as a sentence with buttons.
 * @param {LayersInput} input
 * @param {Part} part
 * @param {number} layer
 * @returns {Node[]}
 */
function cacheNote({ run, replay, state, model }, { kind }, layer) {
  if (kind !== "write" && kind !== "attention") return [];
  if (kind === "write") {
    const written = (state.step.scheduled ?? []).flatMap(([r]) => slots(state, replay.engine, r));
    return [h("small", { class: "cache" }, written.length ? t("model.cache.writes", { n: written.length, slots: shortRanges(written) }) : t("model.cache.writes.unknown"))];
  }
  const [, , , , window = 0] = layerAttention(model, layer) ?? [];
  const blocks = [...new Set(requestReads(state, replay.engine, window).flatMap((each) => each.blocks))].sort((a, b) => a - b);
  return [
    h(
      "small",
      { class: "cache" },
      blocks.length ? `${t("model.cache.reads", { n: blocks.length })} ` : t("model.cache.reads.unknown"),
      ...blocks.slice(0, MOST_BLOCK_LINKS).flatMap((block) => [h("button", { type: "button", class: "link", onclick: () => select(run, { block }) }, block), " "]),
      blocks.length > MOST_BLOCK_LINKS && "…",
    ),
  ];
}

/** @param {number[]} numbers */
function shortRanges(numbers) {
  const text = formatRanges(numbers);
  return text.length > MOST_SLOT_CHARACTERS ? `${text.slice(0, text.lastIndexOf(",", MOST_SLOT_CHARACTERS))}, …` : text;
}

/**
 * Return the rows as a table.
 * @param {PanelInput} input
 * @param {Row[]} rows
 * @param {string} label key of a text
 */
function workTable({ limit, model, times, total }, rows, label) {
  const measured = onCpu(model);
  const columns = WORK_COLUMNS.filter((column) => (column !== "time" || times?.parts.size) && (column !== "limit" || (limit && measured && times?.parts.size)));
  /** @param {Row} row @param {string} column */
  const value = ({ work, shapes, us, timed, kind }, column) => {
    const { flops, bytes } = timed ?? work;
    switch (column) {
      case "shapes":
        return [h("span", { class: "shape" }, shapes)];
      case "bytes":
        return work.bytes === null ? ["–"] : [byteSize(work.bytes), ...bytesParts(work).map((each) => h("small", {}, each))];
      case "flops":
        return [work.flops === null ? "–" : shortCount(work.flops)];
      case "share": {
        if (work.flops === null || !total.flops) return ["–"];
        const share = work.flops / total.flops;
        return [h("span", { class: "track" }, h("i", { style: { width: `${100 * share}%` } })), percent(share)];
      }
      case "time":
        return us === undefined ? [h("small", {}, t("model.time.norm"))] : us === null ? ["–"] : [duration(us)];
      case "intensity":
        return [work.flops === null || !work.bytes ? "–" : threeDigits(work.flops / work.bytes)];
      default:
        if (!us || flops === null || bytes === null || !limit || kind === "total") return ["–"];
        return [
          percent(limitShare(flops, bytes, us / 1e6, limit)),
          flops > 0 && h("small", {}, rate((1e6 * flops) / us, "FLOP/s")),
          h("small", {}, rate((1e6 * bytes) / us, "B/s")),
        ];
    }
  };
  return scrollFrame(
    t(label),
    h(
      "table",
      { class: "boundary work" },
      h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { scope: "col", class: column === "part" || column === "shapes" ? null : "number" }, columnName(column, measured))))),
      h(
        "tbody",
        {},
        ...rows.map((row) =>
          h(
            "tr",
            { class: row.kind === "total" || row.kind === "inner" ? row.kind : null, "data-part": row.kind ?? "layers" },
            h("th", { scope: "row" }, ...row.label, row.note && h("small", { class: "note" }, row.note)),
            ...columns.slice(1).map((column) => h("td", { class: column === "shapes" ? "wide" : "number", "data-label": columnName(column, measured) }, ...value(row, column))),
          ),
        ),
      ),
    ),
  );
}

/**
 * @param {string} column
 * @param {boolean} measured
 */
function columnName(column, measured) {
  return t(column === "time" && !measured ? "model.column.launch" : `model.column.${column}`);
}

/** @param {Work} work */
function bytesParts({ weights, activations, kv }) {
  return [
    weights ? t("model.bytes.weights", { size: byteSize(weights) }) : "",
    activations ? t("model.bytes.activations", { size: byteSize(activations) }) : "",
    kv ? t("model.bytes.kv", { size: byteSize(kv) }) : "",
  ].filter(Boolean);
}

/**
 * @param {number[] | null} input
 * @param {number[] | null} output
 */
function shapesText(input, output) {
  return input && output ? `[${input.join(", ")}] →\n[${output.join(", ")}]` : "–";
}

/** @param {Part[]} parts */
function unknownOf(parts) {
  return [...new Set(parts.flatMap(({ unknown }) => unknown ?? []))];
}

/** @param {Row[]} rows */
function unknownSentences(rows) {
  const found = [...new Set(rows.flatMap(({ unknown }) => unknown))];
  return found.map((code) => h("p", { class: "empty" }, `– : ${t(`model.unknown.${code}`)}`));
}

/**
 * @param {LayersInput} input
 * @param {number} layer
 */
function layerButton({ choice, update }, layer) {
  const label = t("model.layer", { layer });
  return h(
    "button",
    {
      type: "button",
      class: "link",
      "aria-label": label,
      "aria-pressed": String(choice.layer === layer),
      onclick: () => {
        choice.layer = layer;
        update();
      },
    },
    label,
  );
}

/**
 * Return a sentence about the meaning of the times, or about how to record some.
 * @param {LayersInput} input
 */
function timesSentence({ run, replay, calls, model }) {
  if (replay.engine.whatIf) return h("p", { class: "empty" }, t("model.times.whatif"));
  if (!calls) return h("p", { class: "empty" }, t("model.times.reading"));
  const { engine, step: index } = selected(run);
  const call = calls.stepCall(engine, index);
  if (call !== null && hasLayers(calls, call)) {
    return h("p", {}, t(!onCpu(model) ? "model.times.gpu" : model.ops === "triton" ? "model.times.interpreter" : "model.times.cpu"));
  }
  const step = firstWithLayers(replay.engine, calls, engine);
  return h(
    "p",
    { class: "empty" },
    ...withCode(t("model.times.none")),
    step !== null && " ",
    step !== null && h("button", { type: "button", class: "link", onclick: () => select(run, { step }) }, t("model.times.first", { n: number(replay.engine.steps[step].n) })),
  );
}

/** @type {WeakMap<object, number | null>} */
const firstLayers = new WeakMap();

/**
 * Return the first step in which a layer was recorded.
 * @param {import("../run/data.js").Engine} engine
 * @param {import("../calls/calls.js").Calls} calls
 * @param {number} index of the engine
 */
function firstWithLayers(engine, calls, index) {
  let found = firstLayers.get(engine);
  if (found === undefined) {
    const step = engine.steps.findIndex((_, i) => {
      const call = calls.stepCall(index, i);
      return call !== null && hasLayers(calls, call);
    });
    found = step < 0 ? null : step;
    firstLayers.set(engine, found);
  }
  return found;
}

/**
 * Return the explanation of each figure, with the numbers of this step.
 * @param {LayersInput} input
 */
function howComputed({ batch, model }) {
  const entries = ["shapes", "linear", "attention", "norm", "act", "bytes", "kv", "logits", "limit"];
  return h(
    "details",
    { class: "source" },
    h("summary", {}, t("model.how")),
    h("ul", {}, ...entries.map((entry) => h("li", {}, t(`model.how.${entry}`, { tokens: number(batch.tokens), samples: number(batch.samples), kv: model.kvSize })))),
  );
}

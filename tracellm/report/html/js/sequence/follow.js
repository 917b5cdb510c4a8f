/**
 * One request's way through the sequence diagram: its own calls, and its own steps.
 *
 * The whole diagram draws calls of several requests together, and steps that made the same calls as earlier ones only
 * once. Both are taken apart here: a call is drawn with the request's own text and spans, and each of the request's
 * steps with its own calls or with those that stand for them (`k`). Steps in which nothing changed for the request are a
 * loop.
 */

import { formatRanges, parseRanges } from "../base/ranges.js";
import { t } from "../base/text.js";

/** @typedef {import("../run/data.js").Step} Step */
/** @typedef {import("./model.js").SequenceData} SequenceData */
/** @typedef {import("./model.js").SequenceNode} SequenceNode */
/** @typedef {"own" | "like" | ""} Within whether a call is inside one of the request's steps, or stands for one in it */

const LEAST_NAME = 12;
const EVENTS = /** @type {const} */ (["new", "resumed", "preempted", "aborted"]);

/**
 * Return the diagram of one request.
 * @param {SequenceData} data
 * @param {{steps: Step[]}[]} engines
 * @param {number} request
 * @param {string[]} ids the ids of all requests
 * @returns {SequenceData}
 */
export function followRequest(data, engines, request, ids = []) {
  const follower = new Follower(data, engines, request, ids);
  const items = follower.items(data.whole.items, "");
  return { ...data, overview: null, whole: { ...data.whole, items }, texts: follower.texts };
}

class Follower {
  /**
   * @param {SequenceData} data
   * @param {{steps: Step[]}[]} engines
   * @param {number} request
   * @param {string[]} ids
   */
  constructor(data, engines, request, ids) {
    this.engines = engines;
    this.request = request;
    const own = ids[request] ?? "";
    /** Beginnings of the other requests' ids: long ids are cut in texts. */
    this.others = ids.filter((id) => id.length >= LEAST_NAME).map((id) => id.slice(0, LEAST_NAME)).filter((id) => !own.startsWith(id));
    this.languages = Object.keys(data.texts);
    this.texts = Object.fromEntries(this.languages.map((language) => [language, [...data.texts[language]]]));
    /** @type {Map<number, SequenceNode>} calls by their first spans */
    this.byNumber = new Map();
    /** @type {Map<string, number>} */
    this.made = new Map();
    this._find(data.whole.items);
  }

  /** @param {SequenceNode[]} items */
  _find(items) {
    for (const node of items) {
      if (node.n) this.byNumber.set(node.n[0], node);
      this._find(node.items ?? []);
    }
  }

  /**
   * Return what the request has of some nodes, with neighbouring steps in which nothing changed for it as one loop.
   * @param {SequenceNode[]} nodes
   * @param {Within} within
   */
  items(nodes, within) {
    return this._joined(nodes.flatMap((node) => this._node(node, within)));
  }

  /**
   * @param {SequenceNode} node
   * @param {Within} within
   * @returns {SequenceNode[]}
   */
  _node(node, within) {
    if (!node.g) return this._call(node, within);
    if (node.g === "note") return [];
    if (node.s) return this._group(node);
    const items = this.items(node.items ?? [], within);
    if (!items.length) return [];
    return node.g === "phase" || within ? [{ ...node, items }] : items; // the rounds of a loop are those of several requests
  }

  /**
   * @param {SequenceNode} node
   * @param {Within} within
   * @returns {SequenceNode[]}
   */
  _call(node, within) {
    if (within === "like") return [this._standIn(node)];
    const place = node.r?.indexOf(this.request) ?? -1;
    if (node.r && place < 0) return [];
    const items = this.items(node.items ?? [], within);
    if (!node.r && !within && !items.length) return [];
    const call = { ...node, ...(node.items ? { items } : {}), ...(node.r ? { r: [this.request] } : {}) };
    if (node.e !== undefined) call.t = node.e;
    const own = node.o?.[place];
    if (own) {
      const [text, ...runs] = own;
      const times = runs.slice(2).reduce((sum, often, i) => sum + (i % 2 ? 0 : often), 1);
      Object.assign(call, { t: times > 1 ? this._changed(text, (one) => `${one} ×${times}`) : text, n: runs, c: times });
      delete call.h;
    }
    if (this._namesOther(call.t)) call.t = this._changed(call.t, withoutValues);
    if (call.back !== undefined && this._namesOther(call.back)) call.back = this._changed(call.back, () => "…");
    return [call];
  }

  /**
   * Return a call of another step in place of the same call in one of the request's: its values are not known.
   * @param {SequenceNode} node
   * @returns {SequenceNode}
   */
  _standIn({ n, r, o, e, back, ...node }) {
    if (node.g) return { ...node, items: (node.items ?? []).map((child) => this._standIn(child)) };
    const call = { ...node, t: this._changed(e ?? node.t, node.m ? typeOf : withoutValues) };
    if (node.items) call.items = node.items.map((child) => this._standIn(child));
    return call;
  }

  /**
   * Return the request's steps among those of a group; of other steps, the calls that name the request.
   * @param {SequenceNode} node
   * @returns {SequenceNode[]}
   */
  _group(node) {
    const all = (node.s ?? []).flatMap(([engine, indexes]) => parseRanges(indexes).map((index) => ({ engine, index, calm: this._calm(engine, index) })));
    const mine = all.filter(({ calm }) => calm !== null);
    const [inside, standIns] = [node.items ?? [], (node.k ?? []).flatMap((first) => this.byNumber.get(first) ?? [])];
    const named = !mine.length || node.k ? this.items(inside.filter((child) => !standIns.includes(child)), "") : [];
    const complete = mine.length === all.length;
    const calls = () => (node.k ? standIns.flatMap((call) => (isIn(call, inside) ? this._call(call, "own") : this._standIn(call))) : this.items(inside, "own"));
    const steps = mine.map(({ engine, index, calm }) => this._steps(engine, [index], calm ?? "", (complete ? calls() : calls().map(withoutNumbers))));
    if (named.length && steps.length) steps[0].items?.unshift(...named);
    return steps.length ? this._joined(steps) : named;
  }

  /**
   * Return nodes with successive steps in which nothing changed for the request as one loop, also with calls between them.
   * @param {SequenceNode[]} nodes
   */
  _joined(nodes) {
    /** @type {SequenceNode[]} */
    const found = [];
    let last = -1;
    for (const node of nodes) {
      const before = found[last];
      if (node.s && node.calm && before?.s && before.calm === node.calm && before.s[0][0] === node.s[0][0]) {
        found[last] = this._steps(node.s[0][0], [...indexesOf(before), ...indexesOf(node)], node.calm, before.items ?? []);
        continue;
      }
      if (node.s) last = found.length;
      found.push(node);
    }
    return found;
  }

  /**
   * Return what a step did for the request if nothing else changed for it: prefill or decode; an empty text if something
   * changed, and null if the step did not touch the request.
   * @param {number} engine
   * @param {number} index
   */
  _calm(engine, index) {
    const step = this.engines[engine]?.steps[index];
    if (!step) return null;
    const scheduled = step.scheduled?.find(([r]) => r === this.request);
    const changed = step.finished?.some(([r]) => r === this.request) || EVENTS.some((event) => step[event]?.includes(this.request));
    if (changed) return "";
    return scheduled ? (scheduled[3] ? "decode" : "prefill") : null;
  }

  /**
   * Return the node of some of the request's steps.
   * @param {number} engine
   * @param {number[]} indexes
   * @param {string} calm
   * @param {SequenceNode[]} items
   * @returns {SequenceNode}
   */
  _steps(engine, indexes, calm, items) {
    const steps = indexes.map((index) => this.engines[engine].steps[index]);
    const { request } = this;
    return {
      g: steps.length > 1 ? "loop" : "step",
      t: 0,
      a: items[0]?.a ?? 0,
      b: items[0]?.b ?? 0,
      s: [[engine, formatRanges(indexes)]],
      calm,
      title: () => stepsTitle(steps, request),
      items,
    };
  }

  /** @param {number} text */
  _namesOther(text) {
    return this.languages.some((language) => this.others.some((id) => this.texts[language][text].includes(id)));
  }

  /**
   * Return the number of a text made from another one.
   * @param {number} text
   * @param {(text: string) => string} change
   */
  _changed(text, change) {
    const own = this.languages.map((language) => change(this.texts[language][text]));
    const key = own.join("\0");
    let number = this.made.get(key);
    if (number === undefined) {
      number = this.texts[this.languages[0]].length;
      this.languages.forEach((language, i) => this.texts[language].push(own[i]));
      this.made.set(key, number);
    }
    return number;
  }
}

/**
 * Return what steps did for a request: `step 55: prefill, 37 tokens, joins the batch`.
 * @param {Step[]} steps
 * @param {number} request
 */
function stepsTitle(steps, request) {
  const [step] = steps;
  const scheduled = step.scheduled?.find(([r]) => r === request);
  const what = [];
  if (scheduled) what.push(t(scheduled[3] ? "step.kind.decode" : "step.kind.prefill"));
  if (scheduled && steps.length === 1) what.push(t("sequence.own.tokens", { n: scheduled[1] }));
  if (steps.length === 1) {
    for (const event of EVENTS) if (step[event]?.includes(request)) what.push(t(`sequence.own.${event}`));
    const finished = step.finished?.find(([r]) => r === request);
    if (finished) what.push(t("sequence.own.finished", { reason: finished[1] }));
  }
  const values = { steps: formatRanges(steps.map(({ n }) => n)), what: what.join(t("sequence.own.comma")), n: steps.length };
  return t(steps.length > 1 ? "sequence.own.steps" : "sequence.own.step", values);
}

/** @param {SequenceNode} node */
function indexesOf({ s = [] }) {
  return s.flatMap(([, indexes]) => parseRanges(indexes));
}

/**
 * @param {SequenceNode} call
 * @param {SequenceNode[]} items
 * @returns {boolean}
 */
function isIn(call, items) {
  return items.some((node) => node === call || isIn(call, node.items ?? []));
}

/**
 * Return a node without the numbers of its spans, which are those of other steps too.
 * @param {SequenceNode} node
 * @returns {SequenceNode}
 */
function withoutNumbers({ n, ...node }) {
  return node.items ? { ...node, items: node.items.map(withoutNumbers) } : node;
}

/** @param {string} text */
function withoutValues(text) {
  return text.replace(/\(.+/s, "(…)");
}

/** @param {string} text */
function typeOf(text) {
  return text.replace(/ .*/s, "");
}

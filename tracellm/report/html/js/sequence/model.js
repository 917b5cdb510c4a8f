/**
 * The sequence diagram's calls, which of them are drawn, and the items of the current view, from top to bottom.
 *
 * The data has two trees: the overview of the most important calls, and the whole diagram, every call down to kernels.
 * The overview is drawn as it is. A call of it that is opened shows its callees from the whole diagram, where it has
 * the same first span. All other zooms draw the whole diagram down to a level. Texts are numbers in `texts`, lifelines
 * are numbers in `lifelines`.
 *
 * @typedef {object} SequenceNode a call, a message, or a group of them
 * @property {"loop" | "step" | "phase" | "note"} [g] kind of a group, or a remark; absent for a call
 * @property {number} t its text; a note's has several lines
 * @property {number} [a] lifeline that the arrow leaves
 * @property {number} [b] lifeline that it reaches
 * @property {number[]} [n] numbers of its spans: the first, then pairs of a distance and how often it follows
 * @property {number} [c] how many spans, if several
 * @property {number} [h] calls inside that have no arrow even in the whole diagram
 * @property {number} [l] level of detail, 0 for requests to 3 for kernels
 * @property {1} [m] a message to another process, thread or task
 * @property {1} [x] it failed
 * @property {number[]} [r] rows of the requests that it is about
 * @property {number} [back] text of its return
 * @property {[text: number, ...runs: number[]][]} [o] for each of several requests, the text of its own calls and their numbers
 * @property {number} [e] its text without a count that depends on the calls drawn together
 * @property {[engine: number, steps: string][]} [s] the steps that a group stands for, by their indexes
 * @property {number[]} [k] first spans of the calls that stand for those of the group's steps, if these are not all in it
 * @property {string} [calm] of a followed request's step: what it did for the request, if nothing changed for it
 * @property {() => string} [title] heading of a followed request's steps, in place of `t`
 * @property {SequenceNode[]} [items] what happened within
 *
 * @typedef {object} SequenceTree
 * @property {number[]} lifelines
 * @property {Record<string, number>} boxes text of each process's box
 * @property {number} remark
 * @property {number} left calls that are not drawn
 * @property {SequenceNode[]} items
 *
 * @typedef {object} SequenceData
 * @property {SequenceTree | null} overview null for a followed request
 * @property {SequenceTree} whole
 * @property {{id: number, label: number, below: number, process: number}[]} lifelines
 * @property {Record<string, string[]>} texts
 *
 * @typedef {"" | "open" | "close"} Toggle what a click on an item's mark does
 *
 * @typedef {object} Arrow
 * @property {"call" | "message" | "return" | "error"} kind
 * @property {number} source
 * @property {number} target
 * @property {string} text
 * @property {boolean} opens whether it begins an activation of its target
 * @property {boolean} closes whether it ends one of its source
 * @property {SequenceNode} node
 * @property {Toggle} toggle
 *
 * @typedef {object} Block a note, the heading of a phase, a loop, or a closed group
 * @property {"note" | "phase" | "loop" | "folded"} kind
 * @property {number} first outermost lifelines that a note is over
 * @property {number} last
 * @property {string} text
 * @property {DiagramItem[]} items what a loop has inside
 * @property {SequenceNode} node
 * @property {Toggle} toggle
 *
 * @typedef {{kind: "close", lifeline: number}} Close the end of an activation without a return
 * @typedef {Arrow | Block | Close} DiagramItem
 *
 * @typedef {object} Lifeline
 * @property {number} key its number in the data
 * @property {string} id
 * @property {string} label
 * @property {string} below
 *
 * @typedef {object} DiagramView what is drawn
 * @property {Lifeline[]} lifelines
 * @property {{label: string, lifelines: number[]}[]} boxes
 * @property {DiagramItem[]} items
 * @property {number} arrows number of calls and messages among the items
 * @property {string} remark
 * @property {string} left what is not drawn, and why
 */

import { parseRanges } from "../base/ranges.js";
import { t } from "../base/text.js";
import { followRequest } from "./follow.js";

export const ZOOMS = ["phases", "key", "request", "step", "layer", "kernel"];
const FIRST_LEVEL = 2;
const MOST_CALL_NAMES = 3;
/** Names of the calls that write the response to an HTTP request. */
const RESPONSE = /(stream|full)_generator$/;

/** @typedef {{steps: import("../run/data.js").Step[]}} EngineSteps */
/** @typedef {SequenceData & {overview: SequenceTree}} AllRequests */

/** The calls and groups of a run's diagram, and those that are drawn at the current zoom; used by `SequenceView`. */
export class SequenceModel {
  /**
   * @param {AllRequests} all
   * @param {EngineSteps[]} engines
   * @param {string[]} ids the ids of the requests
   */
  constructor(all, engines, ids = []) {
    this.all = all;
    this.engines = engines;
    this.ids = ids;
    this.zoom = "key";
    /** @type {number | null} */
    this.request = null;
    /** @type {Set<SequenceNode>} */
    this.opened = new Set();
    /** @type {Set<SequenceNode>} */
    this.closed = new Set();
    const keyCalls = callsIn(all.overview);
    /** Number of recorded calls. */
    this.recorded = all.overview.left + keyCalls.reduce((sum, call) => sum + (call.c ?? 1), 0);
    /** The calls of the overview, by their names. */
    this.keyNames = new Set(keyCalls.map((call) => nameOf(call, all)));
    this._read(all);
  }

  /**
   * Read the data of all requests, or of the followed one.
   * @param {SequenceData} data
   */
  _read(data) {
    /** @type {SequenceData} */
    this.data = data;
    /** @type {Map<SequenceNode, SequenceNode>} */
    this.parents = new Map();
    /** @type {Map<SequenceNode, {size: number, level: number}>} number of calls in a node, and its coarsest level */
    this.sums = new Map();
    /** @type {SequenceNode[]} */
    this.calls = this._prepare(data.whole.items);
    /** @type {Set<SequenceNode>} nodes of the whole diagram */
    this.ofWhole = new Set(this.sums.keys());
    const keyCalls = data.overview ? this._prepare(data.overview.items) : [];
    /** @type {Map<number, SequenceNode>} calls of the whole diagram by their first spans */
    this.byNumber = new Map();
    for (const call of this.calls) if (call.n) this.byNumber.set(call.n[0], call);
    /** @type {Map<SequenceNode, SequenceNode>} call of the whole diagram to the one of the overview */
    this.inOverview = new Map();
    /** @type {Set<SequenceNode>} nodes of the whole diagram with a key call in them */
    this.holdsKey = new Set();
    for (const call of keyCalls) {
      const twin = this.twin(call);
      if (!twin) continue;
      this.inOverview.set(twin, call);
      for (const node of this._around(twin)) this.holdsKey.add(node);
    }
    if (!data.overview) {
      const isKey = (/** @type {string} */ name) => this.keyNames.has(name) || RESPONSE.test(name);
      for (const call of this.calls) if (isKey(nameOf(call, data))) for (const node of this._around(call)) this.holdsKey.add(node);
    }
    const groups = [...this.ofWhole].filter((node) => node.s);
    /** @type {Map<SequenceNode, SequenceNode[]>} groups of steps of the whole diagram in each group of the overview */
    this.groupsIn = new Map();
    for (const node of this.sums.keys()) {
      if (this.ofWhole.has(node) || !node.s) continue;
      const steps = new Map(node.s.map(([engine, indexes]) => [engine, new Set(parseRanges(indexes))]));
      const inside = groups.filter(({ s = [] }) => s.some(([engine, indexes]) => steps.get(engine)?.has(parseInt(indexes, 10))));
      this.groupsIn.set(node, inside);
      for (const group of inside) this.inOverview.set(group, node);
    }
  }

  /**
   * Return what the whole diagram has inside a node.
   * @param {SequenceNode} node
   */
  wholeInside(node) {
    const groups = this.groupsIn.get(node);
    if (groups?.length === 1) return groups[0].items ?? [];
    return groups ?? this.twin(node)?.items ?? node.items ?? [];
  }

  /**
   * Return the number of calls that the whole diagram has inside a node.
   * @param {SequenceNode} node
   */
  sizeInside(node) {
    return this._sizeOf(this.wholeInside(node));
  }

  /** @param {SequenceNode[]} nodes */
  _sizeOf(nodes) {
    return nodes.reduce((sum, node) => sum + this.size(node), 0);
  }

  /**
   * Fill `parents` and `sums`, and return the calls in their order.
   * @param {SequenceNode[]} items
   */
  _prepare(items) {
    /** @type {SequenceNode[]} */
    const calls = [];
    /** @param {SequenceNode} node */
    const add = (node) => {
      if (!node.g) calls.push(node);
      let size = node.g ? 0 : 1;
      let level = node.x || node.g === "note" ? 0 : node.g ? 9 : (node.l ?? 0);
      for (const child of node.items ?? []) {
        this.parents.set(child, node);
        const below = add(child);
        size += below.size;
        level = Math.min(level, below.level);
      }
      const sum = { size, level };
      this.sums.set(node, sum);
      return sum;
    };
    items.forEach(add);
    return calls;
  }

  /**
   * Return a node and all around it, from inside to outside.
   * @param {SequenceNode | undefined} node
   */
  _around(node) {
    const found = [];
    for (let at = node; at; at = this.parents.get(at)) found.push(at);
    return found;
  }

  /** @param {SequenceNode} node */
  size(node) {
    return this.sums.get(node)?.size ?? 0;
  }

  /**
   * Return the call of the whole diagram with the same first span as a call of the overview.
   * @param {SequenceNode} call
   */
  twin(call) {
    return call.n && this.byNumber.get(call.n[0]);
  }

  /** Return whether the overview is drawn without any change. */
  get untouched() {
    return this.zoom === "key" && !this.opened.size && !this.closed.size && this.request === null;
  }

  /** @param {string} zoom */
  setZoom(zoom) {
    this.zoom = zoom;
    this.opened.clear();
    this.closed.clear();
  }

  /**
   * Open a node that is closed or shows only some of its calls, or close one that shows all.
   * @param {SequenceNode} node
   * @param {Toggle} toggle
   */
  toggle(node, toggle) {
    if (toggle === "close") {
      this.opened.delete(node);
      this.closed.add(node);
    } else if (toggle === "open") {
      const wasClosed = this.closed.delete(node);
      if (!wasClosed || !this._inside(node).length) this.opened.add(node);
    }
  }

  /**
   * Draw only what concerns a request, or everything again.
   * @param {number | null} request
   */
  follow(request) {
    if (request === this.request) return;
    this.request = request;
    this.opened.clear();
    this.closed.clear();
    this._read(request === null ? this.all : followRequest(this.all, this.engines, request, this.ids));
  }

  /** Return the tree that is drawn. */
  get tree() {
    return (this.zoom === "key" && this.data.overview) || this.data.whole;
  }

  /**
   * Return the nodes within a node that are drawn.
   * @param {SequenceNode} node
   */
  _inside(node) {
    if (this.closed.has(node)) return [];
    if (this.opened.has(node)) return this.wholeInside(node);
    const parent = this.parents.get(node);
    const unfolded = isFrame(node) && parent && this.opened.has(parent);
    return (node.items ?? []).filter((child) => unfolded || this._isWanted(child));
  }

  /**
   * Return whether the zoom draws a node.
   * @param {SequenceNode} node
   */
  _isWanted(node) {
    if (this.zoom === "key") return !this.ofWhole.has(node) || this.holdsKey.has(node);
    if (this.zoom !== "phases") return (this.sums.get(node)?.level ?? 0) <= ZOOMS.indexOf(this.zoom) - FIRST_LEVEL;
    const isCall = !node.g && !node.m;
    const holdsCalls = isFrame(node) && (node.g === "phase" || node.items?.some((child) => !child.g && !child.m));
    return Boolean(isCall || holdsCalls) && this._around(this.parents.get(node)).every(isFrame);
  }

  /**
   * Return what a click on a node's mark does: open it if something within is not drawn, or else close it.
   * @param {SequenceNode} node
   * @param {SequenceNode[]} inside
   * @returns {Toggle}
   */
  _toggle(node, inside) {
    const own = node.items ?? [];
    const isOverview = !this.ofWhole.has(node);
    const hasMore = inside.length < own.length || (isOverview && this.sizeInside(node) > this._sizeOf(own));
    return hasMore && !this.opened.has(node) ? "open" : inside.length ? "close" : "";
  }

  /**
   * Return what is drawn, with the texts of a language.
   * @param {string} language
   * @returns {DiagramView}
   */
  view(language) {
    const { data, tree } = this;
    const texts = data.texts[language];
    const items = this._items(tree.items.filter((node) => this._isWanted(node)), texts);
    const used = usedLifelines(items);
    const keys = this.untouched ? tree.lifelines : this._order().filter((key) => used.has(key));
    const lifelines = keys.map((key) => {
      const { id, label, below } = data.lifelines[key];
      return { key, id: texts[id], label: texts[label], below: texts[below] };
    });
    /** @type {Map<number, number[]>} */
    const processes = new Map();
    for (const key of keys) {
      const { process } = data.lifelines[key];
      processes.set(process, [...(processes.get(process) ?? []), key]);
    }
    const boxes = processes.size < 2 ? [] : [...processes].map(([process, own]) => ({ label: texts[tree.boxes[process] ?? data.whole.boxes[process] ?? 0], lifelines: own }));
    const arrows = arrowsIn(items);
    const left = this._left(arrows);
    const zoom = t("sequence.remark", { zoom: t(`sequence.zoom.${this.zoom}`), drawn: this.count(arrows.length) });
    return { lifelines, boxes, items, arrows: arrows.length, left, remark: this.untouched ? texts[this.all.overview.remark] : left ? `${zoom}; ${left}` : zoom };
  }

  /**
   * Return the number of drawn arrows, and that of all but in the overview, which draws calls again that the whole diagram
   * has in one loop.
   * @param {number} drawn
   */
  count(drawn) {
    return this.zoom === "key" ? t("sequence.drawn.key", { n: drawn }) : t("sequence.drawn", { drawn, all: this.calls.length });
  }

  /**
   * Return how many calls are not drawn, and why. Of a followed request, this is not known.
   * @param {Arrow[]} arrows
   */
  _left(arrows) {
    const n = this.recorded - arrows.reduce((sum, { node }) => sum + (node.c ?? 1), 0);
    return this.request !== null || n <= 0 ? "" : t("sequence.left", { n });
  }

  /** Return all lifelines in their order: the overview's, with the others beside those that they follow. */
  _order() {
    const { overview, whole } = this.data;
    if (this.zoom !== "key" || !overview) return whole.lifelines;
    const order = [...overview.lifelines];
    const process = (/** @type {number} */ key) => this.data.lifelines[key].process;
    whole.lifelines.forEach((key, place) => {
      if (order.includes(key)) return;
      const before = whole.lifelines.slice(0, place).findLast((other) => process(other) === process(key));
      const first = order.findIndex((other) => process(other) === process(key));
      order.splice(before !== undefined ? order.indexOf(before) + 1 : first >= 0 ? first : order.length, 0, key);
    });
    return order;
  }

  /**
   * Return the items of nodes that are drawn.
   * @param {SequenceNode[]} nodes
   * @param {string[]} texts
   * @returns {DiagramItem[]}
   */
  _items(nodes, texts) {
    return nodes.flatMap((node) => {
      const inside = this._inside(node);
      const toggle = this._toggle(node, inside);
      const below = this._items(inside, texts);
      return node.g ? this._group(node, below, toggle, texts) : this._call(node, below, toggle, texts);
    });
  }

  /**
   * @param {SequenceNode} node
   * @param {DiagramItem[]} below
   * @param {Toggle} toggle
   * @param {string[]} texts
   * @returns {DiagramItem[]}
   */
  _call(node, below, toggle, texts) {
    const [source, target] = [node.a ?? 0, node.b ?? 0];
    const opens = below.length > 0 || node.back !== undefined;
    const arrow = { source, target, node, closes: false, opens: false, toggle: /** @type {Toggle} */ ("") };
    /** @type {DiagramItem[]} */
    const items = [{ ...arrow, kind: node.m ? "message" : "call", text: texts[node.t], opens, toggle }, ...below];
    if (node.back !== undefined) {
      const text = texts[node.back];
      items.push({ ...arrow, kind: node.x ? "error" : "return", source: target, target: source, text, closes: true });
    } else if (opens) items.push({ kind: "close", lifeline: target });
    return items;
  }

  /**
   * @param {SequenceNode} node
   * @param {DiagramItem[]} below
   * @param {Toggle} toggle
   * @param {string[]} texts
   * @returns {DiagramItem[]}
   */
  _group(node, below, toggle, texts) {
    const text = node.title?.() ?? texts[node.t];
    const [first, last] = [node.a ?? 0, node.b ?? 0];
    if (node.g === "phase") return [{ kind: "phase", first, last, text, items: [], node, toggle }, ...below];
    if (node.g === "note") return [{ kind: "note", first, last, text, items: [], node, toggle: "" }];
    if (!below.length) return this._folded(node, texts);
    if (node.g === "loop") return [{ kind: "loop", first, last, text, items: below, node, toggle }];
    const drawn = firstArrow(below);
    const ends = drawn ? { first: drawn.source, last: drawn.target } : { first, last };
    return [{ kind: "note", ...ends, text, items: [], node, toggle }, ...below];
  }

  /**
   * Return a closed group: its heading, the number of its calls, and the names of the first ones.
   * @param {SequenceNode} node
   * @param {string[]} texts
   * @returns {DiagramItem[]}
   */
  _folded(node, texts) {
    const calls = callsIn(node);
    if (!calls.length) return [];
    const names = [...new Set(calls.filter((call) => !call.m).map((call) => texts[call.t].replace(/\(.*/s, "()")))];
    const shown = names.slice(0, MOST_CALL_NAMES).join(", ") + (names.length > MOST_CALL_NAMES ? ", …" : "");
    const text = `${(node.title?.() ?? texts[node.t]).replaceAll("\n", " ")}\n${t("sequence.folded", { n: calls.length, names: shown })}`;
    const [{ a = 0, b = 0 }] = calls;
    return [{ kind: "folded", first: a, last: b, text, items: [], node, toggle: "open" }];
  }

  /**
   * Return the calls of the whole diagram with a text in their own text, their result or the name of their lifeline.
   * @param {string} query
   * @param {string} language
   */
  find(query, language) {
    const texts = this.data.texts[language];
    const wanted = query.trim().toLowerCase();
    if (!wanted) return [];
    const matches = texts.map((text) => text.toLowerCase().includes(wanted));
    const lines = this.data.lifelines.map(({ label, below }) => matches[label] || matches[below]);
    return this.calls.filter(
      (call) => matches[call.t] || lines[call.b ?? 0] || (call.back !== undefined && matches[call.back]),
    );
  }

  /**
   * Open the way to a call of the whole diagram, and return the node that is drawn for it.
   * @param {SequenceNode} call
   * @returns {SequenceNode}
   */
  reveal(call) {
    let way = this._around(call).reverse();
    if (this.tree === this.data.overview) {
      const drawn = this.drawnNode(call, this.drawn());
      if (drawn && (drawn === call || this.twin(drawn) === call)) return drawn;
      const outer = way.findLast((node) => this.inOverview.has(node));
      const key = outer && this.inOverview.get(outer);
      if (!key) this.setZoom(ZOOMS[(call.x ? 0 : (call.l ?? 0)) + FIRST_LEVEL]);
      else {
        for (const node of this._around(key)) this.closed.delete(node);
        if (outer === call) return key;
        this.opened.add(key);
        way = way.slice(way.indexOf(outer) + (this._inside(key).includes(outer) ? 0 : 1));
      }
    }
    way.forEach((node, place) => {
      this.closed.delete(node);
      const next = way[place + 1];
      if (next && !this._inside(node).includes(next)) this.opened.add(node);
    });
    return call;
  }

  /** Return the nodes that are drawn. */
  drawn() {
    /** @type {Set<SequenceNode>} */
    const found = new Set();
    /** @param {SequenceNode[]} nodes */
    const add = (nodes) => {
      for (const node of nodes) {
        found.add(node);
        add(this._inside(node));
      }
    };
    add(this.tree.items.filter((node) => this._isWanted(node)));
    return found;
  }

  /**
   * Return the drawn node of a node of the whole diagram, or of the nearest call or group around it.
   * @param {SequenceNode | undefined} inner
   * @param {Set<SequenceNode>} drawn
   */
  drawnNode(inner, drawn) {
    for (const node of this._around(inner)) {
      const key = this.inOverview.get(node);
      if (drawn.has(node)) return node;
      if (key && drawn.has(key)) return key;
    }
    return undefined;
  }

  /**
   * Return the drawn node of a span, or of its nearest caller that is drawn.
   * @param {number} span
   * @param {(span: number) => number} parent returns the number of a span's caller, -1 for none
   */
  nearest(span, parent = () => -1) {
    const drawn = this.drawn();
    const nodes = [...drawn, ...this.calls];
    for (let at = span; at >= 0; at = parent(at)) {
      const exact = nodes.find(({ n }) => n && inRuns(n, at));
      const found = exact && (drawn.has(exact) ? exact : this.drawnNode(exact, drawn));
      if (found) return found;
    }
    return undefined;
  }

  /**
   * Return the node itself if something inside it is drawn, or else the nearest drawn node around it.
   * @param {SequenceNode} node
   */
  closable(node) {
    return this._inside(node).length ? node : this.drawnNode(this.parents.get(node), this.drawn());
  }

  /**
   * Return the selection that a click on a node makes.
   * @param {SequenceNode} node
   * @returns {{call?: number, engine?: number, step?: number, request?: number}}
   */
  selection(node) {
    /** @type {{call?: number, engine?: number, step?: number, request?: number}} */
    const found = {};
    if (node.n) found.call = node.n[0];
    if (node.r?.length === 1) [found.request] = node.r;
    const group = this._around(node).find((one) => one.s);
    if (group?.s) {
      const [[engine, indexes]] = group.s;
      const [step] = parseRanges(indexes);
      if (this.engines[engine]?.steps[step]) Object.assign(found, { engine, step });
    }
    return found;
  }
}

/**
 * Return whether a number is one of those in runs: the first, then pairs of a distance and how often it follows.
 * @param {number[]} runs
 * @param {number} wanted
 */
export function inRuns(runs, wanted) {
  let [at] = runs;
  if (at === wanted) return true;
  for (let i = 1; i < runs.length && at < wanted; i += 2) {
    const [distance, times] = [runs[i], runs[i + 1]];
    if (wanted <= at + distance * times) return (wanted - at) % distance === 0;
    at += distance * times;
  }
  return false;
}

/**
 * Return whether a node only frames calls: a phase, or a loop that is not of steps.
 * @param {SequenceNode} node
 */
function isFrame(node) {
  return node.g === "phase" || (node.g === "loop" && !node.s);
}

/** @param {{items?: SequenceNode[]}} node @returns {SequenceNode[]} */
function callsIn(node) {
  return (node.items ?? []).flatMap((child) => (child.g ? callsIn(child) : [child, ...callsIn(child)]));
}

/** @param {DiagramItem[]} items @returns {Arrow | undefined} */
function firstArrow(items) {
  for (const item of items) {
    if ("source" in item) return item;
    const found = "items" in item && firstArrow(item.items);
    if (found) return found;
  }
  return undefined;
}

/** @param {DiagramItem[]} items @returns {Arrow[]} */
function arrowsIn(items) {
  return items.flatMap((item) => ("items" in item ? arrowsIn(item.items) : "source" in item && !item.closes ? [item] : []));
}

/**
 * Return what is the same for the same call or type of message in any step.
 * @param {SequenceNode} call
 * @param {SequenceData} data
 */
function nameOf(call, data) {
  const [texts] = Object.values(data.texts);
  const text = texts[call.e ?? call.t];
  return `${call.b} ${call.m ? text.replace(/ .*/s, "") : text.replace(/\(.*| ×[\d,]+$/s, "")}`;
}

/**
 * Return the lifelines that items need.
 * @param {DiagramItem[]} items
 * @returns {Set<number>}
 */
export function usedLifelines(items) {
  /** @type {Set<number>} */
  const used = new Set();
  for (const item of items) {
    if ("source" in item) used.add(item.source).add(item.target);
    else if (item.kind === "note" || item.kind === "folded") used.add(item.first).add(item.last);
    else if (item.kind === "loop") for (const key of usedLifelines(item.items)) used.add(key);
  }
  return used;
}

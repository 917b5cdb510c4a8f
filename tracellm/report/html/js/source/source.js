/**
 * The code that ran: every function that was called, its lines here, and its counterparts in two versions of vLLM.
 * Helpers that no probe records are listed with the functions that call them.
 */

import { h, scrollInto } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { select, selected } from "../run/selection.js";
import { codeHits, codeLinks, codePieces, marked } from "./code.js";

/**
 * @typedef {object} VllmFunction
 * @property {string} file
 * @property {string} name `Class.method` or `function`
 * @property {number} line
 * @property {number} lines
 * @property {string[]} parameters `name=` has a default
 * @property {boolean} [async]
 * @property {boolean} [part] whether the function has ours as a part
 *
 * @typedef {object} OwnFunction a function of tracellm, where the installed version is the recorded one
 * @property {string} file
 * @property {number} line
 * @property {string} [code] its lines, the first ones of a long function
 * @property {number} [more] lines that are left out
 * @property {number} [lines]
 * @property {string[]} [parameters]
 * @property {boolean} [async]
 *
 * @typedef {object} SourceFunctionFacts
 * @property {string} path `Class.method` or `function`
 * @property {Record<string, number>} spans number of calls, by the names of their spans
 * @property {[file: string, line: number, text: string][]} callers the user's lines
 * @property {Record<string, VllmFunction>} [vllm] by version
 * @property {string} [reason] why vLLM has no counterpart, as a code
 * @property {OwnFunction & {path: string}} [ours] the counterpart in tracellm, in a vLLM's run
 * @property {string[]} [called_by] full names of the functions that call a helper, which is not recorded
 *
 * @typedef {OwnFunction & SourceFunctionFacts} SourceFunction
 *
 * @typedef {object} Source
 * @property {string} recorded version of tracellm that recorded the run
 * @property {string} installed version of tracellm that made the page
 * @property {string[]} versions of vLLM
 * @property {{name: string, version: string}} engine the one that ran
 * @property {Record<string, SourceFunction>} functions by their full names
 */

/** @typedef {import("../run/data.js").Run} Run */

const REPOSITORY = "https://github.com/vllm-project/vllm/blob";
const MOST_HITS = 5;

// -- facts --------------------------------------------------------------------------------------------------------------

/**
 * Return the full name of the function behind a call, or null.
 * @param {Source | undefined} source
 * @param {string} name of the span, or `Class.method`
 * @param {Record<string, any>} [attributes] of the span
 */
export function findFunction(source, name, attributes = {}) {
  if (!source) return null;
  const recorded = attributes["code.function.name"] ?? name;
  if (Object.hasOwn(source.functions, recorded)) return recorded;
  const all = Object.entries(source.functions);
  const found = all.find(([, one]) => one.path === name) ?? all.find(([, one]) => Object.hasOwn(one.spans, name));
  return found?.[0] ?? null;
}

/**
 * Return what changed from one list of parameters to another. Two that differ at the same place are one that was renamed.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {{added: string[], removed: string[], renamed: [string, string][]}}
 */
export function parameterChanges(before, after) {
  const named = (/** @type {string[]} */ list) => list.map(plain).filter((name) => name !== "*");
  const [old, fresh] = [named(before), named(after)];
  let removed = old.filter((name) => !fresh.includes(name));
  let added = fresh.filter((name) => !old.includes(name));
  /** @type {[string, string][]} */
  const renamed = [];
  if (old.length === fresh.length) {
    for (const name of removed) if (added.includes(fresh[old.indexOf(name)])) renamed.push([name, fresh[old.indexOf(name)]]);
  }
  removed = removed.filter((name) => !renamed.some(([from]) => from === name));
  added = added.filter((name) => !renamed.some(([, to]) => to === name));
  return { added, removed, renamed };
}

/** @param {string} parameter */
function plain(parameter) {
  return parameter.replace(/=$/, "");
}

/**
 * Return what changed between two versions of vLLM, as texts' keys with their values.
 * @param {VllmFunction | undefined} before
 * @param {VllmFunction | undefined} after
 * @returns {[key: string, values: Record<string, any>][]}
 */
export function vllmChanges(before, after) {
  if (!before && !after) return [];
  if (!before) return [["added", {}]];
  if (!after) return [["removed", {}]];
  /** @type {[string, Record<string, any>][]} */
  const found = [];
  if (before.file !== after.file) found.push(["moved", { from: before.file, to: after.file }]);
  const renamed = before.part && !after.part ? "split" : !before.part && after.part ? "merged" : "renamed";
  if (before.name !== after.name) found.push([renamed, { from: before.name, to: after.name }]);
  if (before.part || after.part) return found;
  const differences = signatureDifferences(before, after);
  if (before.lines !== after.lines) differences.push(["lines", { from: before.lines, to: after.lines }]);
  return [...found, ...differences];
}

/**
 * @param {{parameters: string[], async?: boolean}} before
 * @param {{parameters: string[], async?: boolean}} after
 * @returns {[key: string, values: Record<string, any>][]}
 */
export function signatureDifferences(before, after) {
  const { added, removed, renamed } = parameterChanges(before.parameters, after.parameters);
  /** @type {[string, Record<string, any>][]} */
  const found = renamed.map(([from, to]) => ["parameter.renamed", { from, to }]);
  if (added.length) found.push(["parameter.added", { names: added.join(", ") }]);
  if (removed.length) found.push(["parameter.removed", { names: removed.join(", ") }]);
  if (Boolean(before.async) !== Boolean(after.async)) found.push([after.async ? "async" : "sync", {}]);
  return found;
}

/**
 * Return the address of a line of vLLM on GitHub; null for a version or file that has none.
 * @param {string} version
 * @param {string} file
 * @param {number} line
 */
export function vllmAddress(version, file, line) {
  const release = /^\d+\.\d+\.\d+/.exec(version)?.[0];
  if (!release || !/^vllm\/[\w/]+\.py$/.test(file)) return null;
  return `${REPOSITORY}/v${release}/${file}#L${line}`;
}

// -- one function -------------------------------------------------------------------------------------------------------

/**
 * Return the code behind a call: its lines here, its counterparts in vLLM, and how these differ.
 * @param {Run} run
 * @param {string} name of the span, or `Class.method`
 * @param {Record<string, any>} [attributes] of the span
 * @param {string} [text] whose lines are marked
 * @returns {HTMLElement}
 */
export function sourceView(run, name, attributes = {}, text = "") {
  const { source } = run;
  const full = findFunction(source, name, attributes);
  const callers = callerLines(source, full, attributes);
  if (!source || full === null) return h("div", { class: "source-view" }, ...callers, h("p", { class: "empty" }, t("source.none")));
  const called = source.functions[full];
  const own = called.ours ?? called;
  const isOurs = full.startsWith("tracellm.") || called.ours !== undefined;
  return h(
    "div",
    { class: "source-view" },
    h("h3", {}, h("code", {}, visible(called.path))),
    ...callers,
    called.called_by && h("p", {}, ...calledBy(run, called.called_by)),
    ...(isOurs ? codeLines(run, full, text) : [h("p", {}, h("code", {}, visible(placeText(called))))]),
    ...vllmCards(source, full, called, own),
  );
}

/**
 * @param {Source | undefined} source
 * @param {string | null} full
 * @param {Record<string, any>} attributes
 */
function callerLines(source, full, attributes) {
  const recorded = attributes["tracellm.caller.file"];
  const lines = recorded
    ? [[recorded, attributes["tracellm.caller.line"], attributes["tracellm.caller.text"] ?? ""]]
    : full === null ? [] : (source?.functions[full].callers ?? []);
  return lines.map(([file, line, text]) =>
    h("p", { class: "caller" }, `${t("source.caller")} `, h("code", {}, visible(`${file}:${line}`)), text && " ", text && h("code", {}, visible(String(text)))),
  );
}

/**
 * @param {Run} run
 * @param {string[]} callers
 */
function calledBy(run, callers) {
  const { functions } = /** @type {Source} */ (run.source);
  const links = callers.flatMap((full, i) => [i ? ", " : "", functionLink(run, full, functions[full].path)]);
  const [before, after] = t("source.called_by", { names: "|" }).split("|");
  return [before, ...links, after];
}

/** @param {{file: string, line: number}} place */
function placeText({ file, line }) {
  return line ? `${file}:${line}` : file;
}

/**
 * @param {Run} run
 * @param {string} full
 * @param {string} text whose lines are marked
 */
function codeLines(run, full, text) {
  const source = /** @type {Source} */ (run.source);
  const called = source.functions[full];
  const own = called.ours ?? called;
  const place = h("p", {}, own === called.ours && `${t("source.ours", { name: called.ours.path })} `, h("code", {}, visible(placeText(own))));
  if (own.code === undefined) {
    const other = source.recorded !== source.installed;
    const why = other ? t("source.other_version", { recorded: visible(source.recorded), installed: source.installed }) : t("source.changed");
    return [place, h("p", { class: "empty" }, why)];
  }
  const target = codeLinks(source, full);
  const found = new Set(codeHits(own.code, text).map(([i]) => i));
  const lines = codePieces(own.code).map((pieces, i) =>
    h(
      "span",
      { class: found.has(i) ? "code-line found" : "code-line", "data-line": own.line + i },
      ...pieces.flatMap(([kind, part]) => (kind ? [h("i", { class: kind }, part)] : withLinks(run, part, target))),
      "\n",
    ),
  );
  const more = own.more ? [h("p", { class: "empty" }, t("source.more", { n: own.more }))] : [];
  const count = found.size ? [h("p", { class: "soft" }, t("source.found", { n: found.size, text: text.trim() }))] : [];
  return [place, ...count, h("pre", { class: "code", tabindex: "0", "aria-label": t("source.code") }, h("code", {}, ...lines)), ...more];
}

/**
 * Return a piece of code with links on the names of listed functions.
 * @param {Run} run
 * @param {string} code
 * @param {(before: string, name: string) => string | null} target
 */
function withLinks(run, code, target) {
  const source = /** @type {Source} */ (run.source);
  /** @type {(string | HTMLElement)[]} */
  const parts = [];
  let end = 0;
  for (const { 0: name, index } of code.matchAll(/[A-Za-z_]\w*/g)) {
    const full = target(code.slice(0, index), name);
    if (full === null) continue;
    parts.push(code.slice(end, index), functionLink(run, full, name));
    end = index + name.length;
  }
  parts.push(code.slice(end));
  return parts;
}

/**
 * Return a link to a listed function.
 * @param {Run} run
 * @param {string} full
 * @param {string} text
 */
function functionLink(run, full, text) {
  const key = addressOf(/** @type {Source} */ (run.source), full);
  /** @param {Event} event */
  const go = (event) => {
    event.preventDefault();
    select(run, { source: key });
    document.getElementById("source")?.scrollIntoView();
  };
  return h("a", { href: `#source=${encodeURIComponent(key)}`, title: full, onclick: go }, text);
}

/**
 * Return the name of a function in addresses: `Class.method`, or its full name if several have the same.
 * @param {Source} source
 * @param {string} full
 */
function addressOf(source, full) {
  const { path } = source.functions[full];
  return findFunction(source, path) === full ? path : full;
}

/**
 * @param {Source} source
 * @param {string} full
 * @param {SourceFunction} called
 * @param {OwnFunction} own
 */
function vllmCards(source, full, called, own) {
  const { vllm, reason } = called;
  if (!vllm) {
    const key = reason ? `source.reason.${reason}` : full.startsWith("vllm.") ? "source.unlisted" : "source.not_vllm";
    return [h("p", { class: "why" }, t(key)), ...recordedLink(source, full, called)];
  }
  const [first, last] = source.versions;
  const ran = (/** @type {string} */ version) => source.engine.name === "vllm" && isVersion(source.engine.version, version);
  const cards = source.versions.map((version) => card(t(ran(version) ? "source.vllm.ran" : "source.vllm", { version }), vllm[version], version));
  if (own.parameters) cards.unshift(card(t("source.here"), { ...own, name: called.ours?.path ?? called.path }, null));
  return [
    h("div", { class: "versions" }, ...cards),
    ...recordedLink(source, full, called),
    ...sentences(t("source.changes", { from: first, to: last }), "change", vllmChanges(vllm[first], vllm[last])),
    ...differencesHere(source.versions, vllm, own),
  ];
}

/**
 * Return the place that a vLLM of a version other than those in the table has recorded.
 * @param {Source} source
 * @param {string} full
 * @param {SourceFunction} called
 */
function recordedLink(source, full, called) {
  const { version } = source.engine;
  if (!full.startsWith("vllm.") || source.versions.some((one) => isVersion(version, one))) return [];
  return [h("p", {}, `${t("source.recorded", { version: visible(version) })} `, placeLink(version, called))];
}

/**
 * Return whether an installed version is a build of a release, as 0.32.0+cpu is of 0.32.0.
 * @param {string} installed
 * @param {string} release
 */
function isVersion(installed, release) {
  return installed === release || installed.startsWith(`${release}+`) || installed.startsWith(`${release}.`);
}

/**
 * @param {string} title
 * @param {any} found
 * @param {string | null} version of vLLM; null for tracellm
 */
function card(title, found, version) {
  if (!found) return h("section", { class: "version" }, h("h4", {}, title), h("p", { class: "empty" }, t("source.absent")));
  const signature = found.parameters.map((/** @type {string} */ name) => name.replace(/=$/, "=…")).join(", ");
  return h(
    "section",
    { class: "version" },
    h("h4", {}, title),
    found.part && h("p", { class: "why" }, t("source.part")),
    h("p", { class: "mono" }, version === null ? h("code", {}, visible(placeText(found))) : placeLink(version, found)),
    h("p", {}, h("code", {}, h("strong", {}, `${found.async ? "async " : ""}${found.name}`), `(${signature})`)),
    h("p", { class: "soft" }, t("source.length", { n: found.lines })),
  );
}

/**
 * @param {string} version
 * @param {{file: string, line: number}} place
 */
function placeLink(version, place) {
  const address = vllmAddress(version, place.file, place.line);
  const text = h("code", {}, visible(placeText(place)));
  return address ? h("a", { href: address, rel: "noreferrer", target: "_blank" }, text) : text;
}

/**
 * @param {string[]} versions
 * @param {Record<string, VllmFunction>} vllm
 * @param {OwnFunction} own
 */
function differencesHere(versions, vllm, own) {
  const version = versions.find((one) => vllm[one] && !vllm[one].part);
  if (!own.parameters || !version) return [];
  const found = signatureDifferences(vllm[version], { parameters: own.parameters, async: own.async });
  return sentences(t("source.differs", { version }), "differ", found);
}

/**
 * @param {string} title
 * @param {"change" | "differ"} kind
 * @param {[key: string, values: Record<string, any>][]} found
 */
function sentences(title, kind, found) {
  const items = found.map(([key, values]) => h("li", {}, t(`source.${kind}.${key}`, values)));
  const none = t(kind === "change" ? "source.changes.none" : "source.same");
  return [h("h4", {}, title), items.length ? h("ul", {}, ...items) : h("p", { class: "empty" }, none)];
}

// -- all functions ------------------------------------------------------------------------------------------------------

/**
 * Return the index of all functions that were called, with the selected one below it, and a function that brings both
 * up to date.
 * @param {Run} run
 * @returns {{element: HTMLElement, update: () => void}}
 */
export function sourceIndex(run) {
  const source = /** @type {Source} */ (run.source);
  const names = Object.keys(source.functions);
  const rows = new Map(names.map((name) => [name, functionRow(run, name)]));
  const hits = new Map(names.map((name) => [name, h("tr", { class: "hits" })]));
  const groups = [...byOwner(source)].map(([title, members]) => ({
    members,
    body: h(
      "tbody",
      {},
      h("tr", { class: "owner" }, h("th", { scope: "rowgroup", colspan: "5" }, visible(title))),
      ...members.flatMap((name) => [/** @type {HTMLElement} */ (rows.get(name)), /** @type {HTMLElement} */ (hits.get(name))]),
    ),
  }));
  const count = h("p", { class: "soft", role: "status" });
  const view = h("div", { class: "source-shown" });
  /** @type {string | null} */
  let drawn = null;
  const search = /** @type {HTMLInputElement} */ (
    h("input", { type: "search", class: "source-search", placeholder: t("source.search"), "aria-label": t("source.search"), oninput: () => filter() })
  );
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let [shown, lines] = [0, 0];
    for (const { members, body } of groups) {
      for (const name of members) {
        const row = /** @type {HTMLElement} */ (rows.get(name));
        const called = source.functions[name];
        const own = called.ours ?? called;
        const found = codeHits(own.code, search.value);
        row.hidden = !found.length && !words.every((word) => searchable(name, called).includes(word));
        shown += row.hidden ? 0 : 1;
        lines += found.length;
        const more = found.length - MOST_HITS;
        const list = found.slice(0, MOST_HITS).map(([i, line]) => h("li", {}, hit(name, own.line + i, line)));
        if (more > 0) list.push(h("li", { class: "soft" }, t("source.hits.more", { n: more })));
        const below = /** @type {HTMLElement} */ (hits.get(name));
        below.hidden = !found.length;
        below.replaceChildren(...(found.length ? [h("td", { colspan: "5" }, h("ul", {}, ...list))] : []));
      }
      body.hidden = members.every((name) => rows.get(name)?.hidden);
    }
    const counted = t("source.count", { shown: number(shown), all: number(names.length) });
    count.textContent = lines ? `${counted}, ${t("source.hits", { n: lines })}` : counted;
    update();
  };
  /**
   * Return a button with a line that has the searched text; it shows the function at this line.
   * @param {string} name
   * @param {number} line
   * @param {string} text
   */
  const hit = (name, line, text) => {
    const go = () => {
      select(run, { source: addressOf(source, name) });
      view.querySelector(`.code-line[data-line="${line}"]`)?.scrollIntoView({ block: "center" });
    };
    return h("button", { class: "link hit", type: "button", onclick: go }, h("span", { class: "soft" }, `${line} `), ...marked(text.trim(), search.value));
  };
  const heads = [t("source.column.function"), t("source.column.calls"), t("source.column.here"), ...source.versions.map((version) => t("source.vllm", { version }))];
  const table = /** @type {HTMLTableElement} */ (
    h(
      "table",
      { class: "source-index" },
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      ...groups.map(({ body }) => body),
    )
  );
  const frame = h("div", { class: "source-rows scroll", tabindex: "0", role: "region", "aria-label": t("source.list") }, table);
  const update = () => {
    const chosen = findFunction(source, selected(run).source ?? "");
    const wanted = `${chosen} ${search.value.trim()}`;
    if (wanted === drawn) return;
    drawn = wanted;
    for (const [name, row] of rows) row.querySelector("button")?.setAttribute("aria-pressed", String(name === chosen));
    view.replaceChildren(...(chosen === null ? [] : [sourceView(run, chosen, {}, search.value)]));
    const [code, line] = [view.querySelector(".code"), /** @type {HTMLElement | null} */ (view.querySelector(".found"))];
    if (code && line) code.scrollTop = line.offsetTop - code.clientHeight / 3;
    const row = rows.get(chosen ?? "");
    if (row && !row.hidden) scrollInto(frame, row, table.tHead?.offsetHeight ?? 0);
  };
  filter();
  return { element: h("div", {}, h("div", { class: "source-bar" }, search, count), frame, view), update };
}

/**
 * Return the names of the functions by their classes, or by their files, in the order of their first calls.
 * @param {Source} source
 * @returns {Map<string, string[]>}
 */
export function byOwner(source) {
  const groups = new Map();
  for (const [name, { path, file }] of Object.entries(source.functions)) {
    const owner = path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : file.split("/").at(-1);
    groups.set(owner, [...(groups.get(owner) ?? []), name]);
  }
  return groups;
}

/**
 * @param {string} name
 * @param {SourceFunction} called
 */
function searchable(name, called) {
  const places = Object.values(called.vllm ?? {}).map((one) => `${one.file} ${one.name}`);
  return [name, called.file, ...Object.keys(called.spans), ...places].join(" ").toLowerCase();
}

/**
 * @param {Run} run
 * @param {string} name
 */
function functionRow(run, name) {
  const source = /** @type {Source} */ (run.source);
  const called = source.functions[name];
  const own = called.ours ?? (name.startsWith("vllm.") ? null : called);
  const calls = Object.values(called.spans).reduce((sum, n) => sum + n, 0);
  const method = called.path.slice(called.path.lastIndexOf(".") + 1);
  const key = addressOf(source, name);
  const choose = () => select(run, { source: selected(run).source === key ? null : key });
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("button", { class: "link", type: "button", "aria-pressed": "false", "data-source": key, onclick: choose }, visible(method))),
    h("td", { class: "number", "data-label": t("source.column.calls") }, called.called_by ? "–" : number(calls)),
    h("td", { "data-label": t("source.column.here") }, own ? shortPlace(own) : "–"),
    ...source.versions.map((version) => h("td", { "data-label": t("source.vllm", { version }) }, vllmCell(called.vllm?.[version]))),
  );
}

/** @param {VllmFunction | undefined} found */
function vllmCell(found) {
  if (!found) return "–";
  return h("span", { title: `${found.name}, ${found.file}` }, found.part ? t("source.in", { place: fileAndLine(found) }) : fileAndLine(found));
}

/** @param {{file: string, line: number}} place */
function shortPlace(place) {
  return h("span", { title: visible(place.file) }, visible(fileAndLine(place)));
}

/** @param {{file: string, line: number}} place */
function fileAndLine({ file, line }) {
  return placeText({ file: file.split("/").slice(file.endsWith("__init__.py") ? -2 : -1).join("/"), line });
}

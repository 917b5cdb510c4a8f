/**
 * The functions that were called, with a search in their names and their code. Helpers that no probe records are listed
 * with the functions that call them.
 */

import { h, scrollInto } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { t, visible } from "../base/text.js";
import { select, selected } from "../run/selection.js";
import { codeHits, marked } from "./code.js";
import { addressOf, byOwner, findFunction, ownFunction, placeText } from "./functions.js";
import { sourceView } from "./source.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("./functions.js").Source} Source */

const MOST_HITS = 5;

/**
 * Return the index of all functions that were called, with the selected one below it, and a function that brings both
 * up to date.
 * @param {Run} run
 * @returns {{element: HTMLElement, update: () => void}}
 */
export function sourceIndex(run) {
  const source = /** @type {Source} */ (run.source);
  const heads = [t("source.column.function"), t("source.column.calls"), t("source.here"), ...source.versions.map((version) => t("source.vllm", { version }))];
  const groups = [...byOwner(source)].map(([owner, names]) => {
    const members = names.map((name) => ({ name, row: functionRow(run, name), hits: h("tr", { class: "hits" }), searched: searchedText(source, name) }));
    const title = h("tr", { class: "owner" }, h("th", { scope: "rowgroup", colspan: heads.length }, visible(owner)));
    return { members, body: h("tbody", {}, title, ...members.flatMap(({ row, hits }) => [row, hits])) };
  });
  const all = groups.flatMap(({ members }) => members);
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
      for (const { name, row, hits, searched } of members) {
        const own = ownFunction(source, name);
        const found = codeHits(own?.code, search.value);
        row.hidden = !found.length && !words.every((word) => searched.includes(word));
        hits.hidden = !found.length;
        const list = found.slice(0, MOST_HITS).map(([i, line]) => h("li", {}, hit(name, (own?.line ?? 0) + i, line)));
        if (found.length > MOST_HITS) list.push(h("li", { class: "soft" }, t("source.hits.more", { n: found.length - MOST_HITS })));
        hits.replaceChildren(...(found.length ? [h("td", { colspan: heads.length }, h("ul", {}, ...list))] : []));
        shown += row.hidden ? 0 : 1;
        lines += found.length;
      }
      body.hidden = members.every(({ row }) => row.hidden);
    }
    const counted = t("source.count", { shown: number(shown), all: number(all.length) });
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
    for (const { name, row } of all) row.querySelector("button")?.setAttribute("aria-pressed", String(name === chosen));
    view.replaceChildren(...(chosen === null ? [] : [sourceView(run, chosen, {}, search.value)]));
    const [code, line] = [view.querySelector(".code"), /** @type {HTMLElement | null} */ (view.querySelector(".found"))];
    if (code && line) code.scrollTop = line.offsetTop - code.clientHeight / 3;
    const row = all.find(({ name }) => name === chosen)?.row;
    if (row && !row.hidden) scrollInto(frame, row, table.tHead?.offsetHeight ?? 0);
  };
  filter();
  return { element: h("div", {}, h("div", { class: "source-bar" }, search, count), frame, view), update };
}

/**
 * Return what words are searched in: a function's name and file, here and in vLLM, in lower case.
 * @param {Source} source
 * @param {string} name
 */
function searchedText(source, name) {
  const called = source.functions[name];
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
  const own = ownFunction(source, name);
  const calls = Object.values(called.spans).reduce((sum, n) => sum + n, 0);
  const method = called.path.slice(called.path.lastIndexOf(".") + 1);
  const key = addressOf(source, name);
  const choose = () => select(run, { source: selected(run).source === key ? null : key });
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("button", { class: "link", type: "button", "aria-pressed": "false", "data-source": key, onclick: choose }, visible(method))),
    h("td", { class: "number", "data-label": t("source.column.calls") }, called.called_by ? "–" : number(calls)),
    h("td", { "data-label": t("source.here") }, own ? shortPlace(own) : "–"),
    ...source.versions.map((version) => h("td", { "data-label": t("source.vllm", { version }) }, vllmCell(called.vllm?.[version]))),
  );
}

/** @param {import("./functions.js").VllmFunction | undefined} found */
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

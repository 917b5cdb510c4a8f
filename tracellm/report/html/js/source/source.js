/** The code behind a call: its lines here, and its counterparts in two versions of vLLM. */

import { h } from "../base/dom.js";
import { hasText, t, visible } from "../base/text.js";
import { select } from "../run/selection.js";
import { codeHits, codeLinks, codePieces } from "./code.js";
import { addressOf, findFunction, ownFunction, placeText, signatureDifferences, vllmAddress, vllmChanges } from "./functions.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("./functions.js").Source} Source */
/** @typedef {import("./functions.js").OwnFunction} OwnFunction */
/** @typedef {import("./functions.js").VllmFunction} VllmFunction */

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
  return h(
    "div",
    { class: "source-view" },
    h("h3", {}, h("code", {}, visible(called.path))),
    ...callers,
    called.called_by && h("p", {}, ...calledBy(run, called.called_by)),
    ...codeLines(run, full, text),
    ...vllmCards(source, full),
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
  const source = /** @type {Source} */ (run.source);
  const links = callers.flatMap((full, i) => [i ? ", " : "", functionLink(run, full, ownFunction(source, full)?.path ?? full)]);
  const [before, after] = t("source.called_by", { names: "|" }).split("|");
  return [before, ...links, after];
}

/**
 * Return the place of a function in tracellm and its lines; only the place of a function that is not there.
 * @param {Run} run
 * @param {string} full
 * @param {string} text whose lines are marked
 */
function codeLines(run, full, text) {
  const source = /** @type {Source} */ (run.source);
  const own = ownFunction(source, full);
  if (!own) return [h("p", {}, h("code", {}, visible(placeText(source.functions[full]))))];
  const isCounterpart = source.functions[full].ours !== undefined;
  const place = h("p", {}, isCounterpart && `${t("source.ours", { name: own.path })} `, h("code", {}, visible(placeText(own))));
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
 * @param {Source} source
 * @param {string} full
 */
function vllmCards(source, full) {
  const { vllm, reason, calls } = source.functions[full];
  if (!vllm) {
    const key = reason ? `source.reason.${reason}` : full.startsWith("vllm.") ? "source.unlisted" : "source.not_vllm";
    return [h("p", { class: "why" }, t(key)), ...recordedLink(source, full)];
  }
  const [first, last] = source.versions;
  const ran = (/** @type {string} */ version) => source.engine.name === "vllm" && isVersion(source.engine.version, version);
  const cards = source.versions.map((version) => card(t(ran(version) ? "source.vllm.ran" : "source.vllm", { version }), vllm[version], version));
  const own = ownFunction(source, full);
  if (own?.parameters) cards.unshift(card(t("source.here"), { ...own, name: own.path }, null));
  return [
    h("div", { class: "versions" }, ...cards),
    ...recordedLink(source, full),
    ...sentences(t("source.changes", { from: first, to: last }), "change", vllmChanges(vllm[first], vllm[last], calls)),
    ...differencesHere(source.versions, vllm, own),
    own && hasText(`source.note.${own.path}`) && h("p", {}, t(`source.note.${own.path}`)),
  ];
}

/**
 * Return the place that a vLLM of a version other than those in the table has recorded.
 * @param {Source} source
 * @param {string} full
 */
function recordedLink(source, full) {
  const { version } = source.engine;
  if (!full.startsWith("vllm.") || source.versions.some((one) => isVersion(version, one))) return [];
  return [h("p", {}, `${t("source.recorded", { version: visible(version) })} `, placeLink(version, source.functions[full]))];
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
 * @param {OwnFunction | null} own
 */
function differencesHere(versions, vllm, own) {
  const version = versions.find((one) => vllm[one] && !vllm[one].part);
  if (!own?.parameters || !version) return [];
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

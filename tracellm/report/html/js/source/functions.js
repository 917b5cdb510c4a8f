/** The functions that a run called: how they are found, and how their counterparts in two versions of vLLM differ. */

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
 * @property {{added: string[], removed: string[]}} [calls] names that only the last or only the first version calls
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

const MOST_CALLS = 12;
const REPOSITORY = "https://github.com/vllm-project/vllm/blob";

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
 * Return a function in tracellm: itself, or its counterpart in a vLLM's run; null if it has none.
 * @param {Source} source
 * @param {string} full
 * @returns {OwnFunction & {path: string} | null}
 */
export function ownFunction(source, full) {
  const called = source.functions[full];
  return called.ours ?? (full.startsWith("tracellm.") ? called : null);
}

/**
 * Return the name of a function in addresses: `Class.method`, or its full name if several have the same.
 * @param {Source} source
 * @param {string} full
 */
export function addressOf(source, full) {
  const { path } = source.functions[full];
  return findFunction(source, path) === full ? path : full;
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
 * @param {SourceFunctionFacts["calls"]} [calls]
 * @returns {[key: string, values: Record<string, any>][]}
 */
export function vllmChanges(before, after, calls) {
  if (!before && !after) return [];
  if (!before) return [["added", {}]];
  if (!after) return [["removed", {}]];
  /** @type {[string, Record<string, any>][]} */
  const found = [];
  if (before.file !== after.file) found.push(["moved", { from: before.file, to: after.file }]);
  const renamed = before.part && !after.part ? "split" : !before.part && after.part ? "merged" : "renamed";
  if (before.name !== after.name) found.push([renamed, { from: before.name, to: after.name }]);
  if (Boolean(before.part) !== Boolean(after.part)) return found;
  const differences = signatureDifferences(before, after);
  if (before.lines !== after.lines) differences.push(["lines", { from: before.lines, to: after.lines }]);
  for (const key of /** @type {const} */ (["added", "removed"])) {
    const names = calls?.[key] ?? [];
    const more = names.length > MOST_CALLS ? ".more" : "";
    if (names.length) differences.push([`calls.${key}${more}`, { names: names.slice(0, MOST_CALLS).join(", "), n: names.length - MOST_CALLS }]);
  }
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

/**
 * Return a place in a file as text; the line is 0 if it was not recorded.
 * @param {{file: string, line: number}} place
 */
export function placeText({ file, line }) {
  return line ? `${file}:${line}` : file;
}

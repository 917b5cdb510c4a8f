/**
 * Programs of paged attention in a step, and the KV cache blocks that each reads: computed from the block tables as the
 * kernels of tracellm/engine/attention/ops do, and compared with those that a launch recorded.
 */

import { parseRanges } from "../base/ranges.js";
import { firstKey } from "./model.js";

/**
 * @typedef {object} Read one place in the grid, the same for all heads: what its programs read
 * @property {number} r the request's row
 * @property {string} index of the programs in the grid: `2, *`, or `0, *, 1` for the second part of a context
 * @property {number} queries
 * @property {number} first position of the first key
 * @property {number} stop position after the last key
 * @property {number[]} blocks
 * @property {number} last slots in use of the last block
 *
 * @typedef {object} Launch a recorded launch of a Triton attention kernel
 * @property {string} kernel
 * @property {number[]} grid
 * @property {string} reason
 * @property {Record<string, string>} constants arguments too
 * @property {Map<string, number[]> | null} blocks of each place in the grid
 */

/** @typedef {import("../run/replay.js").State} State */
/** @typedef {import("../run/data.js").Engine} Engine */

/** Kernels that read the KV cache: for prompts, for decoding, and for decoding with split contexts. */
const [VARLEN_KERNEL, WHOLE_KERNEL, SPLIT_KERNEL] = ["attention_varlen_kernel", "paged_attention_v1_kernel", "paged_attention_v2_kernel"];

/**
 * Return what a program for each request reads, as in `paged_attention_v1_kernel`: all keys that its queries attend to.
 * @param {State} state
 * @param {Engine} engine
 * @param {number} window
 * @returns {Read[]} empty if the blocks are not known
 */
export function requestReads(state, engine, window) {
  return (state.step.scheduled ?? []).flatMap(([r, tokens, computed], row) =>
    programReads(state, engine, { r, index: `${row}, *`, queries: tokens, first: firstKey(computed, window), stop: computed + tokens }),
  );
}

/**
 * Return what the programs of a launch read, computed from the batch and the constants of the launch.
 * @param {State} state
 * @param {Engine} engine
 * @param {Launch} launch
 * @returns {Read[]} empty for another kernel
 */
export function launchReads(state, engine, { kernel, constants }) {
  const window = Number(constants.WINDOW) || 0;
  const rows = state.step.scheduled ?? [];
  /** @type {Read[]} */
  const found = [];
  /** @param {number} r @param {string} index @param {number} queries @param {number} first @param {number} stop */
  const add = (r, index, queries, first, stop) => found.push(...programReads(state, engine, { r, index, queries, first, stop }));
  if (kernel === VARLEN_KERNEL) {
    const most = Number(constants.QUERIES) || 1;
    let tile = 0;
    for (const [r, tokens, computed] of rows.filter((row) => row[1] !== 1)) {
      for (let start = 0; start < tokens; start += most) {
        const queries = Math.min(most, tokens - start);
        add(r, `${tile}, *`, queries, firstKey(computed + start, window), computed + start + queries);
        tile += 1;
      }
    }
  } else if (kernel === WHOLE_KERNEL || kernel === SPLIT_KERNEL) {
    rows.filter((row) => row[1] === 1).forEach(([r, , computed], number) => {
      const [first, stop] = [firstKey(computed, window), computed + 1];
      if (kernel === WHOLE_KERNEL) {
        add(r, `${number}, *`, 1, first, stop);
        return;
      }
      const share = Math.max(Number(constants.PARTITION) || 1, Math.ceil((stop - first) / (Number(constants.partitions) || 1)));
      for (let part = 0; first + part * share < stop; part += 1) {
        add(r, `${number}, *, ${part}`, 1, first + part * share, Math.min(stop, first + (part + 1) * share));
      }
    });
  }
  return found;
}

/**
 * Return what the programs of a step read, launch by launch. Without recorded launches, each request has its programs.
 * @param {State} state
 * @param {Engine} engine
 * @param {Launch[]} launches
 * @param {number} window
 * @returns {{launch: Launch | null, reads: Read[]}[]} only those whose blocks are known
 */
export function attentionGrids(state, engine, launches, window) {
  const grids = launches.map((launch) => ({ launch, reads: launchReads(state, engine, launch) }));
  return (grids.length ? grids : [{ launch: null, reads: requestReads(state, engine, window) }]).filter(({ reads }) => reads.length);
}

/**
 * Return what a program reads, with the blocks of its keys; nothing if they are not known.
 * @param {State} state
 * @param {Engine} engine
 * @param {Omit<Read, "blocks" | "last">} program
 * @returns {Read[]}
 */
function programReads({ tables }, { blockSize: size, numGroups }, program) {
  const table = tables.get(program.r);
  if (!table || !size || numGroups !== 1) return [];
  const { first, stop } = program;
  return [{ ...program, blocks: table.slice(Math.floor(first / size), Math.ceil(stop / size)), last: ((stop - 1) % size) + 1 }];
}

/**
 * Return a recorded call as a launch of an attention kernel, or null.
 * @param {import("../calls/calls.js").Calls} calls
 * @param {number} call
 * @returns {Launch | null}
 */
export function attentionLaunch(calls, call) {
  const kernel = calls.names[calls.name[call]];
  if (![VARLEN_KERNEL, WHOLE_KERNEL, SPLIT_KERNEL].includes(kernel)) return null;
  const attributes = calls.attributes(call);
  const grid = attributes["tracellm.launch.grid"];
  if (!grid) return null;
  const listed = attributes["tracellm.launch.blocks_read"];
  const named = [...(attributes["tracellm.arguments"] ?? []), ...(attributes["tracellm.launch.constants"] ?? [])];
  return {
    kernel,
    grid,
    reason: attributes["tracellm.launch.reason"] ?? "",
    constants: Object.fromEntries(named.map((/** @type {string} */ entry) => entry.split("=", 2))),
    blocks: listed
      ? new Map(listed.map((/** @type {string} */ entry) => [entry.split(": ")[0].replaceAll(",", ", "), parseRanges(entry.split(": ")[1] ?? "")]))
      : null,
  };
}

/**
 * Return whether a launch read the blocks that follow from the block tables; null if it does not list its blocks.
 * @param {Launch} launch
 * @param {Read[]} reads
 */
export function agrees({ blocks }, reads) {
  if (!blocks) return null;
  return blocks.size === reads.length && reads.every(({ index, blocks: own }) => String(blocks.get(index)) === String(own));
}

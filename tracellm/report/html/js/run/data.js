/**
 * The run's data, as `tracellm.report.html.data` wrote it.
 *
 * Fields that are absent are empty, zero or false. Times are microseconds since the run's first span. `r` stands for a
 * request's row in `requests`.
 *
 * @typedef {object} Request
 * @property {string} id
 * @property {string} [tiny] the name without its kind, and without what all names begin with
 * @property {string} [name] its id without random digits, or without its middle if it is long
 * @property {number} [at] its submission
 * @property {number} [us] from there to its end
 * @property {boolean} [open] whether the recording ended before it did
 * @property {string} [prompt]
 * @property {string} [output]
 * @property {number[]} [promptTokens] the first ones of a long prompt
 * @property {Item[]} [items] its images and sounds
 * @property {number} [numPrompt]
 * @property {number} [numOutput]
 * @property {number} [hit] tokens of its prompt from the prefix cache
 * @property {number} [hitAgain] those found when it resumed after a preemption
 * @property {number} [preemptions]
 * @property {number} [queued] microseconds from its submission to its first step
 * @property {number} [prefill] from there to its first token
 * @property {number} [first] from its submission to its first token
 * @property {number} [decode] from its first token to its last
 * @property {string} [reason] why it ended, as a code
 * @property {string} [stoppedBy] code of the kind of its own stops that ended it
 * @property {string} [error]
 * @property {[string, string][]} [params] sampling parameters
 * @property {string} [parent] the request with n > 1 that this is one output of
 * @property {number} [index] which of its outputs
 *
 * @typedef {object} Refused an HTTP request that was refused
 * @property {string} id its method and path
 * @property {string} [client] X-Request-Id
 * @property {number} [at]
 * @property {string} [answer] status, and type of the error
 * @property {string} [error] message of the error
 *
 * @typedef {object} Item an image or sound
 * @property {string} kind image, audio
 * @property {number} offset position of its first token in the prompt
 * @property {number} length number of its tokens
 * @property {[width: number, height: number]} [size] in pixels
 * @property {number} [seconds]
 * @property {[rows: number, columns: number]} [grid] of its tokens
 * @property {number} [picture] index in the run's pictures
 * @property {boolean} [cached] whether its tensors came from the processor cache
 * @property {[n: number, source: string][]} [sources] numbers of steps; encoded, found or prefix
 *
 * @typedef {object} EncoderState sizes are in tokens
 * @property {[r: number, item: number, tokens: number][]} items those that the step encodes
 * @property {number} budget
 * @property {number} size size of the encoder cache
 * @property {number} free its tokens without an output
 * @property {number} freeable its tokens with an output that no request needs
 * @property {string[]} evicted identifiers
 *
 * @typedef {[r: number, tokens: number, computed: number, decode: number, hit: number]} Scheduled a request in a step
 *
 * @typedef {object} Step
 * @property {number} n the step's number, from 1
 * @property {string} kind prefill, decode, mixed, empty or unknown
 * @property {number} [at] absent in a variant, as are its other times
 * @property {number} [us]
 * @property {number} [recording] microseconds of the step that the recording took
 * @property {Record<string, number>} [parts] microseconds of its parts: schedule, prepare, forward, logits, sample, process
 * @property {number} [outputs] microseconds in which the front end made text of its tokens, after it
 * @property {number} [budget] max_num_batched_tokens
 * @property {number} free blocks that are free after scheduling
 * @property {number} [total] blocks that requests can use
 * @property {Scheduled[]} [scheduled]
 * @property {[r: number, cached: string, fresh: string][]} [blocks] blocks that requests got, as ranges
 * @property {number[]} [running] the running queue after scheduling
 * @property {number[]} [waiting]
 * @property {number} [moreWaiting] requests at the end of a long waiting queue that are not listed
 * @property {[r: number, code: string, details: string][]} [held]
 * @property {number[]} [new]
 * @property {number[]} [resumed]
 * @property {number[]} [preempted]
 * @property {number[]} [aborted]
 * @property {[r: number, reason: string][]} [finished]
 * @property {number} [inFlight] of a step without requests: the earlier step that was still computing them
 * @property {number[]} [released] requests that gave their blocks back before this step or in it
 * @property {number[]} [evicted] cached blocks that got a new owner
 * @property {[block: number, r: number, index: number][]} [cached] blocks that became full and cached
 * @property {boolean} [inconsistent] whether the number of free blocks disagrees with the block tables
 * @property {EncoderState} [encoder] absent for a text model
 * @property {number[]} [logits] shape of the logits
 * @property {any[][]} [sampled] see `tracellm.report.html.data._Candidates`
 * @property {string} [error]
 *
 * @typedef {[allowed: number, share: number, likeliest: number[], forbidden: boolean, listed: number[]]} GrammarMask
 *   how many tokens a grammar allowed, and their probability together; the likeliest token without the mask, and whether
 *   the grammar forbade it; the likeliest allowed ones; tokens as id, probability, id, probability, ...
 *
 * @typedef {object} Engine
 * @property {string} [whatIf] the changed settings, in a variant that `tracellm whatif` scheduled
 * @property {string} process
 * @property {number} blockSize tokens in a block; 0 if not recorded
 * @property {number} numGroups groups of layers, each with blocks of its own for a token
 * @property {boolean} prefixCaching
 * @property {number} maxNumSeqs
 * @property {Step[]} steps
 * @property {Partial<import("../model/model.js").Model>} [model] the loaded model; empty if it was not recorded
 *
 * @typedef {object} Texts the texts that the script shows, and the first language to show
 * @property {string} lang
 * @property {Record<string, Record<string, string>>} texts
 *
 * @typedef {object} Run
 * @property {Engine[]} engines
 * @property {Request[]} requests
 * @property {Refused[]} [refused] HTTP requests that submitted no request
 * @property {number} [moreRefused] number of those that are left out
 * @property {Record<string, string>} tokens text of each token id
 * @property {string[]} [pictures] data URLs of small pictures of the requests' images
 * @property {import("../model/kernels.js").KernelRow[]} [kernels] see `tracellm.report.html.model_data.kernel_rows`
 * @property {import("../source/functions.js").Source} [source] the functions that were called
 * @property {import("../sequence/model.js").AllRequests} sequence absent in a comparison
 */

import { unpack } from "../base/unpack.js";

/**
 * Return the page's data.
 * @returns {Promise<any>}
 */
export async function readData() {
  return (await unpack(/** @type {HTMLElement} */ (document.getElementById("data")))).json();
}

/**
 * Return candidates in pairs.
 * @param {number[]} listed token id, probability, token id, probability, ...
 */
export function candidatePairs(listed) {
  return Array.from({ length: listed.length / 2 }, (_, i) => /** @type {[id: number, probability: number]} */ ([listed[2 * i], listed[2 * i + 1]]));
}

/**
 * Return the mask of a sampled token's grammar if it forbade the likeliest token.
 * @param {any[]} row a row of `sampled`
 * @returns {GrammarMask | null}
 */
export function forbiddingMask({ 8: mask }) {
  return mask?.[3] ? mask : null;
}

/**
 * Return whether a request takes the likeliest token, without chance.
 * @param {Request} request
 */
export function isGreedy({ params = [] }) {
  return params.some(([name, value]) => name === "temperature" && Number(value) === 0);
}

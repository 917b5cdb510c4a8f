/** A small handmade run: three requests, one of which is preempted and comes back, and a shared prefix. */
export function aRun(/** @type {number} */ copies = 1) {
  const steps = [];
  for (let copy = 0; copy < copies; copy += 1) {
    const n = copy * 5;
    steps.push(
      { n: n + 1, kind: "prefill", at: n * 10, us: 10, free: 5, total: 8, budget: 16, scheduled: [[0, 8, 0, 0, 0]], blocks: [[0, "", "1-2"]], cached: [[1, 0, 0], [2, 0, 1]], running: [0], waiting: [1, 2], held: [[1, "token_budget", "wanted=9 given=0 left=0 budget=16"]], sampled: [[0, 40, 0.5, [40, 0.5, 41, 0.25]]] },
      { n: n + 2, kind: "mixed", at: n * 10 + 10, us: 10, free: 3, total: 8, budget: 16, scheduled: [[0, 1, 8, 1, 0], [1, 5, 4, 0, 4]], blocks: [[0, "", "3"], [1, "1", "4"]], running: [0, 1], waiting: [2], sampled: [[0, 41, 0.5, []]] },
      { n: n + 3, kind: "decode", at: n * 10 + 20, us: 10, free: 6, total: 8, budget: 16, scheduled: [[1, 1, 9, 1, 0]], released: [0], preempted: [0], blocks: [[1, "", "2"]], evicted: [2], running: [1], waiting: [0, 2], sampled: [[1, 42, 1, []]] },
      { n: n + 4, kind: "prefill", at: n * 10 + 30, us: 10, free: 5, total: 8, budget: 16, scheduled: [[0, 10, 0, 0, 0]], released: [1], resumed: [0], blocks: [[0, "1", "5-6"]], running: [0], waiting: [2], finished: [[0, "length"]], sampled: [[0, 43, 1, []]] },
      { n: n + 5, kind: "empty", at: n * 10 + 40, us: 1, free: 8, total: 8, budget: 16, released: [0], waiting: [2] },
    );
  }
  return {
    lang: "en",
    texts: { en: {}, zh: {} },
    tokens: { 40: "a", 41: "b" },
    requests: [
      { id: "0", numPrompt: 8, promptTokens: [1, 2, 3, 4, 5, 6, 7, 8] },
      { id: "1", numPrompt: 9, promptTokens: [1, 2, 3, 4, 9, 9, 9, 9, 9] },
      { id: "2" },
    ],
    engines: [{ process: "main", blockSize: 4, numGroups: 1, prefixCaching: true, maxNumSeqs: 4, steps }],
  };
}

/**
 * A handmade run with all that questions are about: chunked prefill, waits for budget, batch and blocks, a prefix cache
 * hit, an eviction, a preemption and resumption, an arrival, an abort, and tokens chosen greedily and at random.
 */
export function aBusyRun() {
  const budget = 8;
  const total = 8;
  const listed = [40, 0.5, 41, 0.25, 42, 0.125];
  const steps = [
    { kind: "prefill", free: 5, scheduled: [[0, 6, 0, 0, 0], [1, 2, 0, 0, 0]], blocks: [[0, "", "1-2"], [1, "", "3"]], cached: [[1, 0, 0]], new: [0, 1], running: [0, 1], waiting: [2, 3], held: [[1, "token_budget", "wanted=9 given=2 left=2 budget=8"], [2, "token_budget", "wanted=8 given=0 left=0 budget=8"], [3, "behind", "request=gamma cause=token_budget"]], sampled: [[0, 40, 0.5, listed]] },
    { kind: "mixed", free: 3, scheduled: [[0, 1, 6, 1, 0], [1, 7, 2, 0, 0]], blocks: [[1, "", "4-5"]], cached: [[3, 1, 0], [4, 1, 1]], running: [0, 1], waiting: [2, 3], held: [[2, "token_budget", "wanted=8 given=0 left=0 budget=8"], [3, "behind", "request=gamma cause=token_budget"]], sampled: [[0, 40, 0.5, listed], [1, 41, 0.25, listed]] },
    { kind: "mixed", free: 2, scheduled: [[0, 1, 7, 1, 0], [1, 1, 9, 1, 0], [2, 4, 4, 0, 4]], blocks: [[2, "1", "6"]], cached: [[2, 0, 1], [6, 2, 1]], new: [2], running: [0, 1, 2], waiting: [3], held: [[3, "max_num_seqs", "running=3 limit=3"]], finished: [[0, "length"]], sampled: [[0, 42, 0.5, []], [1, 40, 0.5, listed], [2, 40, 0.5, []]] },
    { kind: "mixed", free: 0, scheduled: [[1, 1, 10, 1, 0], [2, 1, 8, 1, 0], [3, 5, 0, 0, 0]], released: [0], blocks: [[2, "", "7"], [3, "", "8,2"]], evicted: [2], cached: [[8, 3, 0]], new: [3], running: [1, 2, 3], sampled: [[1, 42, 0.125, listed], [2, 40, 0.5, []], [3, 40, 0.5, []]] },
    { kind: "decode", free: 0, scheduled: [[1, 1, 11, 1, 0], [2, 1, 9, 1, 0], [3, 1, 5, 1, 0]], cached: [[5, 1, 2]], running: [1, 2, 3], sampled: [[1, 40, 0.5, listed], [2, 40, 0.5, []], [3, 40, 0.5, []]] },
    { kind: "decode", free: 1, scheduled: [[1, 1, 12, 1, 0], [2, 1, 10, 1, 0]], released: [3], blocks: [[1, "", "8"]], evicted: [8], preempted: [3], running: [1, 2], waiting: [3], held: [[3, "preempted", "by=beta needed=1 free=0"]], finished: [[2, "stop"]], sampled: [[1, 40, 0.5, listed], [2, 0, 0.5, []]] },
    { kind: "mixed", free: 2, scheduled: [[1, 1, 13, 1, 0], [3, 7, 0, 0, 0]], released: [2], blocks: [[3, "", "2,6"]], evicted: [6], cached: [[2, 3, 0]], resumed: [3], running: [1, 3], waiting: [4], held: [[4, "token_budget", "wanted=3 given=0 left=0 budget=8"]], sampled: [[1, 40, 0.5, listed], [3, 41, 0.5, []]] },
    { kind: "decode", free: 3, scheduled: [[3, 1, 7, 1, 0]], released: [1], cached: [[6, 3, 1]], aborted: [1], running: [3], waiting: [4], held: [[4, "no_free_blocks", "needed=4 free=3"]], finished: [[3, "length"]], sampled: [[3, 40, 0.5, []]] },
    { kind: "empty", free: 5, released: [3], waiting: [4], held: [[4, "no_free_blocks", "needed=6 free=5"]] },
  ];
  const greedy = [["max_tokens", "3"], ["temperature", "0"]];
  return {
    lang: "en",
    texts: { en: {}, zh: {} },
    tokens: { 40: " a", 41: "b", 42: "c", 0: "<end>" },
    requests: [
      { id: "alpha", numPrompt: 6, promptTokens: [1, 2, 3, 4, 5, 6], params: greedy },
      { id: "beta", numPrompt: 9, params: [["temperature", "0.8"]] },
      { id: "gamma", numPrompt: 8, promptTokens: [1, 2, 3, 4, 7, 7, 7, 7], params: greedy },
      { id: "delta", numPrompt: 5, params: greedy },
      { id: "epsilon", numPrompt: 3 },
    ],
    engines: [
      { process: "main", blockSize: 4, numGroups: 1, prefixCaching: true, maxNumSeqs: 3, steps: steps.map((step, i) => ({ n: i + 1, at: i * 10, us: 10, budget, total, ...step })) },
    ],
  };
}

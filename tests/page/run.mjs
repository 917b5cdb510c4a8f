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

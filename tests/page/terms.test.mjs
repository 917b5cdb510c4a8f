import assert from "node:assert/strict";
import { test } from "node:test";

import { termPattern } from "../../tracellm/report/html/js/base/terms.js";

const find = (names, text) => {
  const { pattern, ids } = termPattern(names.map((name, i) => ({ id: `word-${i}`, name })));
  const found = pattern.exec(text);
  return found && [found[1], ids.get(found[1].toLowerCase())];
};

test("a term is found as a whole word, in any case, and in the plural", () => {
  assert.deepEqual(find(["step", "prefix cache, prefix cache hit"], "Prefix cache hits of each Step"), ["Prefix cache hit", "word-1"]);
  assert.deepEqual(find(["step"], "no stepping, but steps"), ["step", "word-0"]);
  assert.equal(find(["step"], "EngineCore.step_fn, step(), mid-step"), null);
});

test("a Chinese term is found within a sentence, and by its English name", () => {
  assert.deepEqual(find(["预填充（prefill）"], "第 1 步：预填充 32 个"), ["预填充", "word-0"]);
  assert.deepEqual(find(["预填充（prefill）"], "32 prefill"), ["prefill", "word-0"]);
});

test("terms of one character are no links, and an empty glossary finds nothing", () => {
  assert.equal(find(["n"], "n outputs"), null);
  assert.equal(find(["n"], ""), null);
});

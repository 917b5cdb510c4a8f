import assert from "node:assert/strict";
import { test } from "node:test";

import { gridLines, squaresFrom } from "../../tracellm/report/html/js/steps/items.js";

test("lines part all squares", () => {
  assert.equal(gridLines(2, 3), "M0 1H3M1 0V2M2 0V2");
  assert.equal(gridLines(1, 1), "");
});

test("the squares from a number on are the rest of its row, and the rows below", () => {
  assert.equal(squaresFrom(2, 3, 0), "M0 0H3V2H0Z");
  assert.equal(squaresFrom(2, 3, 1), "M1 0H3V1H1ZM0 1H3V2H0Z");
  assert.equal(squaresFrom(2, 3, 3), "M0 1H3V2H0Z");
  assert.equal(squaresFrom(2, 3, 5), "M2 1H3V2H2Z");
});

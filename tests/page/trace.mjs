/** Calls made by hand, written as `tracellm.report.html.calls_data` writes them. */
import { Calls } from "../../tracellm/report/html/js/calls/calls.js";

/** A script that calls f (which is a step, and calls g, which fails) and f again; another process runs beside it. */
export function aTrace() {
  const kinds = [[0, 0, 0, 0], [1, 1, 0, 0], [2, 2, 0, 1], [3, 1, 1, 0]];
  return {
    head: {
      names: ["main.py", "A.f", "A.g", "B.run"],
      levels: ["request", "step", "layer", "kernel"],
      threads: [{ process: "main", pid: 1, thread: "", engine: 0 }, { process: "other", pid: 2, thread: "", engine: null }],
      kinds,
      steps: [[1]],
      requests: [],
      pairs: [["a", 1], ["b", ["x"]], ["", "ValueError: no"]],
      sets: [[0, 1], [2]],
      leftOut: 1,
    },
    // start since the previous call and duration in 0.1 µs, caller (0, or twice the distance), kind, recording, attributes
    rows: [
      [0, 10_000, 0, 0, 0, 0],
      [10, 3001, 2, 1, 100, 2],
      [15, 200, 2, 2, 0, 3],
      [3975, 1000, 6, 1, 0, 1],
      [5000, 50, 0, 3, 0, 0],
    ],
  };
}

/**
 * Return a trace's calls, as the page reads them.
 * @param {{head: object, rows: number[][]}} trace
 */
export function calls(trace) {
  return new Calls(written(trace));
}

/**
 * Return the bytes of a trace's calls.
 * @param {{head: object, rows: number[][]}} trace
 */
export function written({ head, rows }) {
  const bytes = [];
  for (const column of [0, 1, 2, 3, 4, 5]) {
    for (const row of rows) {
      let value = row[column];
      for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
      bytes.push(value);
    }
  }
  const text = new TextEncoder().encode(JSON.stringify({ ...head, count: rows.length }));
  const length = new Uint8Array(new Uint32Array([text.length]).buffer);
  return new Uint8Array([...length, ...text, ...bytes]);
}

/** Print what the page computes of each step's model, as JSON; the data of a run comes on stdin. Run by test_model_truth.py. */

import { readFileSync } from "node:fs";

import { Calls } from "../../tracellm/report/html/js/calls/calls.js";
import { allParts, modelForward, stepBatch } from "../../tracellm/report/html/js/model/model.js";
import { stepTimes } from "../../tracellm/report/html/js/model/times.js";
import { agrees, attentionLaunch, launchReads } from "../../tracellm/report/html/js/model/reads.js";
import { Replay } from "../../tracellm/report/html/js/run/replay.js";

const { run, calls: encoded } = JSON.parse(readFileSync(0, "utf8"));
const calls = new Calls(new Uint8Array(Buffer.from(encoded, "base64")));
const [engine] = run.engines;
const replay = new Replay(engine, run.requests);
const steps = engine.steps.map((step, i) => {
  const forward = modelForward(engine.model, stepBatch(step));
  const times = stepTimes(calls, calls.stepCall(0, i), forward);
  const launches = times.launches.map((call) => attentionLaunch(calls, call)).filter((launch) => launch);
  return {
    parts: allParts(forward),
    timed: [...times.parts.keys()],
    layers: [...times.layers.keys()],
    agrees: launches.map((launch) => agrees(launch, launchReads(replay.at(i), engine, launch))),
  };
});
process.stdout.write(JSON.stringify(steps));

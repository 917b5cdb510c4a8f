"""The run of lab 0: the seed in `lab.json`, beside this file, chooses its prompts and settings."""

import json
import sys
from pathlib import Path

from tracellm import LLM, SamplingParams
from tracellm.lab.labs.lab00_read_a_run.workload import make_workload

state = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("lab.json")
workload = make_workload(json.loads(state.read_text(encoding="utf-8"))["seed"])
llm = LLM(**workload.settings)
params = [SamplingParams(temperature=0, max_tokens=most, ignore_eos=True) for most in workload.max_tokens]
for output in llm.generate(workload.prompts, params, use_tqdm=False):
    print(output.request_id, repr(output.prompt), repr(output.outputs[0].text))

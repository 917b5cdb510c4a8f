"""A run whose batch mixes greedy, penalized and random requests; with a case as argument, it has the case's parameters.

The logits are the model's, so the tokens are others than those of the case.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tracellm import LLM, SamplingParams

rows: list[dict[str, Any]] = [
    {},
    {"temperature": 2.0, "seed": 2, "repetition_penalty": 1.8},
    {"frequency_penalty": 1.5, "presence_penalty": 0.5},
    {"temperature": 2.5, "seed": 1},
    {"temperature": 2.5, "top_k": 20, "top_p": 0.9, "seed": 3},
    {"temperature": 2.5, "min_p": 0.05},
]
if len(sys.argv) > 1:
    case = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    names = {"repetition": "repetition_penalty", "frequency": "frequency_penalty", "presence": "presence_penalty"}
    kept = (*names, "temperature", "top_k", "top_p", "min_p", "seed")
    rows = [
        {names.get(name, name): row[name] for name in kept if row.get(name) is not None}
        for row in case.get("rows", [case.get("row", {})])
    ]
params = [SamplingParams(**{"temperature": 0.0, **row}, max_tokens=16, ignore_eos=True) for row in rows]
prompts = ["Tell me a short story about a fox and a dog."] * len(rows)
for output in LLM(seed=0).generate(prompts, params, use_tqdm=False):
    print(repr(output.outputs[0].text))

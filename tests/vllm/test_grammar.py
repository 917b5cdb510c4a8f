"""The grammar's mask in a real vLLM, against the probabilities that the same vLLM returns without a grammar."""

import json
from math import exp
from pathlib import Path

import pytest

from tests.real_vllm import ask_vllm
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

_ROOT = Path(__file__).parents[2]
_CODE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
import tracellm
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

model = sys.argv[1] + "/tracellm/tiny"
free = SamplingParams(temperature=0, max_tokens=1, logprobs=1)
form = SamplingParams(temperature=0, max_tokens=4, structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
with tracellm.explain(sys.argv[2], lang="en"):
    llm = LLM(model=model, dtype="float32", enforce_eager=True, max_model_len=160, block_size=32)
    [output] = llm.generate(["The sky is"], free)
    [constrained] = llm.generate(["The sky is"], form)
[token] = output.outputs[0].token_ids
with open(sys.argv[3], "w") as file:
    json.dump([token, output.outputs[0].logprobs[0][token].logprob, constrained.outputs[0].text], file)
"""


def test_the_mask_of_a_real_vllm(tmp_path: Path) -> None:
    """The first step's mask has the tokens that begin an answer, and the token that vLLM chooses without a grammar."""
    ask_vllm(_CODE, _ROOT, tmp_path / "run", tmp_path / "free.json", cwd=tmp_path, VLLM_CPU_KVCACHE_SPACE="1")
    token, logprob, text = json.loads((tmp_path / "free.json").read_text(encoding="utf-8"))
    folder = RunFolder.open(tmp_path / "run")
    assert folder.manifest["probes"]["problems"] == []
    masks = [sampled.grammar for step in steps(folder.trace) for sampled in step.sampled]
    assert masks[0] is None
    first = masks[1]
    assert first is not None
    assert {piece for _, piece, _ in first.allowed} <= {"y", "ye", "yes", "n", "no"}
    assert len(first.allowed) == first.num_allowed >= 2
    assert first.forbidden is not None
    assert first.forbidden[0] == token
    assert first.forbidden[2] == pytest.approx(exp(logprob), abs=1e-4)
    assert text in ("yes", "no")

"""Prompts with pictures against a real vLLM 0.11.1: placeholders, and greedy tokens in float32.

tests/fixtures/record_picture_tokens.py recorded them.
"""

import json
from pathlib import Path

from tests.fixtures.record_picture_tokens import make_vllms_checkpoint, prompts
from tracellm import LLM, SamplingParams

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "picture-tokens.json").read_text())


def test_tokens_equal_those_of_a_real_vllm(tmp_path: Path) -> None:
    """Each prompt gets the placeholders and the tokens that vLLM 0.11.1 gave it, with the same checkpoint."""
    make_vllms_checkpoint(tmp_path)
    llm = LLM(tmp_path, dtype="float32", max_model_len=160)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    outputs = llm.generate(prompts(), params, use_tqdm=False)
    assert [output.prompt_token_ids for output in outputs] == [row["prompt_token_ids"] for row in RECORDED]
    assert [list(output.outputs[0].token_ids) for output in outputs] == [row["token_ids"] for row in RECORDED]

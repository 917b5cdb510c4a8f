"""Test of structured outputs against a recording of vLLM 0.11.1.

tests/fixtures/README.md describes the recording.
"""

import json
from pathlib import Path

from tracellm import LLM, SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = [json.loads(line) for line in (FIXTURES / "structured-outputs.jsonl").read_text("utf-8").splitlines()]


def params_of(recorded: dict) -> SamplingParams:
    """Make the parameters of a recorded request."""
    constraint, others = recorded["structured_outputs"], dict(recorded["others"])
    if "logit_bias" in others:
        others["logit_bias"] = {int(token): bias for token, bias in others["logit_bias"].items()}
    constraints = None if constraint is None else StructuredOutputsParams(**constraint)
    return SamplingParams(temperature=0, structured_outputs=constraints, **others)


def test_every_recorded_request_gets_vllms_tokens():
    """Every recorded request gets vLLM's tokens, with constraints of all kinds and without."""
    llm = LLM(
        str(FIXTURES / "tiny-random-qwen2"),
        dtype="float32",
        block_size=16,
        num_gpu_blocks_override=200,
        max_num_batched_tokens=64,
        max_model_len=256,
    )
    prompts = [{"prompt_token_ids": recorded["prompt_token_ids"]} for recorded in RECORDED]
    outputs = llm.generate(prompts, [params_of(recorded) for recorded in RECORDED], use_tqdm=False)
    assert len(outputs) == 23
    for recorded, output in zip(RECORDED, outputs, strict=True):
        completion = output.outputs[0]
        assert [list(completion.token_ids), completion.finish_reason, completion.stop_reason] == [
            recorded["token_ids"],
            recorded["finish_reason"],
            recorded["stop_reason"],
        ], recorded["structured_outputs"]

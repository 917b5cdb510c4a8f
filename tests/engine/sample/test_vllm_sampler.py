"""Tests of the batch and the sampler against vLLM 0.11.1, with random logits and sampling parameters.

tests/fixtures/sampler-cases.jsonl has the results of vLLM's `InputBatch` and `Sampler` over a few steps in which
requests come and end; tests/fixtures/record_sampler_cases.py recorded them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.sample.rows import Row, make_batch, make_request, sampler

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "fixtures" / "sampler-cases.jsonl").read_text().splitlines()
]
# First exponential variates of a seeded generator; they depend on whether PyTorch was built with MKL.
NOISE = torch.tensor([0.327644, 0.319783, 1.981175, 1.069117, 2.557856, 1.829745, 0.349149, 0.822622])
SAME_NOISE = torch.allclose(torch.empty(8).exponential_(generator=torch.Generator().manual_seed(7)), NOISE, atol=1e-5)


def to_row(request: dict[str, Any]) -> Row:
    """Make a row of a recorded request; JSON turned the token ids in `logit_bias` into strings."""
    params = dict(request["params"])
    if "logit_bias" in params:
        params["logit_bias"] = {int(token): bias for token, bias in params["logit_bias"].items()}
    return Row(params, request["prompt"], request["output"], request["bad_words"])


def test_the_noise_is_that_of_the_recording() -> None:
    """PyTorch draws the recording's noise; otherwise drawn tokens and log probabilities are not compared."""
    if not SAME_NOISE:
        pytest.skip("this PyTorch draws other noise than the recording, like a build without MKL")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['seed']}-{case['logprobs_mode']}")
def test_sampler_does_as_vllms(case: dict[str, Any]) -> None:
    """Rows, tokens, log probabilities and ranks equal vLLM's."""
    batch = make_batch(5, len(case["steps"][0]["logits"][0]))
    engine = sampler(logprobs_mode=case["logprobs_mode"])
    for step in case["steps"]:
        for name in step["gone"]:
            batch.remove_request(name)
        for request in step["come"]:
            batch.add_request(make_request(request["id"], to_row(request)))
        batch.condense()
        batch.refresh_metadata()
        assert batch.req_ids == step["req_ids"]

        output = engine(torch.tensor(step["logits"]), batch.sampling_metadata)
        tokens = output.sampled_token_ids[:, 0].tolist()
        temperature = batch.sampling_metadata.temperature
        for row, token in enumerate(tokens):
            if SAME_NOISE or temperature is None or temperature[row] == 0:
                assert token == step["tokens"][row], f"row {row}, {batch.req_ids[row]}"
        if "logprobs" not in step:
            assert output.logprobs_tensors is None
        elif SAME_NOISE:
            compare_logprobs(output.logprobs_tensors, step)
        for row, token in enumerate(step["tokens"]):
            batch.append_tokens([row], [token])


def compare_logprobs(tensors: Any, step: dict[str, Any]) -> None:
    """Check sampled and most likely tokens; the order among tokens of probability 0 is not checked."""
    ids, logprobs, ranks = (tensor.tolist() for tensor in tensors)
    assert ranks == step["ranks"]
    for row, (found, expected) in enumerate(zip(logprobs, step["logprobs"], strict=True)):
        expected = [-torch.inf if number is None else number for number in expected]
        assert found == pytest.approx(expected, abs=2e-5)
        assert ids[row][0] == step["logprob_token_ids"][row][0]
        reported = {token: number for token, number in zip(ids[row], found, strict=True) if number > -torch.inf}
        expected_pairs = zip(step["logprob_token_ids"][row], expected, strict=True)
        assert reported == pytest.approx(
            {token: number for token, number in expected_pairs if number > -torch.inf}, abs=2e-5
        )

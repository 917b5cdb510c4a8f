"""Tests of the conditions that end a request."""

import pytest

from tests.engine.sched.harness import make_request
from tracellm.engine.core.sched.utils import check_stop
from tracellm.engine.ipc.messages import FinishReason

EOS = 1


@pytest.mark.parametrize(
    ("tokens", "sampling", "reason", "stop_reason"),
    [
        ([5], {}, None, None),
        ([EOS], {}, FinishReason.STOP, None),
        ([EOS], {"ignore_eos": True}, None, None),
        ([8], {"stop_token_ids": [8, 9]}, FinishReason.STOP, 8),
        ([EOS, 8], {"min_tokens": 3, "stop_token_ids": [8]}, None, None),
        ([5, 5, EOS], {"min_tokens": 3}, FinishReason.STOP, None),
        ([5, 5, 5, 5], {}, FinishReason.LENGTH, None),
        ([5, 5, 5, EOS], {}, FinishReason.STOP, None),
    ],
)
def test_a_request_ends_by_token_or_by_length(tokens, sampling, reason, stop_reason):
    """A request ends by EOS unless ignored, by a stop token, or at max_tokens=4; the first two after min_tokens."""
    request = make_request("a", 2, max_tokens=4, eos_token_id=EOS, **sampling)
    request.append_output_token_ids(tokens)
    assert check_stop(request, max_model_len=100) is (reason is not None)
    assert request.get_finished_reason() is reason
    assert request.stop_reason == stop_reason
    assert request.is_finished() is (reason is not None)


def test_a_request_ends_at_the_models_length():
    """Prompt and output together never exceed max_model_len."""
    request = make_request("a", 2, max_tokens=50)
    request.append_output_token_ids(5)
    assert not check_stop(request, max_model_len=4)
    request.append_output_token_ids(5)
    assert check_stop(request, max_model_len=4)
    assert request.get_finished_reason() is FinishReason.LENGTH

"""Tests of `Request`."""

from tests.engine.core_requests import core_request
from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from tracellm.engine.sample.sampling_params import SamplingParams


def test_everything_in_the_message_arrives():
    """A request has all fields of its message, and its full blocks are hashed at once."""
    params = SamplingParams(max_tokens=5)
    message = core_request(
        request_id="a",
        prompt_token_ids=[1, 2, 3],
        sampling_params=params,
        eos_token_id=9,
        arrival_time=12.5,
        client_index=2,
        priority=7,
    )
    request = Request.from_engine_core_request(message, get_request_block_hasher(2))
    assert (request.request_id, request.prompt_token_ids, request.sampling_params) == ("a", [1, 2, 3], params)
    assert (request.eos_token_id, request.arrival_time, request.client_index, request.priority) == (9, 12.5, 2, 7)
    assert (request.max_tokens, request.status, len(request.block_hashes)) == (5, RequestStatus.WAITING, 1)


def test_the_items_of_the_message_arrive():
    """A request has the items of its message, which count in its block hashes; a text has none."""
    items = [MultiModalFeatureSpec(None, "image", "x", PlaceholderRange(1, 2))]
    params = SamplingParams(max_tokens=5)
    messages = [core_request("a", [1, 2, 3], params, mm_features=features) for features in (items, None)]
    request, text = (Request.from_engine_core_request(message, get_request_block_hasher(2)) for message in messages)
    assert (request.mm_features, request.has_encoder_inputs, request.get_num_encoder_tokens(0)) == (items, True, 2)
    assert (text.mm_features, text.has_encoder_inputs) == ([], False)
    assert request.block_hashes != text.block_hashes


def test_generated_tokens_leave_the_prompt_alone():
    """Generated tokens are appended to the output, and the prompt stays unchanged."""
    prompt = [1, 2]
    request = Request("a", prompt, SamplingParams(max_tokens=5), None)
    request.append_output_token_ids(3)
    request.append_output_token_ids([4, 5])
    assert prompt == request.prompt_token_ids == [1, 2]
    assert list(request.output_token_ids) == [3, 4, 5]
    assert list(request.all_token_ids) == [1, 2, 3, 4, 5]
    assert (request.num_prompt_tokens, request.num_output_tokens, request.num_tokens) == (2, 3, 5)
    assert request.block_hashes == []

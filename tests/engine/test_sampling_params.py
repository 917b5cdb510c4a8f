"""`SamplingParams`: what is accepted, what is refused and how, and how the model's stop tokens come in."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracellm import SamplingParams
from tracellm.engine.errors import EngineError
from tracellm.engine.messages import EngineCoreRequest
from tracellm.engine.sampling_params import SamplingType


def test_defaults_are_vllms():
    """Without arguments: the defaults of vLLM 0.11.1."""
    params = SamplingParams()
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (1.0, 1.0, 0, None)
    assert (params.max_tokens, params.min_tokens, params.stop, params.stop_token_ids) == (16, 0, [], [])
    assert (params.ignore_eos, params.detokenize, params.skip_special_tokens) == (False, True, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.1}, "`temperature` must be a number, at least 0 .*got -0.1"),
        ({"temperature": None}, "`temperature` must be .*got None"),
        ({"temperature": float("nan")}, "`temperature` must be .*got nan"),
        ({"temperature": float("inf")}, "`temperature` must be .*got inf"),
        ({"temperature": "0"}, "`temperature` must be .*got '0'"),
        ({"temperature": True}, "`temperature` must be .*got True"),
        ({"top_p": 0}, r"`top_p` must be a number in \(0, 1\].*got 0"),
        ({"top_p": 1.01}, "`top_p` must be .*got 1.01"),
        ({"top_k": -2}, "`top_k` must be a whole number.*got -2"),
        ({"top_k": 1.0}, "`top_k` must be a whole number.*got 1.0"),
        ({"seed": 1.5}, "`seed` must be"),
        ({"seed": 2**64}, "`seed` must be"),
        ({"max_tokens": 0}, "`max_tokens` must be a whole number, at least 1, or None, got 0"),
        ({"min_tokens": -1}, "`min_tokens` must be a whole number, at least 0, got -1"),
        ({"min_tokens": 5, "max_tokens": 4}, "`min_tokens` must be at most `max_tokens`=4, got 5"),
        ({"stop": ""}, "`stop` must be .*none of them empty"),
        ({"stop": ["a", ""]}, "`stop` must be"),
        ({"stop": 5}, "`stop` must be"),
        ({"stop": "a", "detokenize": False}, "`stop` strings need the text"),
        ({"stop_token_ids": [-1]}, "`stop_token_ids` must be"),
        ({"stop_token_ids": 5}, "`stop_token_ids` must be"),
        ({"ignore_eos": 1}, "`ignore_eos` must be True or False, got 1"),
        ({"temprature": 0}, "no parameter `temprature`. Did you mean `temperature`?.*It takes: temperature, top_p"),
        ({"use_beam_search": True}, "no parameter `use_beam_search`. It takes"),
        ({"n": 2}, "`n=2` is not supported yet; leave it out"),
        ({"presence_penalty": 0.5}, "`presence_penalty=0.5` is not supported yet"),
        ({"logprobs": 0}, "`logprobs=0` is not supported yet"),
        ({"min_p": 0.1}, "`min_p=0.1` is not supported yet"),
        ({"bad_words": ["x"]}, "is not supported yet"),
    ],
)
def test_what_is_refused(arguments, message):
    """Out of range, of the wrong type, unknown, or not here yet: named with its value and what is accepted."""
    with pytest.raises(EngineError, match=f"^SamplingParams.*{message}"):
        SamplingParams(**arguments)


def test_vllms_neutral_values_are_accepted():
    """Parameters that are not here yet may be spelled out at their defaults."""
    spelled_out = SamplingParams(n=1, presence_penalty=0, repetition_penalty=1.0, logprobs=None, bad_words=[])
    assert repr(spelled_out) == repr(SamplingParams())


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"temperature": 0}, SamplingType.GREEDY),
        ({"temperature": 0, "seed": 3}, SamplingType.GREEDY),
        ({"temperature": 0.5}, SamplingType.RANDOM),
        ({"temperature": 0.5, "seed": -1}, SamplingType.RANDOM),
        ({"temperature": 0.5, "seed": 0}, SamplingType.RANDOM_SEED),
    ],
)
def test_sampling_type(arguments, kind):
    """Greedy at temperature 0; with a seed of its own the request has its own generator; -1 is no seed."""
    assert SamplingParams(**arguments).sampling_type is kind


def test_greedy_ignores_the_filters():
    """At temperature 0 the filters are off; a tiny temperature is raised to what float16 can bear."""
    greedy = SamplingParams(temperature=0, top_p=0.5, top_k=3)
    assert (greedy.top_p, greedy.top_k) == (1.0, 0)
    assert SamplingParams(temperature=0.0001).temperature == 0.01


def test_a_stop_string_is_a_list_of_one():
    """`stop="x"` is `stop=["x"]`; while streaming, as much text is held back as may begin a stop string."""
    assert SamplingParams(stop="abc").stop == SamplingParams(stop=["abc"]).stop == ["abc"]
    assert SamplingParams(stop=["abc", "a"]).output_text_buffer_length == 2
    assert SamplingParams(stop="abc", include_stop_str_in_output=True).output_text_buffer_length == 0


def test_the_models_end_of_sequence_tokens():
    """The first is left to the engine; further ones become stop tokens, unless end of sequence is to be ignored."""
    params = SamplingParams(stop_token_ids=[9])
    params.update_from_generation_config({"eos_token_id": [2, 5]}, model_eos_token_id=2)
    assert params.stop_token_ids == [5, 9]
    assert params.all_stop_token_ids == {2, 5, 9}
    ignoring = SamplingParams(stop_token_ids=[9], ignore_eos=True)
    ignoring.update_from_generation_config({"eos_token_id": [2, 5]}, model_eos_token_id=2)
    assert ignoring.stop_token_ids == [9]
    single = SamplingParams()
    single.update_from_generation_config({"eos_token_id": 2}, model_eos_token_id=2)
    assert single.stop_token_ids == []


def test_a_clone_is_independent():
    """What is done to a clone does not reach the original."""
    original = SamplingParams(stop_token_ids=[1])
    clone = original.clone()
    clone.update_from_generation_config({"eos_token_id": [7]})
    assert original.stop_token_ids == [1]
    assert original.all_stop_token_ids == {1}


@given(
    st.builds(
        SamplingParams,
        temperature=st.floats(0, 5),
        top_p=st.floats(0.01, 1),
        top_k=st.integers(-1, 100),
        seed=st.none() | st.integers(-(2**63), 2**63 - 1),
        max_tokens=st.none() | st.integers(1, 100),
        stop=st.lists(st.text(min_size=1), max_size=3),
        stop_token_ids=st.lists(st.integers(0, 1000)),
        ignore_eos=st.booleans(),
    )
)
def test_they_travel_as_bytes(params):
    """Between two processes a request goes as msgpack, and comes out equal."""
    request = EngineCoreRequest("1", [1, 2], params, 0, 1.5)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EngineCoreRequest)
    assert received == request
    assert received.sampling_params.all_stop_token_ids == params.all_stop_token_ids


def test_parameters_go_by_name():
    """A value without a name is refused: in vLLM the first would be `n`, which few would guess."""
    with pytest.raises(EngineError, match=r"by name, as in SamplingParams\(temperature=0\); got 0.5"):
        SamplingParams(0.5)  # type: ignore[call-arg]

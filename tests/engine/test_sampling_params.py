"""Tests of `SamplingParams`: accepted and refused values, and the model's stop tokens."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.core_requests import core_request
from tracellm import SamplingParams
from tracellm.engine.config.errors import EngineError
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.sample.sampling_params import (
    GuidedDecodingParams,
    RequestOutputKind,
    SamplingType,
    StructuredOutputsParams,
)


def test_defaults_are_vllms():
    """The defaults are those of vLLM 0.11.1."""
    params = SamplingParams()
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (1.0, 1.0, 0, None)
    assert (params.max_tokens, params.min_tokens, params.stop, params.stop_token_ids) == (16, 0, [], [])
    assert (params.ignore_eos, params.detokenize, params.skip_special_tokens) == (False, True, True)
    assert (params.n, params.min_p, params.logprobs, params.prompt_logprobs, params.bad_words) == (
        1,
        0.0,
        None,
        None,
        [],
    )
    penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
    assert penalties == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"temperature": -0.1},
            "^temperature must be non-negative, got -0.1. SamplingParams: `temperature` is a number, at",
        ),
        ({"temperature": None}, "`temperature` must be .*got None"),
        ({"temperature": float("nan")}, "`temperature` must be .*got nan"),
        ({"temperature": float("inf")}, "`temperature` must be .*got inf"),
        ({"temperature": "0"}, "`temperature` must be .*got '0'"),
        ({"temperature": True}, "`temperature` must be .*got True"),
        ({"top_p": 0}, r"^top_p must be in \(0, 1\], got 0\. SamplingParams: `top_p` is a number in \(0, 1\]"),
        ({"top_p": 1.01}, "^top_p must be .*got 1.01"),
        ({"top_k": -2}, r"^top_k must be 0 \(disable\), or at least 1, got -2"),
        ({"top_k": 1.0}, "`top_k` must be a whole number.*got 1.0"),
        ({"seed": 1.5}, "`seed` must be"),
        ({"seed": 2**64}, "`seed` must be"),
        ({"max_tokens": 0}, "^max_tokens must be at least 1, got 0. .* a whole number, at least 1, or None"),
        ({"min_tokens": -1}, "^min_tokens must be greater than or equal to 0, got -1"),
        ({"min_tokens": 5, "max_tokens": 4}, "^min_tokens must be less than or equal to max_tokens=4, got 5"),
        ({"stop": ""}, "^stop cannot contain an empty string.*none of them empty"),
        ({"stop": ["a", ""]}, "^stop cannot contain an empty string"),
        ({"stop": 5}, "`stop` must be"),
        ({"stop": "a", "detokenize": False}, "^stop strings are only supported when detokenize is True"),
        ({"stop_token_ids": [-1]}, "`stop_token_ids` must be"),
        ({"stop_token_ids": 5}, "`stop_token_ids` must be"),
        ({"ignore_eos": 1}, "`ignore_eos` must be True or False, got 1"),
        (
            {"temprature": 0},
            "no parameter `temprature`. Did you mean `temperature`?.*It takes: n, .*temperature, top_p",
        ),
        ({"use_beam_search": True}, "no parameter `use_beam_search`. It takes"),
        ({"n": 0}, "^n must be at least 1, got 0. SamplingParams: `n` is a whole number from 1 to 16384"),
        ({"n": True}, "`n` must be a whole number from 1 to 16384, got True"),
        ({"n": 10**9}, "`n` must be a whole number from 1 to 16384, got 1000000000"),
        ({"n": 2, "temperature": 0}, "^n must be 1 when using greedy sampling, got 2.*raise `temperature`"),
        ({"n": 3, "seed": 2**64 - 2}, f"`seed` must be at most {2**64 - 3} with `n=3`"),
        ({"best_of": 2}, "^vLLM V1 does not yet support best_of. .*ask for as many outputs with `n`"),
        (
            {"logits_processors": [print]},
            "^vLLM V1 does not support per request .*`logits_processors=.*use `logit_bias`",
        ),
        ({"presence_penalty": 2.1}, r"^presence_penalty must be in \[-2, 2\], got 2.1"),
        ({"frequency_penalty": "1"}, "`frequency_penalty` must be .*got '1'"),
        ({"repetition_penalty": 0}, "^repetition_penalty must be greater than zero, got 0.*a number above 0"),
        ({"min_p": 1.5}, r"^min_p must be in \[0, 1\], got 1.5"),
        ({"logprobs": -2}, "^logprobs must be non-negative or -1, got -2.*or -1 for the whole vocabulary"),
        ({"logprobs": False}, "`logprobs` must be .*got False"),
        ({"prompt_logprobs": 1.5}, "`prompt_logprobs` must be .*got 1.5"),
        ({"bad_words": "cat"}, "`bad_words` must be a list of strings.*got 'cat'"),
        ({"bad_words": ["cat", " "]}, "`bad_words` must be .*none of them blank"),
        ({"truncate_prompt_tokens": 0}, "^truncate_prompt_tokens must be an integer >= 1 or -1, got 0"),
        ({"logit_bias": {"5": 1}}, "`logit_bias` must be a dict from token ids to numbers.*got"),
        ({"logit_bias": {5: float("nan")}}, "`logit_bias` must be"),
        ({"logit_bias": {5: float("inf")}}, "`logit_bias` must be"),
        ({"logit_bias": [5]}, "`logit_bias` must be"),
        ({"allowed_token_ids": 5}, "`allowed_token_ids` must be a list of token ids"),
        ({"allowed_token_ids": [-1]}, "`allowed_token_ids` must be"),
        ({"extra_args": {1: 2}}, "`extra_args` must be a dict with names as keys"),
        ({"output_kind": "DELTA"}, "must be RequestOutputKind.CUMULATIVE, .DELTA or .FINAL_ONLY, got 'DELTA'"),
        ({"structured_outputs": {"regex": "a"}}, "`structured_outputs` must be a StructuredOutputsParams"),
        ({"guided_decoding": {"regex": "a"}}, "`guided_decoding` must be a GuidedDecodingParams, or None, got"),
        ({"temperature": 10**400}, r"`temperature` must be a number, at least 0 and below 2\*\*127 .*got 1000"),
        ({"repetition_penalty": 1e39}, r"`repetition_penalty` must be .*below 2\*\*127 .*got 1e\+39"),
        ({"logit_bias": {5: -(10**400)}}, "`logit_bias` must be"),
    ],
)
def test_what_is_refused(arguments, message):
    """Values out of range, of a wrong type, unknown or unsupported are named with what is accepted."""
    with pytest.raises(EngineError, match=message if message[0] == "^" else f"^SamplingParams.*{message}"):
        SamplingParams(**arguments)


def test_a_bias_may_forbid_a_token():
    """Minus infinity is an accepted bias, as in vLLM."""
    assert SamplingParams(logit_bias={5: float("-inf"), 6: -100}).logit_bias == {5: float("-inf"), 6: -100}


def test_vllms_neutral_values_are_accepted():
    """Parameters that vLLM V1 refuses are accepted at their defaults."""
    assert repr(SamplingParams(best_of=1, logits_processors=[], bad_words=[])) == repr(SamplingParams())


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
    """The sampling type is greedy at temperature 0 and random otherwise; -1 is no seed."""
    assert SamplingParams(**arguments).sampling_type is kind


def test_greedy_ignores_the_filters():
    """At temperature 0 top-k, top-p and min-p have no effect."""
    greedy = SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.1)
    assert (greedy.top_p, greedy.top_k, greedy.min_p) == (1.0, 0, 0.0)


@pytest.mark.parametrize("temperature", [1e-9, 1e-6, 0.0099])
def test_a_tiny_temperature_is_raised_and_told(temperature):
    """A temperature just above 0 is raised to float16's limit, as in vLLM, with a warning at the user's line."""
    with pytest.warns(UserWarning, match=f"temperature={temperature} .*0.01 is used") as caught:
        params = SamplingParams(temperature=temperature)
    assert (params.temperature, params.sampling_type) == (0.01, SamplingType.RANDOM)
    assert caught[0].filename == __file__


def test_one_logprob_is_true():
    """`True` requests one log probability, and prompt log probabilities disable reading of the prefix cache."""
    params = SamplingParams(logprobs=True, prompt_logprobs=True)
    assert (params.logprobs, params.prompt_logprobs, params.skip_reading_prefix_cache) == (1, 1, True)
    assert SamplingParams(prompt_logprobs=2, skip_reading_prefix_cache=False).skip_reading_prefix_cache is False


def test_a_stop_string_is_a_list_of_one():
    """`stop="x"` is `stop=["x"]`, and streaming holds back text that may begin a stop string."""
    assert SamplingParams(stop="abc").stop == SamplingParams(stop=["abc"]).stop == ["abc"]
    assert SamplingParams(stop=["abc", "a"]).output_text_buffer_length == 2
    assert SamplingParams(stop="abc", include_stop_str_in_output=True).output_text_buffer_length == 0


def test_the_models_end_of_sequence_tokens():
    """Further EOS tokens become stop tokens unless EOS is ignored; the engine handles the first."""
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
    """Changes of a clone do not affect the original."""
    original = SamplingParams(stop_token_ids=[1])
    clone = original.clone()
    clone.update_from_generation_config({"eos_token_id": [7]})
    assert original.stop_token_ids == [1]
    assert original.all_stop_token_ids == {1}


class Words:
    """Tokenizer with one token per word, space included, and two tokens for some words."""

    def __init__(self, *in_two: str) -> None:
        self.in_two = in_two

    def encode(self, text: str, add_special_tokens: bool) -> list[str]:
        """Return strings in place of ids."""
        assert not add_special_tokens
        return [text[0], text[1:]] if text in self.in_two else [text] if text else []


@pytest.mark.parametrize(
    ("tokenizer", "words", "expected"),
    [
        (Words(), ["cat"], [["cat"], [" cat"]]),
        (Words(), ["  cat"], [["cat"], [" cat"]]),
        (Words(" cat"), ["cat"], [["cat"]]),
        (Words("cat"), ["cat"], [["c", "at"]]),
        (Words("cat", " cat"), ["cat"], [["c", "at"], [" ", "cat"]]),
        (Words(), ["a", "b"], [["a"], [" a"], ["b"], [" b"]]),
        (Words(), [], None),
    ],
)
def test_bad_words_begin_a_text_or_follow_a_space(tokenizer, words, expected):
    """A bad word is excluded with and without a space before it, if both have as many tokens."""
    params = SamplingParams(bad_words=words)
    params.update_from_tokenizer(tokenizer)
    assert params.bad_words_token_ids == expected


def test_a_bad_word_without_tokens():
    """A bad word without tokens, as some tokenizers drop characters, is refused."""

    class Nothing:
        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            return []

    with pytest.raises(EngineError, match="'x' in `bad_words` has no tokens"):
        SamplingParams(bad_words=["x"]).update_from_tokenizer(Nothing())


def test_from_optional():
    """`None` is the default, keys of biases may be strings, and biases are clamped as in OpenAI's API."""
    params = SamplingParams.from_optional(temperature=None, n=None, top_k=None, logit_bias={"7": 1000, 8: -1.5})
    assert (params.temperature, params.n, params.top_k, params.logit_bias) == (1.0, 1, 0, {7: 100.0, 8: -1.5})
    with pytest.raises(EngineError, match=r"`logit_bias` must map token ids to numbers, got \{'x': 1\}"):
        SamplingParams.from_optional(logit_bias={"x": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"json": {}, "regex": "a"}, r"one kind of structured outputs constraint .* json={}, regex='a'. Keep one"),
        ({"json_object": False, "choice": ["a"]}, "^You can only use one kind of structured outputs constraint"),
        ({"jsn": {}}, "StructuredOutputsParams has no parameter `jsn`. Did you mean `json`?"),
        ({"json": 5}, "`json` must be a JSON schema, as a dict or a string, or None, got 5"),
        ({"choice": "ab"}, "`choice` must be a list of strings"),
        ({"choice": [1]}, "`choice` must be a list of strings"),
        ({"json_object": 1}, "`json_object` must be True or False, or None, got 1"),
    ],
)
def test_constraints_that_cannot_be(arguments, message):
    """Two constraints at once, unknown names and wrong types are refused by name."""
    with pytest.raises(EngineError, match=message):
        StructuredOutputsParams(**arguments)


def test_guided_decoding_is_the_older_name():
    """vLLM's older parameter and class for constraints work, with a deprecation warning."""
    with pytest.warns(DeprecationWarning, match="use StructuredOutputsParams") as caught:
        guided = GuidedDecodingParams(regex="a+")
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="use structured_outputs") as caught:
        params = SamplingParams(guided_decoding=guided)
    assert caught[0].filename == __file__
    assert params.structured_outputs is guided
    assert params.guided_decoding is None


@given(
    st.builds(
        SamplingParams,
        n=st.integers(1, 4),
        temperature=st.floats(0.01, 5),
        top_p=st.floats(0.01, 1),
        top_k=st.integers(-1, 100),
        seed=st.none() | st.integers(-(2**63), 2**64 - 4),
        max_tokens=st.none() | st.integers(1, 100),
        stop=st.lists(st.text(min_size=1), max_size=3),
        stop_token_ids=st.lists(st.integers(0, 1000)),
        ignore_eos=st.booleans(),
        bad_words=st.lists(st.text("abc", min_size=1), max_size=2),
        logprobs=st.none() | st.integers(-1, 5),
        logit_bias=st.none() | st.dictionaries(st.integers(0, 9), st.floats(-100, 100), max_size=3),
        allowed_token_ids=st.none() | st.lists(st.integers(0, 9), max_size=3),
        truncate_prompt_tokens=st.none() | st.just(-1) | st.integers(1, 9),
        output_kind=st.sampled_from(RequestOutputKind),
        structured_outputs=st.none()
        | st.builds(StructuredOutputsParams, regex=st.text())
        | st.builds(StructuredOutputsParams, json=st.just({"type": "object"}), disable_any_whitespace=st.booleans()),
        extra_args=st.none() | st.just({"mine": [1, "a"]}),
    )
)
def test_they_travel_as_bytes(params):
    """Parameters are equal after encoding and decoding with msgpack."""
    request = core_request("1", [1, 2], params, 0, 1.5)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EngineCoreRequest)
    assert received == request
    assert received.sampling_params is not None
    assert received.sampling_params.all_stop_token_ids == params.all_stop_token_ids


def test_parameters_go_by_name():
    """Positional arguments are refused."""
    with pytest.raises(EngineError, match=r"by name, as in SamplingParams\(temperature=0\); got 0.5"):
        SamplingParams(0.5)  # type: ignore[call-arg, arg-type]

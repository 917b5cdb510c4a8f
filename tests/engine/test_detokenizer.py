"""Tests of incremental detokenization."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.core_requests import core_request
from tracellm import SamplingParams
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer, check_stop_strings

TOKENIZER = get_tokenizer(str(Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"))
VOCAB_SIZE = len(TOKENIZER)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "你好,世界。今天天气很好!",
        "a 👍🏽 and a 👨‍👩‍👧‍👦 family",
        "naïve café",
        "  two  spaces\n\n\ttab",
        "\ufffd is real",
    ]
)


def detokenizer(prompt: str | list[int] = "Once upon", **params) -> IncrementalDetokenizer:
    """Make the detokenizer of a request with this prompt."""
    ids = TOKENIZER.encode(prompt) if isinstance(prompt, str) else prompt
    request = core_request("0", ids, SamplingParams(**params), None, 0.0)
    return IncrementalDetokenizer.from_new_request(TOKENIZER, request)


def stream(of: IncrementalDetokenizer, token_ids: list[int]) -> list[str]:
    """Add the tokens one by one; return the new text after each, with the remaining text at the end."""
    pieces = []
    for index, token_id in enumerate(token_ids):
        of.update([token_id], stop_terminated=False)
        pieces.append(of.get_next_output_text(finished=index == len(token_ids) - 1, delta=True))
    return pieces


@settings(deadline=None)
@given(TEXTS, TEXTS.filter(bool))
def test_text_in_pieces_is_the_text(prompt, text):
    """A text's tokens, one at a time, give the text back, without half characters."""
    ids = TOKENIZER.encode(text)
    pieces = stream(detokenizer(prompt or "x"), ids)
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces).replace("\ufffd", "", text.count("\ufffd"))


@settings(deadline=None)
@given(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=40), st.booleans())
def test_any_tokens_decode_as_at_once(token_ids, skip_special_tokens):
    """Tokens that make no valid text, special ones included, give the text of decoding all at once."""
    of = detokenizer(skip_special_tokens=skip_special_tokens)
    assert "".join(stream(of, token_ids)) == TOKENIZER.decode(token_ids, skip_special_tokens=skip_special_tokens)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=40),
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=20),
)
def test_deltas_add_up_after_any_prompt(prompt, token_ids):
    """After a prompt that ends inside a character too, the deltas add up to the final text."""
    prompt = prompt or [300]
    assert "".join(stream(detokenizer(prompt), token_ids)) == whole(detokenizer(prompt), token_ids)


def whole(of: IncrementalDetokenizer, token_ids: list[int]) -> str:
    """Return the text after all tokens were added in one step."""
    of.update(token_ids, stop_terminated=False)
    return of.get_next_output_text(finished=True, delta=False)


def test_a_character_appears_with_its_last_byte():
    """A character is shown when its last byte has come."""
    ids = TOKENIZER.encode("👍")
    assert len(ids) > 1
    assert stream(detokenizer(), ids) == [""] * (len(ids) - 1) + ["👍"]


def test_an_unfinished_character_is_shown_at_the_end():
    """A generation cut off inside a character ends in U+FFFD, as in decoding all at once."""
    ids = TOKENIZER.encode("ab👍")[:-1]
    assert whole(detokenizer(), ids) == "ab\ufffd" == TOKENIZER.decode(ids)


def test_a_character_split_between_prompt_and_output_is_completed():
    """After a prompt that ends inside a character the output begins with that character."""
    ids = TOKENIZER.encode("good 👍")
    assert whole(detokenizer(ids[:-1]), ids[-1:]) == "👍"


def test_without_a_tokenizer_there_is_no_text():
    """With `detokenize=False` only tokens are collected."""
    request = core_request("0", [1], SamplingParams(detokenize=False), None, 0.0)
    of = IncrementalDetokenizer.from_new_request(None, request)
    assert whole(of, [5, 6]) == ""
    assert of.output_token_ids == [5, 6]


@settings(deadline=None)
@given(TEXTS, st.text("ab ", min_size=1, max_size=4), st.text("ab \n", max_size=10), st.booleans())
def test_a_stop_string_cuts_the_text_wherever_its_tokens_lie(before, stop, after, include):
    """The text ends before the first stop string, or after it if it is to be included."""
    text = before + stop + after
    of = detokenizer(stop=stop, include_stop_str_in_output=include)
    found, shown = None, ""
    for token_id in TOKENIZER.encode(text):
        found = of.update([token_id], stop_terminated=False)
        shown += of.get_next_output_text(finished=found is not None, delta=True)
        if found:
            break
    assert found == stop
    end = text.index(stop) + (len(stop) if include else 0)
    assert shown == text[:end]


def test_stop_strings_wait_for_min_tokens():
    """A stop string within the first `min_tokens` tokens does not end the generation."""
    of = detokenizer(stop="a", min_tokens=2)
    a, b = TOKENIZER.encode("a")[0], TOKENIZER.encode("b")[0]
    assert [of.update([token], stop_terminated=False) for token in (a, a, b, a)] == [None, None, None, "a"]
    assert of.get_next_output_text(finished=True, delta=False) == "aab"


def generate(stop: list[str], text: str, prompt: str = "Once upon", **params) -> tuple[str | None, list[str]]:
    """Generate this text letter by letter; return its stop string and the text shown after each letter."""
    of, found, pieces = detokenizer(prompt, stop=stop, **params), None, []
    for index, letter in enumerate(text):
        found = of.update(TOKENIZER.encode(letter), stop_terminated=False)
        pieces.append(of.get_next_output_text(found is not None or index == len(text) - 1, delta=True))
        if found:
            break
    return found, pieces


@pytest.mark.parametrize(
    ("stop", "text", "expected"),
    [
        (["ab", "abc"], "xabc", ("ab", "x")),  # the shorter one is complete first
        (["xyz", "yz"], "wxyz", ("xyz", "w")),  # both end with this character: the first of the list counts
        (["yz", "xyz"], "wxyz", ("yz", "wx")),
        (["x"], "xyz", ("x", "")),  # at the very first token
        (["z"], "xyz", ("z", "xy")),  # at the very last token
        (["zz"], "xyz", (None, "xyz")),  # half of it ends the text
    ],
)
def test_which_stop_string_counts(stop, text, expected):
    """The stop string that is complete first counts; among several, the first of the list."""
    found, pieces = generate(stop, text)
    assert (found, "".join(pieces)) == expected


def test_a_stop_string_does_not_begin_in_the_prompt():
    """Stop strings in the prompt, or beginning in it, do not count."""
    assert [generate([stop], " a time")[0] for stop in ("upon", "upon a")] == [None, None]
    assert generate(["upon a"], " a, upon a time")[0] == "upon a"


def test_what_may_begin_a_stop_string_is_held_back():
    """Text that may begin a stop string is held back, and shown at the end if none came."""
    assert generate(["me."], "a time") == (None, ["", "", "a", " ", "t", "ime"])
    assert generate(["me."], "a time.") == ("me.", ["", "", "a", " ", "t", "i", ""])
    assert generate(["me."], "a time", include_stop_str_in_output=True) == (None, list("a time"))


def test_a_stop_token_is_no_text():
    """The stop token is among the tokens, and in the text only if stops are to be included."""
    ids = TOKENIZER.encode("yes no")
    for include, text in ((False, "yes"), (True, "yes no")):
        of = detokenizer(include_stop_str_in_output=include)
        of.update(ids, stop_terminated=True)
        assert of.output_token_ids == ids
        assert of.get_next_output_text(finished=True, delta=False) == text


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("one two", 3, ("two", 4)),
        ("one two", 1, ("two", 4)),  # ends in the new text, though it began before
        ("two one", 3, None),  # found before
        ("", 0, None),
    ],
)
def test_only_new_text_is_searched(text, new, expected):
    """A stop string counts only if it ends in the new characters."""
    assert check_stop_strings(text, new, ["two"], include_in_output=False) == expected

"""Tests of incremental detokenization for the common kinds of tokenizers."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.engine.core_requests import core_request
from tests.engine.tokenizer_families import FAMILIES, get_family
from tracellm import SamplingParams
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer
from tracellm.tiny import MODEL_DIR

BYTE_FALLBACK = ("llama", "gemma", "mistral")
TEXT_FAMILIES = ("bundled", "byte-level", *BYTE_FALLBACK)
"""Families that can encode any text."""
TEXTS = st.lists(
    st.sampled_from(["the", " cat", "  ", " ", "\n", "中文", "你好,", "é", "👍🏽", "👨‍👩‍👧‍👦", "ﷺ", "x.", "\t"])
    | st.text(max_size=3),
    max_size=8,
).map("".join)


@cache
def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a family, or of the bundled model."""
    return get_tokenizer(str(MODEL_DIR)) if family == "bundled" else get_family(family)


def detokenizer(family: str, prompt: list[int], **params) -> IncrementalDetokenizer:
    """Make the detokenizer of a request with this prompt."""
    request = core_request("0", prompt, SamplingParams(max_tokens=1000, **params), None, 0.0)
    return IncrementalDetokenizer.from_new_request(tokenizer_of(family), request)


def deltas(of: IncrementalDetokenizer, steps: list[list[int]]) -> list[str]:
    """Return the new text after each step, with the remaining text at the end."""
    pieces = []
    for index, step in enumerate(steps):
        of.update(step, stop_terminated=False)
        pieces.append(of.get_next_output_text(finished=index == len(steps) - 1, delta=True))
    return pieces


def at_once(family: str, prompt: list[int], token_ids: list[int], skip_special_tokens: bool = True) -> str:
    """Return what decoding prompt and output adds to decoding the prompt; a space between belongs to the output."""
    decode = tokenizer_of(family).backend_tokenizer.decode
    before = decode(prompt, skip_special_tokens=skip_special_tokens)
    after = decode(prompt + token_ids, skip_special_tokens=skip_special_tokens)
    assume(after.startswith(before))  # otherwise the prompt ends inside a character
    return after[len(before) :]


def encode(family: str, text: str) -> list[int]:
    """Return the text's tokens, without special ones."""
    return tokenizer_of(family).encode(text, add_special_tokens=False)


@st.composite
def splits(draw: st.DrawFn, token_ids: list[int]) -> list[list[int]]:
    """Generate splits of the tokens into steps of one or more."""
    cuts = draw(st.sets(st.integers(1, max(1, len(token_ids) - 1))))
    edges = [0, *sorted(cut for cut in cuts if cut < len(token_ids)), len(token_ids)]
    return [token_ids[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@settings(deadline=None)
@given(st.data())
def test_any_text_in_any_steps(family, data):
    """For any text, prompt and steps, the deltas add up to the text decoded at once, without half characters."""
    ids = encode(family, data.draw(TEXTS.filter(lambda text: text and "\ufffd" not in text)))
    cut = data.draw(st.integers(0, len(ids) - 1))
    prompt, output = ids[:cut] or encode(family, "the"), ids[cut:]
    whole = at_once(family, prompt, output)
    assume("\ufffd" not in at_once(family, [], prompt))
    pieces = deltas(detokenizer(family, prompt), data.draw(splits(output)))
    assert "".join(pieces) == whole
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("family", [family for family in (*FAMILIES, "bundled") if family not in BYTE_FALLBACK])
@settings(deadline=None)
@given(st.data())
def test_any_tokens_in_any_steps(family, data):
    """Any tokens, special or ill-formed, give the text of decoding all at once."""
    ids = st.lists(st.integers(0, len(tokenizer_of(family)) - 1), min_size=1, max_size=20)
    prompt, output = data.draw(ids), data.draw(ids)
    skip = data.draw(st.booleans())
    assume(not at_once(family, [], prompt, skip).endswith("\ufffd"))
    # The context is the last tokens of the prompt, four or a few more, as in vLLM; without text the first space is
    # lost.
    assume(len(prompt) <= 4 or at_once(family, [], prompt[-4:], skip))
    of = detokenizer(family, prompt, skip_special_tokens=skip)
    assert "".join(deltas(of, data.draw(splits(output)))) == at_once(family, prompt, output, skip)


@pytest.mark.parametrize("family", [*FAMILIES, "bundled"])
@settings(deadline=None)
@given(st.data())
def test_the_steps_do_not_matter(family, data):
    """Any tokens after any prompt give the same text in any steps, as deltas and cumulatively."""
    ids = st.lists(st.integers(0, len(tokenizer_of(family)) - 1), min_size=1, max_size=20)
    prompt, output = data.draw(ids), data.draw(ids)
    params = {
        "skip_special_tokens": data.draw(st.booleans()),
        "spaces_between_special_tokens": data.draw(st.booleans()),
    }
    one_by_one = "".join(deltas(detokenizer(family, prompt, **params), [[token] for token in output]))
    assert "".join(deltas(detokenizer(family, prompt, **params), data.draw(splits(output)))) == one_by_one
    of = detokenizer(family, prompt, **params)
    texts = []
    for token in output:
        of.update([token], stop_terminated=False)
        texts.append(of.get_next_output_text(finished=False, delta=False))
    texts.append(of.get_next_output_text(finished=True, delta=False))
    assert texts[-1] == one_by_one
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


@pytest.mark.parametrize(
    ("family", "text"), [("llama", " cat"), ("mistral", " cat"), ("gemma", " cat"), ("wordpiece", " cat")]
)
def test_a_space_between_prompt_and_output_is_kept(family, text):
    """The space before the output's first word is kept, though decoders drop a text's first space."""
    prompt, both = encode(family, "the"), encode(family, "the cat")
    assert both[: len(prompt)] == prompt
    assert deltas(detokenizer(family, prompt), [[token] for token in both[len(prompt) :]]) == [text]


@pytest.mark.parametrize("family", BYTE_FALLBACK)
def test_bytes_make_a_character(family):
    """A character missing in the vocabulary comes as bytes, and appears with its last one."""
    ids = encode(family, "the👍")
    prompt, output = ids[:-4], ids[-4:]
    assert deltas(detokenizer(family, prompt), [[token] for token in output]) == ["", "", "", "👍"]


@pytest.mark.parametrize("family", BYTE_FALLBACK)
def test_ill_formed_bytes_spoil_nothing_before_them(family):
    """Characters shown before ill-formed bytes stay, even where a decoder would replace them."""
    thumb, cat = encode(family, "the👍")[-4:], encode(family, "the cat")[-1:]
    pieces = deltas(detokenizer(family, encode(family, "the")), [[token] for token in [*thumb, thumb[0], *cat, *thumb]])
    assert pieces[:5] == ["", "", "", "👍", ""]
    assert "".join(pieces).strip().startswith("👍")
    assert pieces[-1] == "👍"
    assert deltas(detokenizer(family, encode(family, "the")), [thumb, thumb[:1]]) == ["👍", "\ufffd"]


@pytest.mark.parametrize("family", ["wordpiece", "no-decoder"])
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"skip_special_tokens": False}, " <|im_start|> <tool> </s> cat </s>"),
        (
            {"skip_special_tokens": False, "spaces_between_special_tokens": False},
            " <|im_start|><tool></s> cat </s>",
        ),
        ({"spaces_between_special_tokens": False}, " <tool> cat"),
    ],
)
def test_spaces_between_special_tokens(family, params, text):
    """Spaces between added tokens can be omitted, but not if special tokens are skipped."""
    ids = tokenizer_of(family).convert_tokens_to_ids(["<|im_start|>", "<tool>", "</s>", "cat", "</s>"])
    of = detokenizer(family, encode(family, "the"), **params)
    assert "".join(deltas(of, [[token] for token in ids])) == text

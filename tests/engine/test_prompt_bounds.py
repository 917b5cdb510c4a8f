"""Tests of `PromptBounds`: a lower bound on a text's number of tokens, or 0 if none is known."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.engine.tokenizer_families import FAMILIES, get_family
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.frontend.preprocess import PromptBounds

TINY = Path(__file__).parents[2] / "tracellm" / "tiny"


def byte_level(**changes: object) -> PreTrainedTokenizerFast:
    """Make a byte-level tokenizer whose longest token is "the", with these components changed."""
    vocabulary = {piece: index for index, piece in enumerate([*pre_tokenizers.ByteLevel.alphabet(), "th", "the"])}
    backend = Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for name, component in changes.items():
        setattr(backend, name, component)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@cache
def tiny() -> tuple[PreTrainedTokenizerFast, PromptBounds]:
    """Return the bundled model's tokenizer, which composes characters (NFC), with its bounds."""
    tokenizer = get_tokenizer(str(TINY))
    return tokenizer, PromptBounds(tokenizer)


def test_the_bound_is_reached():
    """A text of longest tokens has exactly the bound's number of tokens."""
    bounds = PromptBounds(byte_level())
    assert bounds.longest_token == 3
    assert bounds.min_num_tokens("the" * 5) == len(byte_level().encode("the" * 5)) == 5
    assert bounds.min_num_tokens("thethex") == len(byte_level().encode("thethex")) == 3


@given(st.text(max_size=200) | st.text("e\u0301\u0323\u1100\u1161\u11a8 the\u212b", max_size=200))
def test_never_more_than_there_are(text):
    """The bound is at most the number of tokens, for any text."""
    tokenizer, bounds = tiny()
    assert bounds.longest_token is not None
    assert bounds.min_num_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize(
    "tokenizer",
    [
        byte_level(normalizer=normalizers.Strip()),
        byte_level(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])),
        byte_level(
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()])
        ),
        byte_level(
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()])
        ),
        byte_level(pre_tokenizer=pre_tokenizers.Digits()),
        byte_level(model=models.BPE({"a": 0}, [])),
        *(get_family(family) for family in FAMILIES if family != "byte-level"),
    ],
)
def test_nothing_is_said_of_tokenizers_that_drop_text(tokenizer):
    """A tokenizer that can drop or merge text has no bound."""
    bounds = PromptBounds(tokenizer)
    assert bounds.longest_token is None
    assert bounds.min_num_tokens("a" * 1000) == 0


def test_added_tokens():
    """Added tokens count in bytes, and one that strips the spaces around it leaves no bound."""
    tokenizer = byte_level()
    tokenizer.add_tokens(["中文中文"])
    assert PromptBounds(tokenizer).longest_token == 12
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert PromptBounds(tokenizer).longest_token is None

"""Tests of grammars with different kinds of tokenizers: allowed tokens decode to allowed texts."""

import re

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.structured_output.backend_guidance import GuidanceBackend
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

CHOICES = ["ab abc", "a", "东京", "😀 é", '{"a": 1}']


def byte_fallback() -> PreTrainedTokenizerFast:
    """A tokenizer like Llama 2's and Gemma's: pieces with ▁ for a space, and a token for each uncovered byte."""
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *'▁abc{}":1',
        "▁a",
        "ab",
        "▁abc",
        "东京",
    ]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("a", "b")]
    model = models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>", unk_token="<unk>")


def byte_level() -> PreTrainedTokenizerFast:
    """A tokenizer like that of GPT-2, Qwen and Llama 3: tokens are byte sequences, some part of a character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "a"), ("ä", "¸"), ("ä¸", "ľ"), ("ð", "Ł")]
    pieces = ["<|end|>", *alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def unigram() -> PreTrainedTokenizerFast:
    """A tokenizer like T5's, which the library does not support."""
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("▁a", -1.0)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


def draw(backend: GuidanceBackend, tokenizer: PreTrainedTokenizerFast, seed: int) -> str:
    """Draw a text under the constraint, each token from all that are allowed."""
    grammar = backend.compile_grammar(StructuredOutputsParams(choice=CHOICES))
    rng, tokens = np.random.default_rng(seed), []
    while not grammar.is_terminated():
        bitmask = backend.allocate_token_bitmask(2)
        grammar.fill_bitmask(bitmask, 1)
        assert (bitmask[0] == -1).all()
        allowed = np.flatnonzero(np.unpackbits(bitmask[1].view(np.uint8), bitorder="little"))
        tokens.append(int(rng.choice(allowed)))
        assert grammar.accept_tokens("a", tokens[-1:])
    assert tokens[-1] == tokenizer.eos_token_id
    return tokenizer.decode(tokens, skip_special_tokens=True)


def metaspace() -> PreTrainedTokenizerFast:
    """The same pieces with a decoder that the library mistakes for another, which would keep every ▁."""
    tokenizer = byte_fallback()
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback()])
    return tokenizer


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
@pytest.mark.parametrize("padding", [0, 57])
def test_whatever_is_drawn_decodes_to_a_choice(make, padding):
    """Drawn tokens decode to a choice, and ids beyond the tokenizer's are never allowed."""
    tokenizer = make()
    backend = GuidanceBackend(tokenizer, len(tokenizer) + padding)
    assert backend.allocate_token_bitmask(3).shape == (3, (len(tokenizer) + padding + 31) // 32)
    assert {draw(backend, tokenizer, seed) for seed in range(80)} == set(CHOICES)


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_the_usual_tokens_of_a_text_are_accepted(make):
    """The tokenizer's encoding of a choice is accepted, and only the end is allowed after it."""
    tokenizer = make()
    backend = GuidanceBackend(tokenizer, len(tokenizer))
    for text in CHOICES:
        grammar = backend.compile_grammar(
            StructuredOutputsParams(choice=[" " + text if make is byte_fallback else text])
        )
        assert grammar.accept_tokens("a", tokenizer.encode(text, add_special_tokens=False))
        bitmask = backend.allocate_token_bitmask(1)
        grammar.fill_bitmask(bitmask, 0)
        allowed = np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little"))
        assert allowed.tolist() == [tokenizer.eos_token_id]


def test_a_token_that_does_not_conform_is_told():
    """After a token that does not conform the grammar has an error, and allows only the end."""
    tokenizer = byte_level()
    backend = GuidanceBackend(tokenizer, len(tokenizer))
    grammar = backend.compile_grammar(StructuredOutputsParams(choice=CHOICES))
    assert grammar.error is None
    assert not grammar.accept_tokens("7", tokenizer.encode("b"))
    assert re.match(r"structured_outputs.choice=.* cannot be followed any further", grammar.error or "")
    bitmask = backend.allocate_token_bitmask(1)
    grammar.fill_bitmask(bitmask, 0)
    assert np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little")).tolist() == [tokenizer.eos_token_id]


def test_other_tokenizers_are_refused():
    """An unsupported tokenizer, one without EOS, or one larger than the model is refused with its reason."""
    with pytest.raises(
        InvalidRequestError, match=r"do not work with this tokenizer: can't determine decoder type \(llg"
    ):
        GuidanceBackend(unigram(), 3)
    with pytest.raises(InvalidRequestError, match="do not work with this tokenizer: its tokens are read wrongly"):
        GuidanceBackend(metaspace(), 300)
    endless = byte_level()
    endless.eos_token = None
    with pytest.raises(InvalidRequestError, match="need an end-of-sequence token"):
        GuidanceBackend(endless, 300)
    with pytest.raises(InvalidRequestError, match="vocab size too small; 100 vs 263"):
        GuidanceBackend(byte_level(), 100)

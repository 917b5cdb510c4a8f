"""Small tokenizers of the kinds that models come with, made with the tokenizers library.

They differ in what turns tokens into text, their decoder: byte-level BPE knows bytes only; SentencePiece's BPE writes
spaces as U+2581 and falls back to one token for each byte; with some of these a text's first space is the tokenizer's
own and is dropped. Also imported by tests/fixtures/record_output_cases.py, in vLLM's environment: so no tracellm here.
"""

from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

__all__ = ["FAMILIES", "get_family"]

FAMILIES = ("byte-level", "llama", "gemma", "mistral", "wordpiece", "no-decoder")

_SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>"]
_PIECES = ["▁", *"abcdehlnostw.,!\n中文你好", "é", "▁a", "▁c", "at", "▁cat", "▁t", "▁th", "▁the", "▁▁", "he", "ll"]
_MERGES = [("▁", "a"), ("▁", "c"), ("a", "t"), ("▁c", "at"), ("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "▁")]
_MERGES += [("h", "e"), ("l", "l")]


def _sentencepiece() -> Tokenizer:
    pieces = [*_SPECIAL[:3], *(f"<0x{byte:02X}>" for byte in range(256)), *_PIECES]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    return Tokenizer(models.BPE(vocab, _MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True))


def _words() -> dict[str, int]:
    words = ["the", "cat", "sat", "##s", "##ing", "on", "a", "mat", "!", "中", "文"]
    return {word: index for index, word in enumerate([*_SPECIAL[:3], *words])}


def _llama() -> Tokenizer:
    """As Llama 2's and Phi-3's: a space before the text, made by the normalizer and stripped by the decoder."""
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _gemma() -> Tokenizer:
    """As Gemma's: no space is added or taken."""
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _mistral() -> Tokenizer:
    """As Mistral's newer ones: the same by Metaspace, whose decoder drops the first space."""
    tokenizer = _sentencepiece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Metaspace(replacement="▁", prepend_scheme="first", split=False), decoders.ByteFallback()]
    )
    return tokenizer


def _wordpiece() -> Tokenizer:
    """As BERT's: the decoder puts spaces between tokens, special tokens too."""
    tokenizer = Tokenizer(models.WordPiece(_words(), unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def _no_decoder() -> Tokenizer:
    """No decoder: tokens are joined by spaces."""
    tokenizer = Tokenizer(models.WordLevel(_words(), unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


_MAKERS = {
    "llama": _llama,
    "gemma": _gemma,
    "mistral": _mistral,
    "wordpiece": _wordpiece,
    "no-decoder": _no_decoder,
}


@cache
def get_family(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of one of `FAMILIES`; byte-level is that of tests/fixtures/tiny-random-qwen2."""
    if name == "byte-level":
        folder = Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"
        return PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = _MAKERS[name]()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=False,
    )

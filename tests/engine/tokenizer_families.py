"""Small tokenizers of the common kinds, made with the tokenizers library.

They differ in the decoder. Byte-level BPE has bytes only. SentencePiece's BPE writes spaces as U+2581 and falls back to
one token per byte; some of these add a space before the text, which decoding drops.
tests/fixtures/record_output_cases.py imports this module in vLLM's environment, so it imports no tracellm.
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
    """Make a tokenizer like Llama 2's and Phi-3's: the normalizer adds a leading space, and the decoder strips it."""
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _gemma() -> Tokenizer:
    """Make a tokenizer like Gemma's: no space is added or dropped."""
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _mistral() -> Tokenizer:
    """Make a tokenizer like Mistral's newer ones: Metaspace adds a leading space, and its decoder drops it."""
    tokenizer = _sentencepiece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Metaspace(replacement="▁", prepend_scheme="first", split=False), decoders.ByteFallback()]
    )
    return tokenizer


def _wordpiece() -> Tokenizer:
    """Make a tokenizer like BERT's: the decoder puts spaces between tokens, special tokens too."""
    tokenizer = Tokenizer(models.WordPiece(_words(), unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def _no_decoder() -> Tokenizer:
    """Make a tokenizer without a decoder: tokens are joined by spaces."""
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
    """Return the tokenizer of one of `FAMILIES`; byte-level is that of tests/fixtures/tiny-random-qwen2."""
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

"""How few tokens a long text can have, found without tokenizing it: so a prompt far too long is refused at once.

A byte-level tokenizer covers every byte of the text by some token, so a text has at least as many tokens as its bytes
divided by the longest token's. `InputPreprocessor` asks before it tokenizes.

vLLM: later versions do the same (vllm/renderers/params.py, `max_chars_per_token`); 0.11.1 tokenizes every prompt.
"""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["PromptBounds"]

_SPLITTERS = ("ByteLevel", "Digits", "Split")  # cut a text up and keep all of it, if Split is not told to remove


class PromptBounds:
    """Knows how many bytes a token of this tokenizer stands for at most; `None` where there is no such bound."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        from tokenizers.pre_tokenizers import ByteLevel

        backend = tokenizer.backend_tokenizer
        normalizers = _parts(backend.normalizer, "normalizers")
        splitters = _parts(backend.pre_tokenizer, "pretokenizers")
        added_tokens = list(backend.get_added_tokens_decoder().values())
        vocabulary = backend.get_vocab()
        covers_every_byte = (
            all(part["type"] == "NFC" for part in normalizers)
            and all(part["type"] in _SPLITTERS and part.get("behavior") != "Removed" for part in splitters)
            and any(part["type"] == "ByteLevel" for part in splitters)
            and not any(token.lstrip or token.rstrip for token in added_tokens)  # they swallow spaces
            and set(ByteLevel.alphabet()) <= vocabulary.keys()
        )
        self.composes = bool(normalizers)
        self.longest_token: int | None = None
        """In bytes. In the vocabulary a character stands for a byte; added tokens are plain text."""
        if covers_every_byte:
            self.longest_token = max(map(len, [*vocabulary, *(token.content.encode() for token in added_tokens)]))

    def min_num_tokens(self, text: str) -> int:
        """So many tokens the text has at least; 0 when nothing is known."""
        if self.longest_token is None:
            return 0
        num_bytes = len((unicodedata.normalize("NFC", text) if self.composes else text).encode())
        return -(-num_bytes // self.longest_token)


def _parts(component: Any, name: str) -> list[dict[str, Any]]:
    """What a tokenizer's component consists of, each as in tokenizer.json; empty for none."""
    if component is None:
        return []
    state = json.loads(component.__getstate__())
    return state[name] if state["type"] == "Sequence" else [state]

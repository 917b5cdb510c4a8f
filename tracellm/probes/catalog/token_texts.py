"""Texts of token ids, made where spans are built and there is no tokenizer.

A tokenizer is recorded once as its tokenizer.json, and each request after that only has its number. So decoding needs
neither the engine's process nor the file, and gives the text that the engine's detokenizer gives.
"""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.call_context import state

__all__ = ["learn_tokenizer", "learn_tokenizer_in", "tokenizer_facts"]

_MAX_TOKENS = 32_768

Tokenizer = tuple[bytes, bytes | None, list[str]]
"""A tokenizer: its tokenizer.json, its decoder as JSON (or None), and its added tokens by id."""

_recorded: WeakKeyDictionary[Any, tuple[int, tuple[int, ...]]] = WeakKeyDictionary()
"""Number of each tokenizer, and the recording and process that last recorded its content."""
_numbers = count(1)


def tokenizer_facts(tokenizer: Any) -> tuple[int, Tokenizer | None] | None:
    """Return the number of a transformers tokenizer, and its content unless this recording has it.

    Returns None for a tokenizer written in Python, or without a tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    recording = state.first, os.getpid(), state.segment  # a forked process begins a recording of its own
    number, last = _recorded.get(tokenizer) or (next(_numbers), None)
    if last == recording:
        return number, None
    file = Path(str(tokenizer.name_or_path), "tokenizer.json")
    added = sorted(backend.get_added_tokens_decoder().items())
    content = (
        file.read_bytes() if file.is_file() else backend.to_str().encode(),  # the latter takes longer by far
        None if backend.decoder is None else backend.decoder.__getstate__(),  # transformers may have replaced it
        [token.content for _, token in added],
    )
    _recorded[tokenizer] = number, recording
    return number, content


def learn_tokenizer(tracker: RequestTracker, facts: tuple[int, Tokenizer | None] | None) -> None:
    """Decode token ids with this tokenizer from now on."""
    if facts is None or not tracker.text:
        tracker.decode = None
        return
    number, content = facts
    if content is not None and number not in tracker.tokenizers:
        tracker.tokenizers[number] = _Texts(lambda: _decoder(content)).__getitem__
    tracker.decode = tracker.tokenizers.get(number)


def learn_tokenizer_in(tracker: RequestTracker, folder: str) -> None:
    """Decode with the tokenizer in this folder if there is one and none is known; it is read for the first token."""
    file = Path(folder) / "tokenizer.json"
    if tracker.text and tracker.decode is None and file.is_file():
        tracker.decode = _Texts(lambda: _decoder((file.read_bytes(), None, []))).__getitem__


class _Texts(dict[int, str]):
    """Texts by token id, decoded when first needed; most tokens of a step occurred before."""

    def __init__(self, make_decoder: Callable[[], Callable[[int], str]]) -> None:
        super().__init__()
        self._make_decoder: Callable[[], Callable[[int], str]] | None = make_decoder
        self._decode: Callable[[int], str] = str

    def __missing__(self, token_id: int) -> str:
        if self._make_decoder is not None:
            self._decode, self._make_decoder = self._make_decoder(), None
        text = self._decode(token_id)
        if len(self) < _MAX_TOKENS:
            self[token_id] = text
        return text


def _decoder(content: Tokenizer) -> Callable[[int], str]:
    from tokenizers import Tokenizer as RustTokenizer

    file, decoder, added = content
    if decoder is not None:
        file = msgspec.json.encode(msgspec.json.decode(file) | {"decoder": msgspec.json.decode(decoder)})
    tokenizer = RustTokenizer.from_buffer(file)
    tokenizer.add_tokens([token for token in added if tokenizer.token_to_id(token) is None])
    return lambda token_id: str(tokenizer.decode([token_id], skip_special_tokens=False))

"""The text of a token id, made where there is no tokenizer: what is taken of one in the recorded program, and what
becomes of that where spans are built. It is the text that the engine's detokenizer makes of it.

Of a tokenizer its tokenizer.json is taken, as bytes, once in a recording; each request after that only tells its
number. Who decodes need not share a process with the engine, nor find the file still there.
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

_MOST_TOKENS = 32_768

Known = tuple[bytes, bytes | None, list[str]]
"""A tokenizer: its tokenizer.json, its decoder as JSON (None: it has none), and the tokens that were added to it, in
the order of their ids."""

_told: WeakKeyDictionary[Any, tuple[int, tuple[int, ...]]] = WeakKeyDictionary()
"""Each tokenizer's number, and the recording and process in which the rest of it was told last."""
_numbers = count(1)


def tokenizer_facts(tokenizer: Any) -> tuple[int, Known | None] | None:
    """A tokenizer of transformers as plain data: its number, and what it is if this recording has not been told yet.

    None for one that is written in Python, or if there is none.
    """
    behind = getattr(tokenizer, "backend_tokenizer", None)
    if behind is None:
        return None
    moment = state.first, os.getpid(), state.segment  # a fork's own recording begins anew
    number, told_at = _told.get(tokenizer) or (next(_numbers), None)
    if told_at == moment:
        return number, None
    file = Path(str(tokenizer.name_or_path), "tokenizer.json")
    added = sorted(behind.get_added_tokens_decoder().items())
    known = (
        file.read_bytes() if file.is_file() else behind.to_str().encode(),  # which takes longer by far
        None if behind.decoder is None else behind.decoder.__getstate__(),  # transformers may have put in another
        [token.content for _, token in added],
    )
    _told[tokenizer] = number, moment
    return number, known


def learn_tokenizer(tracker: RequestTracker, facts: tuple[int, Known | None] | None) -> None:
    """From now on token ids mean what they do to this tokenizer."""
    if facts is None or not tracker.text:
        tracker.decode = None
        return
    number, known = facts
    if known is not None and number not in tracker.tokenizers:
        tracker.tokenizers[number] = _Texts(lambda: _decoder(known)).__getitem__
    tracker.decode = tracker.tokenizers.get(number)


def learn_tokenizer_in(tracker: RequestTracker, folder: str) -> None:
    """Where only token ids are known, texts are made with the tokenizer in this folder, read when the first is needed;
    with none if it is not there."""
    file = Path(folder) / "tokenizer.json"
    if tracker.text and tracker.decode is None and file.is_file():
        tracker.decode = _Texts(lambda: _decoder((file.read_bytes(), None, []))).__getitem__


class _Texts(dict[int, str]):
    """The text of one token at a time; of those that a step tells of most came before."""

    def __init__(self, decoder: Callable[[], Callable[[int], str]]) -> None:
        super().__init__()
        self._make: Callable[[], Callable[[int], str]] | None = decoder
        self._decode: Callable[[int], str] = str

    def __missing__(self, token_id: int) -> str:
        if self._make is not None:
            self._decode, self._make = self._make(), None
        text = self._decode(token_id)
        if len(self) < _MOST_TOKENS:
            self[token_id] = text
        return text


def _decoder(known: Known) -> Callable[[int], str]:
    from tokenizers import Tokenizer

    content, decoder, added = known
    if decoder is not None:
        content = msgspec.json.encode(msgspec.json.decode(content) | {"decoder": msgspec.json.decode(decoder)})
    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.add_tokens([token for token in added if tokenizer.token_to_id(token) is None])

    return lambda token_id: str(tokenizer.decode([token_id], skip_special_tokens=False))

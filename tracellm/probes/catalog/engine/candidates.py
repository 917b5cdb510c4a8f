"""Likely tokens of a step as JSON: `[[token id, text, probability], ...]`, for the attributes of its span.

They are written in bulk, and each token's beginning once, as a step may have hundreds of them.
"""

import json
from collections.abc import Callable
from math import isfinite

import msgspec

from tracellm.probes.catalog.engine.runner import Likeliest, to_millionths, token_ids

__all__ = ["candidates_json"]


def candidates_json(likeliest: Likeliest, decode: Callable[[int], str] | None) -> list[str]:
    """Return the likeliest tokens of each row as JSON: `[[token id, text, probability], ...]`."""
    ends = iter(_json_ends([probability for row in likeliest[0] for probability in row]))
    starts = _json_starts(decode).__getitem__
    return [f"[{','.join([starts(token) + next(ends) for token in row])}]" for row in token_ids(likeliest)]


def _json_ends(probabilities: list[float]) -> list[str]:
    """Return the end of each candidate's JSON, with its probability; NaN and infinities as `json` writes them."""
    rounded = to_millionths(probabilities)
    if all(map(isfinite, rounded)):  # all at once takes a third of the time
        return [f"{number}]" for number in msgspec.json.encode(rounded)[1:-1].decode().split(",")]
    return [f"{json.dumps(number)}]" for number in rounded]


class _JsonStarts(dict[int, str]):
    """Start of a candidate's JSON, `[id,"text",`, by its token id."""

    def __init__(self, decode: Callable[[int], str] | None) -> None:
        super().__init__()
        self.decode = decode

    def __missing__(self, token_id: int) -> str:
        if len(self) >= _MAX_TOKENS:
            self.clear()
        text = "" if self.decode is None else self.decode(token_id)
        try:
            start = msgspec.json.encode([token_id, text]).decode()[:-1]
        except ValueError:  # half of a surrogate pair
            start = json.dumps([token_id, text])[:-1]
        self[token_id] = f"{start},"
        return self[token_id]


_MAX_TOKENS = 32_768
_starts = _JsonStarts(None)


def _json_starts(decode: Callable[[int], str] | None) -> _JsonStarts:
    """Return the texts of this tokenizer; only the last tokenizer's are kept, as there is usually one."""
    global _starts
    if _starts.decode is not decode:
        _starts = _JsonStarts(decode)
    return _starts

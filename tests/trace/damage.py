"""Random damage to trace files, as by disks, crashes, editors, other programs and malice.

`damaged` changes a line (without its newline). All changes come from a `random.Random`, so the same seed gives the same
damage.
"""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

__all__ = ["JUNK", "damaged", "damaged_file"]

_Damage = Callable[[random.Random, bytes], bytes]

JUNK: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**63, 2**64, -(2**70), 10**400, 1e308, float("nan"), float("inf"), "", "0", "-1",
    "1e3", "NaN", "\x00", "\ud800", "é" * 50, "x" * 5000, "9" * 5000, [], {}, [[]], [{}], {"": {}}, [[[[[[]]]]]],
    "a" * 16, "b" * 32, "A" * 16, "１２３４５６７８" * 2, {"intValue": "7"}, {"intValue": "x"},
    {"intValue": "1" * 4999},
    {"doubleValue": "x"}, {"doubleValue": "NaN"}, {"arrayValue": {"values": [{"arrayValue": {"values": [{}]}}]}},
    {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "1"}}]}}, {"bytesValue": "AAAA"},
    {"stringValue": None}, {"arrayValue": None}, {"code": 2}, {"code": 2, "message": "\ud83d"}, {"code": "2"},
]  # fmt: skip
"""Replacements for values."""

_PIECES = [
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r\n", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u12", b"\\ud800",
    b",", b":", b"null", b"NaN", b"-", b"1e999", b"\x1b[0m", b"\xc3", b"\xed\xa0\x80", b"[" * 3000, b'{"a":' * 3000,
    b"9" * 400, b" " * 99, b'{"resourceSpans":[]}', b'{"resourceSpans":[{"scopeSpans":[{"spans":[',
]  # fmt: skip
"""Bytes to insert."""


def damaged(draw: random.Random, line: bytes) -> bytes:
    """Return the line with one to three kinds of damage."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        line = draw.choice(_KINDS)(draw, line)
    return line


def damaged_file(draw: random.Random, content: bytes) -> bytes:
    """Return a damaged file, newlines included."""
    return draw.choice((damaged, damaged, _lines_mixed))(draw, content)


def _span(draw: random.Random, line: bytes, longest: int = 200) -> tuple[int, int]:
    start = draw.randrange(len(line) + 1)
    return start, min(len(line), start + draw.randrange(1, longest))


def _flip(draw: random.Random, line: bytes) -> bytes:
    copy = bytearray(line)
    for _ in range(draw.randrange(1, 4) if copy else 0):
        copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
    return bytes(copy)


def _digits(draw: random.Random, line: bytes) -> bytes:
    """Replace some digits of ids and times."""
    copy = bytearray(line)
    positions = [index for index in range(len(copy)) if 48 <= copy[index] <= 57]
    for index in draw.sample(positions, min(len(positions), draw.randrange(1, 6))):
        copy[index] = draw.choice(b"0123456789abcdefX-")
    return bytes(copy)


def _cut(draw: random.Random, line: bytes) -> bytes:
    return line[: draw.randrange(len(line) + 1)]


def _behead(draw: random.Random, line: bytes) -> bytes:
    return line[draw.randrange(len(line) + 1) :]


def _remove(draw: random.Random, line: bytes) -> bytes:
    start, end = _span(draw, line)
    return line[:start] + line[end:]


def _double(draw: random.Random, line: bytes) -> bytes:
    start, end = _span(draw, line)
    return line[:end] + line[start:]


def _move(draw: random.Random, line: bytes) -> bytes:
    start, end = _span(draw, line)
    rest = line[:start] + line[end:]
    target = draw.randrange(len(rest) + 1)
    return rest[:target] + line[start:end] + rest[target:]


def _insert(draw: random.Random, line: bytes) -> bytes:
    position = draw.randrange(len(line) + 1)
    return line[:position] + draw.choice(_PIECES) + line[position:]


def _noise(draw: random.Random, line: bytes) -> bytes:
    start, end = _span(draw, line, 30)
    return line[:start] + draw.randbytes(end - start) + line[end:]


def _zeros(draw: random.Random, line: bytes) -> bytes:
    """Zero a block, as in a file after the machine lost power."""
    start, end = _span(draw, line, 4096)
    return line[:start] + bytes(end - start) + line[end:]


def _recode(draw: random.Random, line: bytes) -> bytes:
    text = line.decode("utf-8", "replace")
    return text.encode(draw.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "cp037")), "replace")


def _twice(draw: random.Random, line: bytes) -> bytes:
    return line * draw.randrange(2, 4)


def _other(draw: random.Random, line: bytes) -> bytes:
    """Return unrelated content."""
    return draw.choice(
        (b"", draw.randbytes(draw.randrange(60)), draw.choice(_PIECES), json.dumps(draw.choice(JUNK)).encode())
    )


def _json(draw: random.Random, line: bytes) -> bytes:
    """Replace some values; the line stays JSON."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return _flip(draw, line)
    for _ in range(draw.randrange(1, 4)):
        container, key = _random_key(draw, document)
        if container is not None:
            _change(draw, container, key)
    return json.dumps(document, ensure_ascii=draw.random() < 0.5).encode("utf-8", "replace")


def _random_key(draw: random.Random, document: Any) -> tuple[Any, Any]:
    """Return a list or object of the document, at any depth, and one of its keys."""
    container, key, current = None, None, document
    while isinstance(current, list | dict) and current and (container is None or draw.random() < 0.8):
        container = current
        key = draw.randrange(len(container)) if isinstance(container, list) else draw.choice(list(container))
        current = container[key]
    return container, key


def _change(draw: random.Random, container: Any, key: Any) -> None:
    kind = draw.randrange(5)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, list):
        container.insert(key, deepcopy(container[draw.randrange(len(container))]))
    elif kind == 1:
        container[draw.choice(("", "traceId", "arrayValue", key.upper(), "x" * 300))] = container.pop(key)
    elif kind == 2 and isinstance(container[key], str):
        container[key] = draw.choice(
            (container[key].upper(), container[key][1:], container[key] + "0", container[key][::-1], "0" * 16)
        )
    else:
        container[key] = deepcopy(draw.choice(JUNK))


def _ids(draw: random.Random, line: bytes) -> bytes:
    """Exchange ids and parents of spans: some repeat, some are their own ancestors."""
    try:
        document = json.loads(line)
        scopes = [scope for resource in document["resourceSpans"] for scope in resource["scopeSpans"]]
        spans = [span for scope in scopes for span in scope["spans"]]
        ids = [span["spanId"] for span in spans]
        for span in draw.sample(spans, draw.randrange(1, len(spans) + 1)):
            span[draw.choice(("spanId", "parentSpanId", "parentSpanId"))] = draw.choice(ids)
        times = [*(span["startTimeUnixNano"] for span in spans), "0", str(2**64 - 1)]
        draw.choice(spans)[draw.choice(("startTimeUnixNano", "endTimeUnixNano"))] = draw.choice(times)
    except (ValueError, RecursionError, KeyError, TypeError):
        return _flip(draw, line)
    return json.dumps(document).encode()


def _lines_mixed(draw: random.Random, content: bytes) -> bytes:
    """Reorder, drop and repeat lines of a file, and drop some newlines."""
    lines = content.splitlines(keepends=True)
    mixed = [draw.choice(lines) for _ in range(draw.randrange(2 * len(lines) + 1))] if lines else []
    return b"".join(line.rstrip(b"\n") if draw.random() < 0.1 else line for line in mixed)


_KINDS: list[_Damage] = [
    _flip, _flip, _digits, _digits, _cut, _behead, _remove, _double, _move, _insert, _insert, _noise, _zeros, _recode,
    _twice, _other, _json, _json, _json, _json, _ids, _ids, _ids,
]  # fmt: skip

"""All calls of a run as columns for the page's script, about four bytes a call.

js/calls/calls.js reads them; benchmarks/report_page.py measures size and time. The format: four bytes with the length
of a JSON object, the object, then the columns. A column has one number per call in LEB128 (seven bits a byte, the
lowest first), so that small numbers, which most of them are, take one byte and compress well.
"""

import json
from collections.abc import Hashable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tracellm.report.facts.engines import engines
from tracellm.report.facts.requests import requests
from tracellm.trace import names
from tracellm.trace.gc_pause import gc_paused
from tracellm.trace.model import Span, Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Numbers = NDArray[np.int64]

__all__ = ["MOST_ATTRIBUTES", "calls_data"]

_Key = TypeVar("_Key", bound=Hashable)

MOST_ATTRIBUTES = 2_000_000
"""Bytes of all attributes as JSON; the attributes of further calls are left out and counted."""

ERROR = ""
"""Name under which a call's attributes hold its exception."""

_TICK_NS = 100
"""Unit of all times."""

_PAIR_BYTES = 5
"""Bytes of a reference to an attribute."""

_ELSEWHERE = frozenset(
    {
        names.THREAD_NAME, names.LEVEL, names.OPEN, names.RECORDING_DURATION,
        names.REQUEST_PROMPT, names.REQUEST_OUTPUT, names.REQUEST_PROMPT_TOKENS, names.REQUEST_PROMPT_TEXTS,
        names.REQUEST_PARAMS,
    }
)  # fmt: skip
"""Attributes that columns or the page's other data hold; so are those of a step."""


def calls_data(trace: Trace, most_attributes: int = MOST_ATTRIBUTES) -> bytes:
    """Return all calls of a run, in the order of `trace.spans`.

    The children of a request's span have its parent as their parent, as in `tracellm.report.tree.nodes.call_tree`.
    """
    import numpy as np  # an import of 0.1 s, only for those who write a page

    spans = trace.spans
    with gc_paused():
        numbers = {span.span_id: number for number, span in enumerate(spans)}
        get = numbers.get
        parent = np.array([get(span.parent_span_id, -1) for span in spans], np.int64)  # type: ignore[arg-type]
        start = np.array([span.start_ns for span in spans], np.int64)
        end = np.array([span.end_ns for span in spans], np.int64)
        table = _Table(trace)
        row = table.add(spans)
        kind, recording, attributes = np.array(list(table.rows), np.int64).reshape(-1, 3)[row].T
    all_requests = [numbers[request.span_id] for request in requests(spans)]
    first = start[0] if spans else 0
    start, end = (start - first) // _TICK_NS, (end - first) // _TICK_NS
    parent = _without_requests(_without_circles(parent), all_requests)
    own = np.arange(len(spans))
    kept, sets, pairs, left_out = table.keep(kind, attributes, most_attributes)
    head = _json(
        {
            "count": len(spans),
            "names": list(table.names),
            "levels": names.LEVELS,
            "threads": table.thread_rows(),
            "kinds": list(table.kinds),
            "steps": [[numbers[step.span.span_id] for step in engine.steps] for engine in engines(trace)],
            "requests": all_requests,
            "sets": sets,
            "leftOut": left_out,
        }
    )
    head = head[:-1] + b',"pairs":[' + b",".join(pairs) + b"]}"
    columns = (
        np.diff(start, prepend=0),
        np.maximum(end - start, 0),
        np.where(parent < 0, 0, _zigzag(own - parent)),
        kind,
        (recording + _TICK_NS // 2) // _TICK_NS,
        kept,
    )
    return len(head).to_bytes(4, "little") + head + b"".join(map(_varints, columns))


class _Numbering(dict[_Key, int]):
    """Numbers of values, in the order in which they were first looked up."""

    def __missing__(self, value: _Key) -> int:
        self[value] = number = len(self)
        return number


class _Table:
    """Kinds and attributes of calls, each held once.

    A kind is all that the calls of one function have in common: name, level, thread, and whether they failed or are
    open. Spans read from disk share their attributes, so most rows are found by the identity of these.
    """

    def __init__(self, trace: Trace) -> None:
        self.names = _Numbering[str]()
        self.kinds = _Numbering[tuple[int, int, int, int]]()
        self.rows = _Numbering[tuple[int, int, int]]()
        self._threads = _Numbering[tuple[tuple[str, int, str], str]]()
        self._pairs = _Numbering[tuple[str, type, Any]]()
        self._sets = _Numbering[tuple[int, ...]]({(): 0})
        self._engines: dict[tuple[str, int], list[int]] = {}
        for number, engine in enumerate(engines(trace)):
            self._engines.setdefault(engine.steps[0].span.thread[:2], []).append(number)

    def add(self, spans: list[Span]) -> list[int]:
        """Return each span's row in `rows`: its kind, recording time in nanoseconds, and set of attributes."""
        found: dict[tuple[str, int, int], int] = {}
        numbers = []
        for span in spans:
            same = span.name, id(span.attributes), id(span.process)
            if span.error is not None or span.events:
                numbers.append(self._row(span))
            elif (number := found.get(same)) is not None:
                numbers.append(number)
            else:
                numbers.append(found.setdefault(same, self._row(span)))
        return numbers

    def _row(self, span: Span) -> int:
        thread = self._threads[span.thread, span.process.name if span.process else ""]
        flags = (span.error is not None) + 2 * span.open
        kind = self.names[span.name], names.LEVELS.index(span.level), thread, flags
        return self.rows[self.kinds[kind], span.recording_ns, self._set(span)]

    def thread_rows(self) -> list[dict[str, Any]]:
        """Return each thread with its process, and the engine whose steps ran there if there is exactly one."""
        return [
            {
                "process": process,
                "pid": pid,
                "thread": thread,
                "engine": own[0] if len(own := self._engines.get((host, pid), [])) == 1 else None,
            }
            for (host, pid, thread), process in self._threads
        ]

    def _set(self, span: Span) -> int:
        pairs = [
            self._pair(name, value)
            for name, value in span.attributes.items()
            if name not in _ELSEWHERE and not _of_step(name)
        ]
        for event in span.events:
            if names.EXCEPTION_STACKTRACE in event.attributes:
                pairs.append(self._pair(names.EXCEPTION_STACKTRACE, event.attributes[names.EXCEPTION_STACKTRACE]))
        if span.error is not None:
            pairs.append(self._pair(ERROR, span.error))
        return self._sets[tuple(pairs)]

    def _pair(self, name: str, value: Any) -> int:
        return self._pairs[name, type(value), tuple(value) if isinstance(value, list) else value]

    def keep(self, kind: "_Numbers", attributes: "_Numbers", most: int) -> tuple["_Numbers", Any, list[bytes], int]:
        """Return each call's attributes, the sets, the pairs of name and value, and the number of calls without theirs.

        Attributes of a call are 0 for none, 1 if left out, else the number of the set plus 2. A set is kept before
        those of later calls of the same name, as long as there is room.
        """
        import numpy as np

        name = np.array([row[0] for row in self.kinds], np.int64)[kind]
        order = np.argsort(name, kind="stable")
        ordered = name[order]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        earliest = np.full(len(self._sets), len(order), np.int64)
        np.minimum.at(earliest, attributes, rank)
        all_sets, all_pairs = list(self._sets), [(name, value) for name, _, value in self._pairs]
        kept = np.ones(len(all_sets), np.int64)
        kept[0] = 0
        sets: list[list[int]] = []
        pairs: list[bytes] = []
        pair_numbers: dict[int, int] = {}
        encoded = cache(lambda pair: _json(all_pairs[pair]))
        room = most
        for number in np.argsort(earliest, kind="stable").tolist():
            new = [pair for pair in all_sets[number] if pair not in pair_numbers]
            size = _PAIR_BYTES * len(all_sets[number]) + sum(len(encoded(pair)) for pair in new)
            if number == 0 or size > room:
                continue
            room -= size
            for pair in new:
                pair_numbers[pair] = len(pairs)
                pairs.append(encoded(pair))
            kept[number] = len(sets) + 2
            sets.append([pair_numbers[pair] for pair in all_sets[number]])
            if room < _PAIR_BYTES:
                break
        column = kept[attributes]
        return column, sets, pairs, int((column == 1).sum())


@cache
def _of_step(name: str) -> bool:
    return name.startswith("tracellm.step.")


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or a very large number
        return json.dumps(value, default=str).encode()


def _without_circles(parent: "_Numbers") -> "_Numbers":
    """Cut circles, which a damaged recording may have, at a call that starts before its parent."""
    import numpy as np

    for number in np.nonzero(parent >= np.arange(len(parent)))[0].tolist():
        above, seen = int(parent[number]), set[int]()
        while above >= 0 and above != number and above not in seen:
            seen.add(above)
            above = int(parent[above])
        if above == number:
            parent[number] = -1
    return parent


def _without_requests(parent: "_Numbers", all_requests: Iterable[int]) -> "_Numbers":
    """Give the children of requests' spans the parents of these."""
    import numpy as np

    request = np.zeros(len(parent) + 1, bool)  # the last one stands for no parent
    request[list(all_requests)] = True
    while (below := request[parent]).any():
        parent[below] = parent[parent[below]]
    return parent


def _zigzag(values: "_Numbers") -> "_Numbers":
    """Return 2, 4, ... for 1, 2, ... and 1, 3, ... for -1, -2, ..."""
    return (values << 1) ^ (values >> 63)


def _varints(values: "_Numbers") -> bytes:
    import numpy as np

    size = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        size += values >= 1 << bits
    ends = np.cumsum(size)
    found = np.empty(int(size.sum()), np.uint8)
    for byte in range(int(size.max(initial=0))):
        here = size > byte
        more = (size[here] > byte + 1) * 128
        found[(ends - size)[here] + byte] = (values[here] >> 7 * byte) & 127 | more
    return found.tobytes()

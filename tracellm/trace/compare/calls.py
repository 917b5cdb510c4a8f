"""The calls of two runs, paired: how often each run made them, and in which processes and threads.

A pair has the same class and the same code. A method that a subclass inherits is the same code under another name:
`EngineCore.step_fn` of one run and `EngineCoreProc.step_fn` of the other are one pair.

Runs of tracellm's engine and of a real vLLM have no code in common. There the counterpart is a method of the same name
on the same lifeline, or else of the same class, wherever it is defined.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["CallPair", "call_pairs", "thread_of"]

_Key = tuple[str, str, str]
"""Lifeline, method, and the function's qualified name; the span's name if that is not recorded."""

_Identity = tuple[str, ...]
"""Identity of a call: equal for two calls that are one pair."""


@dataclass(frozen=True, slots=True)
class CallPair:
    """One call in both runs, with its counts `a` and `b`.

    `threads` are its processes and threads, in order of first use.
    """

    lifeline: str
    method: str
    a: int
    b: int
    threads_a: tuple[str, ...] = ()
    threads_b: tuple[str, ...] = ()
    lifeline_b: str = ""
    """The class that has the method in B, if it is another class with the same code; else empty."""
    owner: str = ""
    """The class that defines the method; the receiver's class may inherit it."""

    @property
    def name(self) -> str:
        """`Scheduler.schedule`."""
        return f"{self.lifeline}.{self.method}"

    @property
    def moved(self) -> bool:
        """True if both runs made it, in different processes or threads."""
        return bool(self.a and self.b and set(self.threads_a) != set(self.threads_b))

    @property
    def differs(self) -> bool:
        """True if the counts, the processes or threads, or the class differ."""
        return self.a != self.b or self.moved or bool(self.lifeline_b)


@dataclass(slots=True)
class _Calls:
    count: int = 0
    threads: dict[str, None] = field(default_factory=dict)


def call_pairs(a: Trace, b: Trace) -> list[CallPair]:
    """Return every call of both runs: those of A in the order of first use, then those of B alone."""
    calls_a, calls_b = _count(a), _count(b)
    renamed_calls = _renamed_calls(calls_a, calls_b)
    found = []
    for key, ours in calls_a.items():
        other = renamed_calls.get(key, key)
        theirs = calls_b.get(other, _Calls())
        renamed = other[0] if other[0] != key[0] else ""
        found.append(_pair(key, ours, theirs, renamed))
    paired = calls_a.keys() | set(renamed_calls.values())
    found += [_pair(key, _Calls(), theirs, "") for key, theirs in calls_b.items() if key not in paired]
    return found


def _pair(key: _Key, a: _Calls, b: _Calls, lifeline_b: str) -> CallPair:
    lifeline, method, function = key
    return CallPair(
        lifeline, method, a.count, b.count, tuple(a.threads), tuple(b.threads), lifeline_b, _owner(function)
    )


def thread_of(span: Span) -> str:
    """Return the process that a call ran in, and the thread unless it is the main one:

    `EngineCore_0`, `main: writer`.
    """
    process = span.process.name if span.process else "main"
    thread = span.attributes.get(names.THREAD_NAME)
    return f"{process}: {thread}" if thread else process


def _count(trace: Trace) -> dict[_Key, _Calls]:
    """Count the calls of a trace, in the order of first use.

    The spans of a script and of a request are not calls. After each step a client is called to abort the requests
    that a stop string ended; a call without such requests is not counted.
    """
    found: dict[_Key, _Calls] = {}
    for span in trace.spans:
        if span.name == names.REQUEST_SPAN or span.lifeline == span.name or _aborts_nothing(span):
            continue
        key = span.lifeline, span.method, str(span.attributes.get(names.CODE_FUNCTION, span.name))
        calls = found.setdefault(key, _Calls())
        calls.count += 1
        calls.threads.setdefault(thread_of(span))
    return found


def _aborts_nothing(span: Span) -> bool:
    if not span.method.startswith("abort_requests"):
        return False
    arguments = span.attributes.get(names.ARGUMENTS)
    return isinstance(arguments, list) and "request_ids=list of 0" in arguments


def _renamed_calls(calls_a: dict[_Key, _Calls], calls_b: dict[_Key, _Calls]) -> dict[_Key, _Key]:
    """Return the key in B of each call of A that B made under another class, or with another engine's code."""
    mine = {key: None for key in calls_a if key not in calls_b}
    theirs = {key: None for key in calls_b if key not in calls_a}
    found: dict[_Key, _Key] = {}
    for identity in (_function, _method, _method_of_lifeline, _method_of_class):
        of_b = _grouped(theirs, identity)
        for value, keys in _grouped(mine, identity).items():
            others = of_b.get(value, [])
            if len(keys) == len(others) == 1 and _may_pair(keys[0], others[0], identity):
                found[keys[0]] = others[0]
                del mine[keys[0]], theirs[others[0]]
    return found


def _may_pair(mine: _Key, theirs: _Key, identity: Callable[[_Key], _Identity]) -> bool:
    """Return whether two calls of the same name may be a pair: their code is of two engines, or all their names agree.

    Names also agree for two versions of one engine that have the class in different modules.
    """
    return identity in (_function, _method) or mine[2].partition(".")[0] != theirs[2].partition(".")[0]


def _function(key: _Key) -> _Identity:
    return (key[2],)


def _method(key: _Key) -> _Identity:
    return key[0], _owner(key[2]), key[1]


def _method_of_lifeline(key: _Key) -> _Identity:
    return key[:2]


def _method_of_class(key: _Key) -> _Identity:
    return _owner(key[2]), key[1]


def _owner(function: str) -> str:
    """Return the class in a function's qualified name, or else its module."""
    return function.rpartition(".")[0].rpartition(".")[2]


def _grouped(keys: Iterable[_Key], identity: Callable[[_Key], _Identity]) -> dict[_Identity, list[_Key]]:
    found: dict[_Identity, list[_Key]] = {}
    for key in keys:
        found.setdefault(identity(key), []).append(key)
    return found

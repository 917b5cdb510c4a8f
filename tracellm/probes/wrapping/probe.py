"""What a probe is: which function, what of a call is kept, and what becomes of it later.

An `Entry` of the catalog says what to probe in the engine; installation makes a `Probe` of it for each function it
finds. `@tracellm.probe` makes one for a user's function. A probe's work is split in two: `capture` runs inside the call
and only copies a few plain values, everything else runs later, off the hot path.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tracellm.probes.context.exceptions import remember
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.names import Level

__all__ = [
    "Attributes",
    "Before",
    "BeginsTrace",
    "Capture",
    "Entry",
    "Gives",
    "Mistake",
    "Observe",
    "Probe",
    "Receiver",
    "Site",
    "code_constants",
    "new_site",
    "path_of",
    "site_numbered",
]

Capture = Callable[[tuple[Any, ...], dict[str, Any], Any], Any]
"""`capture(args, kwargs, result)` inside the call: a plain copy of what is to be told, never a tensor."""

Attributes = Callable[[Any], Mapping[str, Any]]
"""`attributes(facts)` later: what the call's own span carries."""

Gives = Callable[[Any], Mapping[str, Any]]
"""`gives(facts)` later: what is told of the enclosing step."""

Observe = Callable[[Any, Span, Any, dict[str, Any]], None]
"""`observe(tracker, span, facts, given)` later, when the span is built and may still be added to.

`tracker` is the process's `RequestTracker` (catalog/request_tracker.py), `given` what calls within it gave, merged in
the order they ended.
"""

Before = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]
"""`before(args, kwargs)` just before the call: may tell it something by its arguments, or give it others."""

BeginsTrace = Callable[[tuple[Any, ...], dict[str, Any]], str | None]
"""`begins_trace(args, kwargs)`: the `traceparent` that came from outside, "" where there is none; None for a call that
is not to be recorded at all."""

Receiver = Literal["self", "cls", ""]
Part = Literal["capture", "attributes", "gives", "observe", "before", "begins_trace"]


class Mistake(NamedTuple):
    """A part of a probe that failed: which and how, and the exception's message, which may hold anybody's text."""

    what: str
    message: str

    def told(self, text: bool) -> str:
        """As it is told; without the message unless `text`."""
        return f"{self.what}: {self.message}" if self.message and text else self.what


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the catalog.

    Attributes:
        target: `module:Class.method` or `module:function`. `*` stands for any module below a package, or any class that
            the module defines.
        other_targets: what the same function is called in other versions of its engine. One that is found is enough;
            of several in one module the first is taken.
        level: how deep in the engine it sits; it is wrapped when the recording goes that deep.
        capture: what of a call is kept; by default the arguments and the result in short, tensors as shapes.
        attributes: what is made of it; goes with `capture`.
        gives: facts for the enclosing call of the function `gives_to`, named with its class; or of one of several.
        observe: what the tracker learns from it.
        lifeline: whose call it is, where the receiver's class is not the answer.
        phase: startup or generation, for a call that opens such a phase.
        even_if_raises: `capture` also runs when the call raised (its result is None then).
        before: runs just before the call.
        begins_trace: the call begins a trace of its own; for ASGI applications.
        loop: the call goes on for as long as the engine does, and belongs to no request.
        span_name: what its spans are called, where the receiver's class and the method are not the answer.
        also: a second name of the method, in documents.
        in_short: its `attributes` are arguments and result and no more, so who listens need not hear of each call
            (live_feed.py).
        is_step: a step of the engine, after which it waits until what was recorded is handed over (recorder.py).
    """

    target: str
    level: Level
    capture: Capture | None = None
    attributes: Attributes | None = None
    gives: Gives | None = None
    gives_to: str | tuple[str, ...] = ()
    observe: Observe | None = None
    lifeline: str | None = None
    phase: str | None = None
    even_if_raises: bool = False
    before: Before | None = None
    begins_trace: BeginsTrace | None = None
    loop: bool = False
    span_name: str | None = None
    also: str | None = None
    in_short: bool = False
    is_step: bool = False
    other_targets: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """All the names that its function may have."""
        return (self.target, *self.other_targets)


def path_of(target: str) -> str:
    """Of an entry's target the function, without its module: `Class.method` or `function`."""
    return target.partition(":")[2]


@dataclass(slots=True, eq=False)
class Probe:
    """What to record of one function.

    Attributes:
        method: the function's name, without its class.
        defined: its name with the class that defines it.
        span_name: the span's name; None: the receiver's class and `method`.
        lifeline: as in Entry; None: the receiver's class.
        constants: attributes that are the same for every call.
        receiver: is the first argument the object or the class that the call belongs to?
        timed: how long `capture` takes is measured, at the cost of one more look at the clock.
        users_attributes: what a user of `@tracellm.probe` wants on every span; its texts may be anybody's.
        sites: number of each receiver's class that was seen.
        target: the catalog entry that it is made of; "" for a user's function.
        problems: mistakes of the probe; shared by all probes of a recording.
    """

    method: str
    level: Level
    defined: str = ""
    receiver: Receiver = ""
    span_name: str | None = None
    lifeline: str | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    capture: Capture | None = None
    attributes: Attributes | None = None
    gives: Gives | None = None
    gives_to: tuple[str, ...] = ()
    observe: Observe | None = None
    even_if_raises: bool = False
    before: Before | None = None
    begins_trace: BeginsTrace | None = None
    loop: bool = False
    timed: bool = False
    in_short: bool = False
    is_step: bool = False
    target: str = ""
    users_attributes: Mapping[str, Any] | None = None
    problems: list[Mistake] = field(default_factory=list)
    sites: dict[Any, int] = field(default_factory=dict)

    @property
    def lasting(self) -> bool:
        """Whether its calls are few and may last, so that one under way is worth noting."""
        return self.level in ("request", "step")

    def owner(self, args: tuple[Any, ...]) -> type | None:
        """The class of the receiver of a call with these arguments."""
        if not self.receiver or not args:
            return None
        owner: type = args[0].__class__ if self.receiver == "self" else args[0]
        return owner

    def site(self, args: tuple[Any, ...]) -> int:
        """The site of a call with these arguments."""
        owner = self.owner(args)
        number = self.sites.get(owner)
        return new_site(self, owner) if number is None else number

    def disable(self, part: Part, error: Exception) -> None:
        """Stop using a part that failed, and say so once; the call itself is still recorded."""
        if getattr(self, part) is not None:
            setattr(self, part, None)
            where = self.constants.get(names.CODE_FUNCTION, self.method)
            kind, message, _ = remember(error)
            self.problems.append(Mistake(f"the probe of {where} stopped: its {part} raised {kind}", message))


class Site(NamedTuple):
    """Calls of one probe on one class: what all their spans have in common."""

    probe: Probe
    owner: type | None

    @property
    def name(self) -> str:
        """The span's name."""
        return self.probe.span_name or f"{self._class_name or self.probe.lifeline or ''}.{self.probe.method}"

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes that every span of the site has."""
        lifeline = self.probe.lifeline or self._class_name
        return {**self.probe.constants, names.LIFELINE: lifeline, names.LEVEL: self.probe.level}

    @property
    def _class_name(self) -> str:
        return self.owner.__name__ if isinstance(self.owner, type) else ""


_sites: list[Site] = []
_counting = threading.Lock()


def new_site(probe: Probe, owner: Any) -> int:
    """The number of a site that has none yet; a class without a hash shares that of all such."""
    with _counting:
        try:
            known = probe.sites.get(owner)
        except TypeError:
            owner, known = None, probe.sites.get(None)
        if known is None:
            _sites.append(Site(probe, owner))
            known = probe.sites[owner] = len(_sites) - 1
        return known


def site_numbered(number: int) -> Site:
    """The site of this number."""
    return _sites[number]


def code_constants(function: Callable[..., Any]) -> dict[str, Any]:
    """Where a function is in the code, as attributes; under decorators, the function they decorate."""
    constants: dict[str, Any] = {names.CODE_FUNCTION: f"{function.__module__}.{function.__qualname__}"}
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        constants[names.CODE_FILE] = _short_path(code.co_filename, function.__module__)
        constants[names.CODE_LINE] = code.co_firstlineno
    return constants


def _short_path(file: str, module_name: str) -> str:
    """A file's path from the folder that its package lies in."""
    package = sys.modules.get(module_name.partition(".")[0])
    home = getattr(package, "__file__", None) if hasattr(package, "__path__") else None
    if home and Path(file).is_relative_to(Path(home).parent.parent):
        return Path(file).relative_to(Path(home).parent.parent).as_posix()
    return Path(file).name

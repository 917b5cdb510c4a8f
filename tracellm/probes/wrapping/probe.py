"""Probes: which function is recorded, what of a call is kept, and what is made of it later.

An `Entry` of the catalog names functions of an engine; installation makes a `Probe` for each one that it finds, and
`@tracellm.probe` makes one for a user's function. `capture` runs inside the call and only copies plain values;
everything else runs later, off the hot path.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from tracellm.probes.context.exceptions import remember
from tracellm.probes.context.notebook_cell import cell_name
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.names import Level

__all__ = [
    "Attributes", "Before", "BeginsTrace", "Capture", "Entry", "Gives", "Mistake", "Observe", "Probe", "Receiver",
    "Site", "code_constants", "new_site", "path_of", "site_numbered",
]  # fmt: skip

Capture = Callable[[tuple[Any, ...], dict[str, Any], Any], Any]
"""`capture(args, kwargs, result)` inside the call: the facts, a plain copy without tensors."""

Attributes = Callable[[Any], Mapping[str, Any]]
"""`attributes(facts)` later: attributes of the call's span."""

Gives = Callable[[Any], Mapping[str, Any]]
"""`gives(facts)` later: facts for the enclosing call of a function in `gives_to`."""

Observe = Callable[[Any, Span, Any, dict[str, Any]], None]
"""`observe(tracker, span, facts, given)` later, when the span is built and may still get attributes.

`tracker` is the process's `RequestTracker` (catalog/request_tracker.py); `given` is what the calls within it gave,
merged in the order in which they ended.
"""

Before = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]
"""`before(args, kwargs)` just before the call: returns replacements for the arguments, or None."""

BeginsTrace = Callable[[tuple[Any, ...], dict[str, Any]], str | None]
"""`begins_trace(args, kwargs)`: the incoming `traceparent`, or "" without one; None leaves the call out."""

Receiver = Literal["self", "cls", ""]
Part = Literal["capture", "attributes", "gives", "observe", "before", "begins_trace"]


class Mistake(NamedTuple):
    """Failure of a part of a probe, with the exception's message, which may contain private text."""

    what: str
    message: str

    @classmethod
    def of(cls, what: str, error: Exception) -> Self:
        """Return the failure of `what`, which raised `error`."""
        kind, message, _ = remember(error)
        return cls(f"{what} raised {kind}", message)

    def describe(self, text: bool) -> str:
        """Return the failure as a line, with the exception's message only if `text` is set."""
        return f"{self.what}: {self.message}" if self.message and text else self.what


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a catalog: a function to probe.

    Attributes:
        target: `module:Class.method` or `module:function`. `*` stands for any module below a package, or any class
            that the module defines.
        level: depth in the engine; the function is wrapped when the recording goes that deep.
        capture: returns the facts to keep; by default a summary of arguments and result, tensors as shapes.
        attributes: makes span attributes of the facts; goes with `capture`.
        gives: makes facts for the enclosing call of a function in `gives_to`.
        gives_to: one function or several, as `Class.method`.
        observe: updates the request tracker.
        lifeline: lifeline of the call, if not the receiver's class.
        phase: startup or generation, for a call that opens such a phase.
        even_if_raises: also run `capture` when the call raised, with the result None.
        before: runs just before the call.
        begins_trace: the call begins a trace of its own; for ASGI applications.
        loop: the call lasts as long as the engine, and belongs to no request.
        span_name: name of its spans, if not the receiver's class and the method.
        also: another name of the method, for documents.
        in_short: `attributes` are only arguments and result, so the live feed may skip the call (live_feed.py).
        is_step: the call is an engine step; records are written when it ends (recorder.py).
        other_targets: names of the same function in other versions of its engine. One that is found is enough; of
            several in one module the first is taken.
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
        """All names that the function may have."""
        return (self.target, *self.other_targets)


def path_of(target: str) -> str:
    """Return a target without its module: `Class.method` or `function`."""
    return target.partition(":")[2]


@dataclass(slots=True, eq=False)
class Probe:
    """Recording of one function. Attributes that Entry has too are described there.

    Attributes:
        method: the function's name, without its class.
        defined: its name with the class that defines it.
        receiver: whether the first argument is the object, or the class, that the call belongs to.
        span_name: the span's name; None for the receiver's class and `method`.
        lifeline: as in Entry; None for the receiver's class.
        constants: attributes that are the same for every call.
        timed: measure how long `capture` takes, at the cost of another reading of the clock.
        target: target of the catalog entry; "" for a user's function.
        users_attributes: attributes that a user of `@tracellm.probe` set on every span; may contain private text.
        problems: failures of the probe; shared by all probes of a recording.
        sites: site number of each receiver's class met so far.
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
        """True if its calls are few and may last long; those under way are tracked."""
        return self.level in ("request", "step")

    def site(self, args: tuple[Any, ...]) -> int:
        """Return the site of a call with these arguments."""
        owner = None
        if self.receiver and args:
            owner = args[0].__class__ if self.receiver == "self" else args[0]
        return new_site(self, owner)

    def disable(self, part: Part, error: Exception) -> None:
        """Stop using a part that failed, and report it once; the call itself is still recorded."""
        if getattr(self, part) is not None:
            setattr(self, part, None)
            where = self.constants.get(names.CODE_FUNCTION, self.method)
            self.problems.append(Mistake.of(f"the probe of {where} stopped: its {part}", error))


class Site(NamedTuple):
    """A probe and a receiver's class: what all spans of these calls have in common."""

    probe: Probe
    owner: type | None

    @property
    def name(self) -> str:
        """Name of the spans."""
        return self.probe.span_name or f"{self._class_name or self.probe.lifeline or ''}.{self.probe.method}"

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of every span."""
        lifeline = self.probe.lifeline or self._class_name
        return {**self.probe.constants, names.LIFELINE: lifeline, names.LEVEL: self.probe.level}

    @property
    def _class_name(self) -> str:
        return self.owner.__name__ if isinstance(self.owner, type) else ""


_sites: list[Site] = []
_lock = threading.Lock()


def new_site(probe: Probe, owner: Any) -> int:
    """Return the number of a site, added if needed; all classes without a hash share one."""
    with _lock:
        try:
            number = probe.sites.get(owner)
        except TypeError:
            owner, number = None, probe.sites.get(None)
        if number is None:
            _sites.append(Site(probe, owner))
            number = probe.sites[owner] = len(_sites) - 1
        return number


def site_numbered(number: int) -> Site:
    """Return the site of this number."""
    return _sites[number]


def code_constants(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's location as attributes; that of the innermost function under decorators."""
    constants: dict[str, Any] = {names.CODE_FUNCTION: f"{function.__module__}.{function.__qualname__}"}
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        constants[names.CODE_FILE] = _short_path(code.co_filename, function.__module__)
        constants[names.CODE_LINE] = code.co_firstlineno
    return constants


def _short_path(file: str, module_name: str) -> str:
    """Return a file's path relative to the directory of its package."""
    package = sys.modules.get(module_name.partition(".")[0])
    home = getattr(package, "__file__", None) if hasattr(package, "__path__") else None
    if home and Path(file).is_relative_to(Path(home).parent.parent):
        return Path(file).relative_to(Path(home).parent.parent).as_posix()
    return cell_name(file) or Path(file).name

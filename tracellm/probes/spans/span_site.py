"""Sites and places as a record file defines them, with the functions that make attributes of a call's facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracellm.probes.context.exceptions import remember
from tracellm.probes.wrapping.probe import Attributes, Entry, Gives, Mistake, Observe
from tracellm.probes.wrapping.summary import ArgumentAttributes, UserAttributes, VarArgsAttributes
from tracellm.trace import names

__all__ = ["SpanPlace", "SpanSite"]


@dataclass(slots=True)
class SpanSite:
    """Common part of a site's spans (record/definitions.py), and the functions for what is each span's own.

    Attributes:
        name: the span's.
        alike: attributes of all of them.
        defined: name of the function, with the class that defines it.
        target: catalog entry that its probe is made of; "" for none.
        facts: form of the facts: arguments, any, user, entry, or "".
        attributes: makes attributes of facts.
        user_attributes: a user's, for every span.
        is_plain: each span has its arguments and result and no more, and nothing is learnt from it.
        problems: mistakes of the catalog's functions.
    """

    name: str
    alike: dict[str, Any]
    defined: str = ""
    target: str = ""
    facts: str = ""
    names: tuple[str, ...] = ()
    timed: bool = False
    attributes: Attributes | None = None
    user_attributes: Mapping[str, Any] = field(default_factory=dict)
    gives: Gives | None = None
    gives_to: tuple[str, ...] = ()
    observe: Observe | None = None
    in_short: bool = False
    problems: list[Mistake] = field(default_factory=list)

    @classmethod
    def of(cls, definition: Mapping[str, Any], entries: Mapping[str, Entry], problems: list[Mistake]) -> "SpanSite":
        """The site that has this definition; `entries` of the catalog by their targets."""
        entry = entries.get(definition.get("target", ""))
        site = cls(
            definition["name"],
            definition["attributes"],
            definition.get("defined", ""),
            definition.get("target", ""),
            facts := definition.get("facts", ""),
            tuple(definition.get("names", ())),
            bool(definition.get("timed")),
            user_attributes=definition.get("user_attributes", {}),
            in_short=bool(definition.get("in_short")),
            problems=problems,
        )
        where = bool(definition.get("where"))
        if facts == "arguments":
            site.attributes = ArgumentAttributes(site.names, where)
        elif facts == "any":
            site.attributes = VarArgsAttributes(site.names, where)
        elif facts == "user":
            site.attributes = UserAttributes()
        elif entry is not None:
            site.attributes = entry.attributes
        if entry is not None:
            if definition.get("gives"):
                site.gives = entry.gives
                site.gives_to = (entry.gives_to,) if isinstance(entry.gives_to, str) else entry.gives_to
            if definition.get("observes"):
                site.observe = entry.observe
        return site

    @property
    def is_plain(self) -> bool:
        """Whether a span has nothing but arguments and result of its own, from which nothing else is learnt."""
        return not self.timed and self.gives is None and self.observe is None and self.facts != "entry"

    def disable(self, part: str, error: Exception) -> None:
        """Stop using a part that failed, and note it once; spans are made without it."""
        setattr(self, part, None)
        where = self.alike.get(names.CODE_FUNCTION, self.name)
        kind, message, _ = remember(error)
        self.problems.append(Mistake(f"the probe of {where} stopped: its {part} raised {kind}", message))


class SpanPlace(NamedTuple):
    """A thread, None for the main one, and the trace that calls there belong to.

    Attributes:
        trace_id: None for the recording's own trace.
        parent: span id of the parent of outermost calls in that trace; None where they are roots.
        outside: the parent is not in the recording.
    """

    thread_name: str | None = None
    trace_id: str | None = None
    parent: str | None = None
    outside: bool = False

    @classmethod
    def of(cls, definition: Mapping[str, Any], root: int) -> "SpanPlace":
        """The place that has this definition, in the recording whose script is the call `root`."""
        thread_name, trace = definition.get("thread_name"), definition.get("trace")
        if trace is None or trace[2] != root:
            return cls(thread_name)
        return cls(thread_name, trace[0], trace[1], bool(trace[3]))

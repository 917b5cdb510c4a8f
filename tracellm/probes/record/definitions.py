"""Meanings of the numbers in records: what a record file says once of a probe on a class, and of a thread or trace."""

from typing import Any

from tracellm.probes.context.call_context import ThreadContext
from tracellm.probes.wrapping.probe import Attributes, Site
from tracellm.probes.wrapping.summary import ArgumentAttributes, UserAttributes, VarArgsAttributes

__all__ = ["define_place", "define_site"]


def define_site(site: Site) -> dict[str, Any]:
    """A site as plain data; what is missing is false, empty or none.

    `facts` is the form that facts have: `arguments` and `any` with the parameters' `names`, `user`, or `entry` for
    those that the catalog's entry for `target` reads. With `where` they are a pair with the user's line; `timed` ones
    stand behind the nanoseconds that their capture took.
    """
    probe = site.probe
    definition = {
        "name": site.name,
        "attributes": site.attributes,
        "defined": probe.defined,
        **_form(probe.attributes),
        "timed": probe.timed,
        "target": probe.target,
        "gives": probe.gives is not None,
        "observes": probe.observe is not None,
        "user_attributes": dict(probe.users_attributes or {}),
        "in_short": probe.in_short,
        "is_step": probe.is_step,
    }
    return {name: value for name, value in definition.items() if value or name in ("name", "attributes")}


def _form(attributes: Attributes | None) -> dict[str, Any]:
    match attributes:
        case None:
            return {}
        case ArgumentAttributes(names, where):
            return {"facts": "arguments", "names": names, "where": where}
        case VarArgsAttributes(names, where):
            return {"facts": "any", "names": names, "where": where}
        case UserAttributes():
            return {"facts": "user"}
    return {"facts": "entry"}


def define_place(place: ThreadContext | None) -> dict[str, Any]:
    """A place as plain data: the thread's name, None for the main thread, and the trace that its calls belong to."""
    if place is None:
        return {}
    scope = place.scope
    trace = None if scope is None else (scope.trace_id, scope.parent, scope.recording, scope.outside)
    return {"thread_name": place.thread_name, "trace": trace}

"""Generated tables of docs/spans.md: every span and attribute, from the catalog and `tracellm/trace/names.py`.

`make_docs.py` writes them. A test compares recorded runs with `known_spans`.
"""

import importlib
import pkgutil
import sys
from types import FunctionType
from typing import Any

import tracellm.engine
from tracellm.probes.catalog import CATALOG, engine
from tracellm.probes.install.installation import Installation
from tracellm.probes.install.selection import Selection
from tracellm.probes.wrapping.probe import Entry, Probe
from tracellm.trace import names

__all__ = ["blocks", "known_spans"]


class _Found(Installation):
    """An installation that only collects the functions it would wrap, with the names of their spans."""

    def __init__(self) -> None:
        super().__init__(CATALOG, Selection(), [])
        self.spans: dict[Entry, dict[str, None]] = {}

    def _probe(self, entry: Entry, owner: Any, name: str, function: FunctionType) -> Probe:
        probe = super()._probe(entry, owner, name, function)
        self.spans.setdefault(entry, {})[probe.span_name or f"{owner.__name__}.{name}"] = None
        return probe


def _found() -> dict[Entry, list[str]]:
    """Return the names of the spans of each catalog entry; an inherited method has the class that defines it."""
    for module in pkgutil.walk_packages(tracellm.engine.__path__, "tracellm.engine."):
        importlib.import_module(module.name)
    importlib.import_module("fastapi.applications")
    for name in sorted(sys.modules):  # an inherited method is found first in the first module
        sys.modules[name] = sys.modules.pop(name)
    installation = _Found()
    installation.start()
    installation.stop()
    return {entry: sorted(found) for entry, found in installation.spans.items()}


def known_spans() -> dict[str, Entry]:
    """Return every span of the catalog by name."""
    return {name: entry for entry, found in _found().items() for name in found}


def blocks() -> dict[str, str]:
    """Return the page's tables by the names of their marks."""
    return {"spans": _spans(), "attributes": _attributes()}


def _spans() -> str:
    """Return a table for each file of the catalog; entries with the same attributes share a row."""
    found = _found()
    parts = []
    for file in engine.FILES:
        title = (file.__doc__ or "").split("\n\n")[0].replace("\n", " ").split(":")[0].strip().rstrip(".")
        parts.append(f"### {title}\n\n| span | level | own attributes |\n|---|---|---|\n")
        rows: dict[tuple[str, str], list[str]] = {}
        for entry in file.ENTRIES:
            for name in found.get(entry, ()):
                shown = names.HTTP_SPAN if entry.begins_trace is not None else name
                rows.setdefault((entry.level, _own_attributes(shown)), []).append(f"`{shown}`")
        for (level, attributes), spans in rows.items():
            parts.append(f"| {', '.join(spans)} | {level} | {attributes} |\n")
        parts.append("\n")
    return "".join(parts)


def _own_attributes(span: str) -> str:
    """Return the attributes of a span that not every call has: single names, or a group if it has all of one."""
    groups: dict[str, list[names.Attribute]] = {}
    for attribute in names.ATTRIBUTES.values():
        groups.setdefault(attribute.group, []).append(attribute)
    found = []
    for group, members in groups.items():
        mine = [one.name for one in members if span in one.on]
        found += [f"all under [{group}](#{_anchor(group)})"] if len(mine) == len(members) else [f"`{n}`" for n in mine]
    return ", ".join(found)


def _anchor(heading: str) -> str:
    """Return GitHub's id of a heading."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _attributes() -> str:
    """Return a table for each group of attributes."""
    parts = []
    group = None
    for attribute in names.ATTRIBUTES.values():
        if attribute.group != group:
            group = attribute.group
            parts.append(f"\n### {group}\n\n| attribute | type | meaning | on |\n|---|---|---|---|\n")
        meaning = attribute.description.replace("|", "\\|") + (" *(text)*" if attribute.private else "")
        on = ", ".join(f"`{name}`" for name in attribute.on) or "any call"
        parts.append(f"| `{attribute.name}` | {attribute.type} | {meaning} | {on} |\n")
    return "".join(parts).lstrip("\n")

"""The keyword `propertyNames` of JSON schemas, as `patternProperties`, which llguidance has: a pattern for all keys.

In a request's life: when its constraint is checked, and when the engine core compiles it.

pydantic writes it for a `dict` whose keys are an Enum, a Literal or a constrained string.

vLLM: from 0.32 on, xgrammar has the keyword; vLLM refuses the combinations that are refused here. 0.11.1 refuses it.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["with_patterns_of_names"]

_ANNOTATIONS = {"$comment", "default", "deprecated", "description", "examples", "title"}
_KEYWORDS = {"type", "enum", "const", "pattern", "minLength", "maxLength"}
_NOT_BESIDE = ("properties", "patternProperties", "unevaluatedProperties")
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~]")


def with_patterns_of_names(schema: dict[str, Any], root: dict[str, Any]) -> None:
    """Replace `propertyNames` in one schema, in place. `root` is the whole schema, for a `$ref`.

    Raises:
        ValueError: it stands beside another keyword about properties, or has a keyword that is not supported.
    """
    if "propertyNames" not in schema:
        return
    if beside := [keyword for keyword in _NOT_BESIDE if keyword in schema]:
        raise ValueError(f"`propertyNames` beside `{beside[0]}` is not supported.")
    pattern = _pattern(_resolved(schema.pop("propertyNames"), root))
    if pattern is None:
        return
    values = schema.get("additionalProperties", True)
    schema["additionalProperties"] = False
    if pattern and values is not False:
        schema["patternProperties"] = {pattern: values}


def _resolved(names: Any, root: dict[str, Any]) -> Any:
    """Return the schema of the names, with a `$ref` to a definition of the same schema followed."""
    seen = set()
    while isinstance(names, dict) and isinstance(reference := names.get("$ref"), str):
        found: Any = root if reference.startswith("#/") and reference not in seen else None
        seen.add(reference)
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None or names.keys() - _ANNOTATIONS != {"$ref"}:
            raise ValueError(f"`propertyNames` has the reference {reference[:80]!r}, which cannot be followed.")
        names = found
    return names


def _pattern(names: Any) -> str | None:
    """Return the pattern of the allowed names; None if all are allowed, "" if none is."""
    if isinstance(names, bool):
        return None if names else ""
    if not isinstance(names, dict):
        raise ValueError(f"`propertyNames` must be a schema, got a {type(names).__name__}.")
    if unknown := sorted(names.keys() - _KEYWORDS - _ANNOTATIONS):
        raise ValueError(f"`propertyNames` with `{unknown[0]}` is not supported; {', '.join(sorted(_KEYWORDS))} are.")
    if names.get("type", "string") != "string":
        raise ValueError("`propertyNames` must be about strings: its `type` is another one.")
    least, most = names.get("minLength", 0), names.get("maxLength")
    if not isinstance(least, int) or not isinstance(most, int | None):
        raise ValueError("`propertyNames` has a length that is not an integer.")
    listed = _listed(names)
    if "pattern" in names and (listed is not None or least or most is not None):
        raise ValueError("`propertyNames` with `pattern` and another condition is not supported.")
    if listed is not None:
        allowed = [name for name in listed if least <= len(name) and (most is None or len(name) <= most)]
        return "^(?:" + "|".join(_SPECIAL.sub(r"\\\g<0>", name) for name in allowed) + ")$" if allowed else ""
    if "pattern" in names:
        return str(names["pattern"])
    if most is not None and most < least:
        return ""
    return None if not least and most is None else f"^(?s:.{{{least},{'' if most is None else most}}})$"


def _listed(names: dict[str, Any]) -> list[str] | None:
    """Return the strings that `enum` and `const` allow; None without them."""
    if "enum" not in names and "const" not in names:
        return None
    listed = names.get("enum", [names.get("const")])
    if not isinstance(listed, list):
        raise ValueError("`propertyNames` has an `enum` that is not a list.")
    return [name for name in listed if isinstance(name, str) and name == names.get("const", name)]

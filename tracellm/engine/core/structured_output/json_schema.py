"""JSON schemas as vLLM's default backend, xgrammar, reads them: an object has its declared keys only.

By the standard, an object may have keys that its schema does not declare, and an array items beyond its `prefixItems`.
A model would invent them without end, so xgrammar forbids them unless the schema allows them: `additionalProperties` or
`unevaluatedProperties`, `items` or `unevaluatedItems`. llguidance follows the standard, so `closed` writes these
defaults into the schema.

vLLM takes llguidance for schemas with keywords that xgrammar does not have; these stay open, as do schemas that merge
several objects (`allOf`), where the keys of one are not declared in the others.

vLLM: vllm/v1/structured_output/backend_xgrammar.py, `has_xgrammar_unsupported_json_features`; xgrammar's `strict_mode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["closed", "mapped", "subschemas", "without_additional_properties"]

_OF_ONE = (
    *("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains", "propertyNames"),
    *("not", "if", "then", "else", "contentSchema"),
)
_OF_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_OF_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MERGED = ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas")
_NOT_IN_XGRAMMAR = {
    "integer": ("multipleOf",),
    "number": ("multipleOf",),
    "array": ("uniqueItems", "contains", "minContains", "maxContains"),
    "object": ("minProperties", "maxProperties", "patternProperties"),
}


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the defaults of xgrammar; the schema itself if it has keywords that xgrammar lacks."""
    if any(_stays_open(one) for one in subschemas(schema)):
        return schema
    return mapped(schema, _close)


def without_additional_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which an object with `properties` or `patternProperties` allows no others, unless stated."""

    def close(one: dict[str, Any]) -> None:
        if "properties" in one or "patternProperties" in one:
            one.setdefault("additionalProperties", False)

    return mapped(schema, close)


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schema and all schemas in it, outermost first; not what only looks like one, as in an `enum`."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += [child for _, _, child in _children(one)]


def _children(schema: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each schema in a schema: its keyword, its key or index there or None, and the schema."""
    for keyword in _OF_ONE:
        if isinstance(schema.get(keyword), dict):
            yield keyword, None, schema[keyword]
    for keyword in _OF_SEVERAL:
        if isinstance(schema.get(keyword), list):
            for index, child in enumerate(schema[keyword]):
                yield keyword, index, child
    for keyword in _OF_NAMED:
        if isinstance(schema.get(keyword), dict):
            for name, child in schema[keyword].items():
                yield keyword, name, child


def mapped(schema: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return a copy in which `change` was called with each schema."""
    root = {"root": schema}
    waiting: list[tuple[Any, Any]] = [(root, "root")]
    while waiting:
        place, key = waiting.pop()
        if not isinstance(place[key], dict):
            continue
        one = place[key] = dict(place[key])
        change(one)
        for keyword in (*_OF_SEVERAL, *_OF_NAMED):
            if isinstance(one.get(keyword), (list, dict)):
                one[keyword] = one[keyword].copy()
        waiting += [(one, keyword) if name is None else (one[keyword], name) for keyword, name, _ in _children(one)]
    return root["root"]


def _stays_open(schema: dict[str, Any]) -> bool:
    kind, prefix = schema.get("type"), schema.get("prefixItems")
    if isinstance(kind, str) and any(keyword in schema for keyword in _NOT_IN_XGRAMMAR.get(kind, ())):
        return True
    if isinstance(schema.get("items"), list) or (
        isinstance(prefix, list) and isinstance(schema.get("minItems"), int) and schema["minItems"] > len(prefix)
    ):
        return True
    several = isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1
    return several or ("properties" in schema and any(keyword in schema for keyword in _MERGED))


def _close(schema: dict[str, Any]) -> None:
    properties, prefix = schema.get("properties"), schema.get("prefixItems")
    if isinstance(properties, dict):
        schema.setdefault("type", "object")
        schema.setdefault("additionalProperties", schema.pop("unevaluatedProperties", False))
        required = schema.get("required")
        if schema["additionalProperties"] is False and isinstance(required, list):
            undeclared = [name for name in required if isinstance(name, str) and name not in properties]
            schema["properties"] = properties | {name: {} for name in undeclared}
    if isinstance(prefix, list):
        schema.setdefault("type", "array")
        schema.setdefault("items", schema.pop("unevaluatedItems", False))
        schema.setdefault("minItems", len(prefix))
    elif "items" in schema:
        schema.setdefault("type", "array")

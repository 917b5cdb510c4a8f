"""Constraints with texts that satisfy them, and an independent check for each."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jsonschema

from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["CASES", "Case", "is_sum"]


class Case(NamedTuple):
    """Constraint, and a check whether a text satisfies it."""

    name: str
    params: dict[str, Any]
    holds: Callable[[str], bool]

    def __repr__(self) -> str:
        return self.name

    def structured_outputs(self) -> StructuredOutputsParams:
        """Return the constraint as a request parameter."""
        return StructuredOutputsParams(**self.params)


def _valid(schema: dict[str, Any]) -> Callable[[str], bool]:
    return lambda text: jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


def _one_of(*texts: str) -> Callable[[str], bool]:
    return lambda text: text in texts


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


def is_sum(text: str) -> bool:
    """Return whether the text is an expression of digits, `+` and brackets."""
    return re.fullmatch(r"[0-9+()]+", text) is not None and isinstance(eval(re.sub(r"\b0+(?=[0-9])", "", text)), int)


_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "年龄": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["😀", "ok", None]},
    },
    "required": ["name", "年龄", "mood"],
    "additionalProperties": False,
}
_LIST = {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}
_OPEN = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}

CASES = [
    Case("choice", {"choice": ["Paris", "Lyon", "Le Havre"]}, _one_of("Paris", "Lyon", "Le Havre")),
    Case("choice-of-prefixes", {"choice": ["a", "ab", "abc"]}, _one_of("a", "ab", "abc")),
    Case("choice-in-unicode", {"choice": ["东京", "東京 😀", '"\\']}, _one_of("东京", "東京 😀", '"\\')),
    Case("choice-of-thousands", {"choice": [f"w{i}" for i in range(3000)]}, _matches(r"w\d{1,4}")),
    Case("choice-of-nothing", {"choice": [""]}, _one_of("")),
    Case("regex", {"regex": "[a-c]{2,6}-[0-9]{1,3}"}, _matches(r"[a-c]{2,6}-[0-9]{1,3}")),
    Case("regex-with-anchors", {"regex": "^(yes|no|möglich)!{0,2}$"}, _matches("(yes|no|möglich)!{0,2}")),
    Case("regex-in-unicode", {"regex": "[一-三]{1,4}(😀|🦙)"}, _matches("[一-三]{1,4}(😀|🦙)")),
    Case("json", {"json": _PERSON, "disable_any_whitespace": True}, _valid(_PERSON)),
    Case("json-as-text", {"json": json.dumps(_PERSON), "disable_any_whitespace": True}, _valid(_PERSON)),
    Case("json-spaced", {"json": _LIST, "whitespace_pattern": " ?"}, _valid(_LIST)),
    Case(
        "json-closed",
        {"json": _OPEN, "disable_additional_properties": True, "disable_any_whitespace": True},
        _one_of('{"a":null}'),
    ),
    Case(
        "grammar-lark",
        {"grammar": 'start: term ("+" term)~0..3\nterm: /[0-9]{1,2}/ | "(" /[0-9]/ "+" /[0-9]/ ")"'},
        is_sum,
    ),
    Case(
        "grammar-ebnf",
        {"grammar": 'root ::= greeting ", " name "!"\ngreeting ::= "Hello" | "你好"\nname ::= [A-Z] [a-z] [a-z]?'},
        _matches("(Hello|你好), [A-Z][a-z]{1,2}!"),
    ),
]

"""Structural tags with a `format`: a tree of texts, JSON schemas and tags as one grammar in llguidance's notation.

In a request's life: `serialize_guidance_grammar` (backend_guidance.py), in the front end and in the engine core.

vLLM passes them to xgrammar (structural_tag.py and cpp/structural_tag.cc there), whose names these are. Left out: the
format `qwen_xml_parameter`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import msgspec

from tracellm.engine.config.errors import shorten
from tracellm.engine.core.structured_output.trial import Trial

__all__ = ["MAX_TAGS", "SPECIAL_TOKEN", "constraints_of", "grammar_of", "quoted"]

MAX_TAGS = 1000
"""Largest number of formats and triggers, or of structures, in a structural tag."""
SPECIAL_TOKEN = re.compile(r"<[^<>\[\]\s]+>")
"""A special token in llguidance's notation."""
_TEXT = "TEXT"
"""Name of the terminal that matches any text."""
_IN_REGEX = re.compile(r"\\?(.)", re.DOTALL)
"""A character of a regular expression, which may be escaped."""


class _AnyText(msgspec.Struct, tag_field="type", tag="any_text"):
    """Any text: to the end of the output, or to the `end` of the tag around it."""


class _ConstString(msgspec.Struct, tag_field="type", tag="const_string"):
    value: str


class _JSONSchema(msgspec.Struct, tag_field="type", tag="json_schema"):
    json_schema: dict[str, Any] | bool


class _Grammar(msgspec.Struct, tag_field="type", tag="grammar"):
    grammar: str


class _Regex(msgspec.Struct, tag_field="type", tag="regex"):
    pattern: str


class _Sequence(msgspec.Struct, tag_field="type", tag="sequence"):
    elements: list[_Format]


class _Or(msgspec.Struct, tag_field="type", tag="or"):
    elements: list[_Format]


class _Tag(msgspec.Struct, tag_field="type", tag="tag"):
    """`begin`, the content and `end`."""

    begin: str
    content: _Format
    end: str


class _TriggeredTags(msgspec.Struct, tag_field="type", tag="triggered_tags"):
    """Any text, in which each trigger starts one of the tags. With `at_least_one` it starts with a tag."""

    triggers: list[str]
    tags: list[_Tag]
    at_least_one: bool = False
    stop_after_first: bool = False


class _TagsWithSeparator(msgspec.Struct, tag_field="type", tag="tags_with_separator"):
    """Tags, and nothing but the separator between them."""

    tags: list[_Tag]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


_Format = (
    _AnyText
    | _ConstString
    | _JSONSchema
    | _Grammar
    | _Regex
    | _Sequence
    | _Or
    | _Tag
    | _TriggeredTags
    | _TagsWithSeparator
)


class _StructuralTag(msgspec.Struct):
    format: _Format


def grammar_of(
    tag: dict[str, Any], json_schema: Callable[[dict[str, Any]], dict[str, Any]], is_special: Callable[[str], bool]
) -> str:
    """Return the grammar of a structural tag with a `format`, in the notation "grammars" of a `Trial`.

    Args:
        tag: the structural tag.
        json_schema: adds the request's options to a schema.
        is_special: whether a text is the name of a special token.

    Raises:
        ValueError: a format is malformed, or text without an end is followed by something.
    """
    builder = _GrammarBuilder(json_schema, is_special)
    start = builder.expression(_read(tag).format, None)
    lark = "\n".join(("%llguidance {}", f"start: {start}", f"{_TEXT}: /(.|\\n)*/", *builder.rules))
    return json.dumps([{"name": "structural_tag", "lark_grammar": lark}, *builder.grammars])


def constraints_of(tag: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Trial]]:
    """Return the JSON schemas in a structural tag with a `format`, and its other constraints.

    Raises:
        ValueError: a format is malformed.
    """
    schemas: list[dict[str, Any]] = []
    others: list[Trial] = []
    for format in _walk(_read(tag).format):
        match format:
            case _JSONSchema(json_schema=dict(schema)):
                schemas.append(schema)
            case _Regex(pattern=text):
                others.append(("regex", text))
            case _Grammar(grammar=text):
                others.append(("grammar", text))
    return schemas, others


def quoted(text: str) -> str:
    """Return a text as a string of llguidance's notation."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(tag: dict[str, Any]) -> _StructuralTag:
    try:
        read = msgspec.convert(tag, _StructuralTag)
    except msgspec.ValidationError as error:
        kinds = ", ".join(kind.__struct_config__.tag for kind in get_args(_Format))
        raise ValueError(f"{error}. The formats are: {kinds}.") from None
    if sum(1 + len(getattr(format, "triggers", ())) for format in _walk(read.format)) > MAX_TAGS:
        raise ValueError(f"it has more than {MAX_TAGS:,} formats and triggers.")
    return read


def _walk(format: Any) -> Iterator[Any]:
    """Yield a format and all formats in it."""
    yield format
    inner = [format.content] if isinstance(format, _Tag) else getattr(format, "elements", getattr(format, "tags", ()))
    for part in inner:
        yield from _walk(part)


def _is_unlimited(format: Any) -> bool:
    """Return whether a format ends only with the output, or with the tag around it."""
    match format:
        case _Sequence():
            return any(map(_is_unlimited, format.elements[-1:]))
        case _Or():
            return any(map(_is_unlimited, format.elements))
        case _TriggeredTags():
            return not (format.at_least_one and format.stop_after_first)
    return isinstance(format, _AnyText)


class _GrammarBuilder:
    """Rules of a grammar.

    Attributes:
        rules: the rules so far.
        grammars: grammars in their own notation, which rules refer to by name.
    """

    def __init__(
        self, json_schema: Callable[[dict[str, Any]], dict[str, Any]], is_special: Callable[[str], bool]
    ) -> None:
        self.rules: list[str] = []
        self.grammars: list[dict[str, str]] = []
        self._json_schema = json_schema
        self._is_special = is_special
        self._numbers = itertools.count()
        self._tag_rests: dict[int, str] = {}

    def expression(self, format: Any, end: str | None) -> str:
        """Return the expression of a format; an unlimited one includes the `end` of the tag around it."""
        match format:
            case _AnyText():
                return self._text_until(end)
            case _ConstString():
                if not format.value:
                    raise ValueError("the `value` of a `const_string` is empty.")
                return self._text(format.value)
            case _JSONSchema():
                if format.json_schema is False:
                    raise ValueError("the schema `false` allows nothing.")
                schema = {} if format.json_schema is True else format.json_schema
                return self._rule("%json " + json.dumps(self._json_schema(schema)))
            case _Grammar():
                name = f"grammar_{next(self._numbers)}"
                self.grammars.append({"name": name, "grammar": format.grammar})
                return f"@{name}"
            case _Regex():
                escaped = {"/": "\\/", "\n": "\\n"}
                pattern = _IN_REGEX.sub(lambda found: escaped.get(found[1], found[0]), format.pattern)
                return self._rule(f"/{pattern}/", terminal=True)
            case _Sequence():
                if any(map(_is_unlimited, format.elements[:-1])):
                    raise ValueError("only the last element of a sequence may be without an end.")
                return " ".join(self._elements(format.elements, end))
            case _Or():
                if len(set(map(_is_unlimited, format.elements))) == 2:
                    raise ValueError("either all elements of an `or` are without an end, or none.")
                return self._rule(" | ".join(self._elements(format.elements, end)))
            case _Tag():
                return f"{self._text(format.begin)} {self._tag_rest(format)}"
            case _TagsWithSeparator():
                return self._tags_with_separator(format)
        return self._triggered_tags(format, end)

    def _elements(self, elements: Sequence[Any], end: str | None) -> list[str]:
        if not elements:
            raise ValueError("a sequence or an `or` needs at least one element.")
        return [self.expression(element, end) for element in elements]

    def _tag_rest(self, tag: _Tag) -> str:
        """Return the rule of a tag after its beginning, the same for each use."""
        if id(tag) not in self._tag_rests:
            if _is_unlimited(tag.content):
                if not tag.end:
                    raise ValueError("a tag whose content has no end needs an `end`.")
                body = self.expression(tag.content, tag.end)
            else:
                body = f"{self.expression(tag.content, None)} {self._text(tag.end)}"
            self._tag_rests[id(tag)] = self._rule(body)
        return self._tag_rests[id(tag)]

    def _tags_with_separator(self, format: _TagsWithSeparator) -> str:
        tag = self._any_tag(format.tags)
        some = tag if format.stop_after_first else f"{tag} ({self._text(format.separator)} {tag})*"
        return self._rule(some if format.at_least_one else f"({some})?")

    def _triggered_tags(self, format: _TriggeredTags, end: str | None) -> str:
        first = self._any_tag(format.tags)
        if format.at_least_one and format.stop_after_first:
            return first
        rests: dict[str, list[str]] = {trigger: [] for trigger in format.triggers}
        for tag in format.tags:
            triggers = [trigger for trigger in format.triggers if trigger and tag.begin.startswith(trigger)]
            if len(triggers) != 1:
                raise ValueError(
                    f"`begin` {shorten(tag.begin)} must start with exactly one of the triggers, "
                    f"{shorten(format.triggers)}."
                )
            begin = tag.begin[len(triggers[0]) :]
            if self._names(tag.begin) != self._names(triggers[0]) + self._names(begin):
                raise ValueError(
                    f"the trigger {shorten(triggers[0])} ends within a special token of {shorten(tag.begin)}."
                )
            rests[triggers[0]].append(f"{self._text(begin)} {self._tag_rest(tag)}")
        if unused := [trigger for trigger, found in rests.items() if not found]:
            raise ValueError(f"no tag begins with the trigger {shorten(unused[0])}.")
        triggered = [f"{self._text_until(trigger)} {self._rule(' | '.join(found))}" for trigger, found in rests.items()]
        some, rest = self._rule(" | ".join(triggered)), self._text_until(end)
        if format.stop_after_first:
            return self._rule(f"{some} {self._text(end or '')} | {rest}")
        return f"{first if format.at_least_one else ''} {some}* {rest}"

    def _any_tag(self, tags: Sequence[_Tag]) -> str:
        if not tags:
            raise ValueError("`tags` is empty.")
        return self._rule(" | ".join(self.expression(tag, None) for tag in tags))

    def _text_until(self, end: str | None) -> str:
        """Return the expression of any text up to the first `end`, which is part of it."""
        if not end:
            return _TEXT
        first, *rest = self._parts(end)
        if not first.startswith('"'):
            return " ".join((_TEXT, first, *rest))
        if rest:
            raise ValueError(
                f"{shorten(end)} has text before a special token, so it cannot be a trigger or the end of free text."
            )
        return self._rule(f"{_TEXT} {first}", attribute="[lazy]")

    def _text(self, text: str) -> str:
        return " ".join(self._parts(text))

    def _parts(self, text: str) -> list[str]:
        """Return a text as strings and special tokens."""
        names = self._names(text)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
        return [part if part in names else quoted(part) for part in parts if part]

    def _names(self, text: str) -> list[str]:
        """Return the names of special tokens in a text."""
        return [name for name in SPECIAL_TOKEN.findall(text) if self._is_special(name)]

    def _rule(self, body: str, attribute: str = "", terminal: bool = False) -> str:
        name = f"{'T' if terminal else 'r'}{next(self._numbers)}"
        self.rules.append(f"{name}{attribute}: {body}")
        return name

"""`TextReader`: a text that arrives in pieces, and the JSON values in it, for parsers that are written as generators.

A parser reads as if the whole text were there. Where it needs more, it yields; `ToolParser` resumes it with the next
piece of the answer. How the text was divided therefore never changes what is read. A value is passed on piece by piece,
in the form of `json.dumps(value, ensure_ascii=False)`: the arguments of a streamed call equal those of a complete one.

vLLM has no counterpart: its parsers parse the whole text again for each token, with `partial_json_parser`, and compare
the result with the one before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from typing import Any, TypeVar

__all__ = ["MalformedError", "Reading", "TextReader", "dump"]

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A reading that yields whenever it needs more text, and returns its result."""

_MAX_DEPTH = 100
"""Levels of lists and objects in a value; each is a generator in a chain that every piece of the text goes through."""
_SPACE = re.compile(r"\s*")
_SCALAR = re.compile(r"[\w+.\-]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB]")


class MalformedError(ValueError):
    """The text at the reader's position is not of the expected form, or ends too early."""


class TextReader:
    """A growing text, and the position up to which it has been read."""

    def __init__(self) -> None:
        self.text = ""
        self.position = 0
        self.mark: int | None = None
        """Earlier position from which the text is kept, to be read otherwise."""
        self.ended = False

    def feed(self, text: str, *, ended: bool) -> None:
        """Add a piece of text; `ended` if it is the last one."""
        kept = self.position if self.mark is None else self.mark
        self.text = self.text[kept:] + text
        self.position -= kept
        self.mark = None if self.mark is None else 0
        self.ended = ended

    def take(self, end: int) -> str:
        """Return the text from the position up to `end`, which becomes the position."""
        start, self.position = self.position, end
        return self.text[start:end]

    def lookahead(self, count: int) -> Reading[str]:
        """Return the next `count` characters; fewer only at the end of the text. The position stays."""
        while len(self.text) - self.position < count and not self.ended:
            yield
        return self.text[self.position : self.position + count]

    def run(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Read the longest run of characters; `pattern` matches any number of them."""
        found = []
        while True:
            match = pattern.match(self.text, self.position)
            assert match is not None
            found.append(self.take(match.end()))
            if self.position < len(self.text) or self.ended:
                return "".join(found)
            yield

    def skip_space(self) -> Reading[str]:
        """Skip white space. Return the next character, or an empty string at the end."""
        yield from self.run(_SPACE)
        return (yield from self.lookahead(1))

    def expect(self, text: str) -> Reading[None]:
        """Read this text, after white space.

        Raises:
            MalformedError: There is another text.
        """
        yield from self.skip_space()
        if (yield from self.lookahead(len(text))) != text:
            raise MalformedError(f"expected {text}")
        self.position += len(text)

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def json_value(self, write: Callable[[str], object], depth: int = _MAX_DEPTH) -> Reading[None]:
        """Read a JSON value, and pass its text to `write` as it comes.

        Raises:
            MalformedError: The text is not JSON, ends early, or has more than 100 levels.
        """
        char = yield from self.skip_space()
        if char == '"':
            yield from self._string(write)
        elif char and char in "{[":
            if not depth:
                raise MalformedError("nested too deep")
            yield from self._items(write, "]" if char == "[" else "}", depth)
        else:
            write(_scalar((yield from self.run(_SCALAR))))

    def json_string(self) -> Reading[str]:
        """Read a JSON string, after white space, and return what it stands for.

        Raises:
            MalformedError: The text is no JSON string, or has half a surrogate pair, which UTF-8 cannot encode.
        """
        parts: list[str] = []
        yield from self.skip_space()
        yield from self._string(parts.append)
        value: str = json.loads("".join(parts))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MalformedError("half a surrogate pair") from None
        return value

    def _items(self, write: Callable[[str], object], close: str, depth: int) -> Reading[None]:
        write(self.take(self.position + 1))
        if (yield from self.skip_space()) != close:
            while True:
                if close == "}":
                    yield from self.skip_space()
                    yield from self._string(write)
                    yield from self.expect(":")
                    write(": ")
                yield from self.json_value(write, depth - 1)
                if (yield from self.skip_space()) != ",":
                    break
                self.position += 1
                write(", ")
        yield from self.expect(close)
        write(close)

    def _string(self, write: Callable[[str], object]) -> Reading[None]:
        if (yield from self.lookahead(1)) != '"':
            raise MalformedError("expected a string")
        write(self.take(self.position + 1))
        while True:
            char = yield from self.lookahead(1)
            if char == '"':
                write(self.take(self.position + 1))
                return
            if char == "\\":
                write((yield from self._escape()))
                continue
            match = _PLAIN.match(self.text, self.position)
            assert match is not None
            if not match.group():
                raise MalformedError("a string without its end, or with a control character")
            write(self.take(match.end()))

    def _escape(self) -> Reading[str]:
        """Read an escaped character, such as `\\u00e9`, or a pair of surrogates; return it as `dump` writes it."""
        raw = yield from self.lookahead(2)
        if raw == r"\u":
            raw = yield from self.lookahead(6)
        if _HIGH_SURROGATE.match(raw) and (yield from self.lookahead(8))[6:] == r"\u":
            pair = yield from self.lookahead(12)
            if re.fullmatch(r"\\u[dD][c-fC-F]..", pair[6:]):
                raw = pair
        try:
            value = json.loads(f'"{raw}"')
        except ValueError:
            raise MalformedError(f"the escape {raw}") from None
        self.position += len(raw)
        return dump(value)[1:-1]


def dump(value: Any) -> str:
    """Return a value as JSON, as vLLM writes arguments; with half a surrogate pair, which is no text, as ASCII.

    Raises:
        TypeError: JSON has no such value.
    """
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _scalar(text: str) -> str:
    """Return a number or a literal as `json.dumps` writes it."""
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        raise MalformedError(f"{text[:20]!r} is not JSON") from None

"""`PythonicToolParser`: calls as Llama 3.2 and 4 write them in Python, `[weather(city="Paris"), time()]`.

vLLM: vllm/entrypoints/openai/tool_parsers/pythonic_tool_parser.py::PythonicToolParser. There arguments are streamed
character by character; here each one when it is complete.
"""

import ast
import re
import warnings

from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.text_reader import MalformedError, Reading, dump

__all__ = ["PythonicToolParser"]

_WORD = re.compile(r"\w*")
_NAME = re.compile(r"[A-Za-z]\w*")
_PARAMETER = re.compile(r"[^\W\d]\w*")
_PLAIN = re.compile(r"""[^"'()\[\]{},]*""")
_IN_STRING = re.compile(r"""[^"'\\]*""")


class PythonicToolParser(ToolParser):
    """Parser of lists of calls with literals as keyword arguments, at the beginning of the text."""

    def _read(self) -> Reading[None]:
        while (yield from self._starts_list()):
            try:
                yield from self._list()
            except MalformedError:
                self._give_up()
                break
        yield from self._text_until(())

    def _starts_list(self) -> Reading[bool]:
        self.reader.mark = self.reader.position
        if (yield from self.reader.skip_space()) == "[":
            return True
        self._give_up()
        return False

    def _list(self) -> Reading[None]:
        reader = self.reader
        reader.position += 1
        yield from reader.skip_space()
        while True:
            yield from self._call()
            if (yield from reader.skip_space()) != ",":
                break
            reader.mark = reader.position
            reader.position += 1
            if (yield from reader.skip_space()) == "]":
                break
        yield from reader.expect("]")
        reader.mark = None

    def _call(self) -> Reading[None]:
        """Read a call, `name(parameter=literal, ...)`."""
        reader = self.reader
        name = yield from reader.run(_WORD)
        if not _NAME.fullmatch(name):
            raise MalformedError("expected a function's name")
        yield from reader.expect("(")
        opening = "{"
        while (yield from reader.skip_space()) != ")":
            parameter = yield from reader.run(_WORD)
            if not _PARAMETER.fullmatch(parameter):
                raise MalformedError("expected a parameter's name")
            yield from reader.expect("=")
            value = yield from self._literal()
            if opening == "{":
                self._begin_call(name)
            self._add_arguments(f"{opening}{dump(parameter)}: {value}")
            opening = ", "
            if (yield from reader.skip_space()) == ",":
                reader.position += 1
        reader.position += 1
        if opening == "{":
            self._begin_call(name)
            self._add_arguments("{")
        self._add_arguments("}")
        self._end_call()

    def _literal(self) -> Reading[str]:
        """Read a literal up to a comma or a parenthesis outside of it, and return it as JSON."""
        reader = self.reader
        parts: list[str] = []
        depth = 0
        while True:
            parts.append((yield from reader.run(_PLAIN)))
            char = yield from reader.lookahead(1)
            if not char:
                raise MalformedError("the end of the text")
            if not depth and char in ",)":
                break
            if char in "\"'":
                yield from self._string(parts)
                continue
            depth += (char in "([{") - (char in ")]}")
            if depth < 0:
                raise MalformedError("a bracket too many")
            parts.append(reader.take(reader.position + 1))
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes such as "\d"
                return dump(ast.literal_eval("".join(parts).strip()))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise MalformedError("not a literal") from None

    def _string(self, parts: list[str]) -> Reading[None]:
        """Read a string with its quotes, of which there may be three."""
        reader = self.reader
        quote = yield from reader.lookahead(3)
        quote = quote if quote in ("'''", '"""') else quote[0]
        parts.append(reader.take(reader.position + len(quote)))
        while True:
            parts.append((yield from reader.run(_IN_STRING)))
            following = yield from reader.lookahead(len(quote))
            if following == quote:
                break
            if not following:
                raise MalformedError("a string without its end")
            length = 2 if following[0] == "\\" else 1
            yield from reader.lookahead(length)
            parts.append(reader.take(min(reader.position + length, len(reader.text))))
        parts.append(reader.take(reader.position + len(quote)))

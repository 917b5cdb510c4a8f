"""Every text shown to people, in English and Chinese.

Each module here and in the subpackages holds the texts of one part of the program, as two dicts with the same keys,
`EN` and `ZH`. A key starts with the part's name: `console.step`, `html.requests`. A text names the values it needs as
`str.format` does, and where English counts, `{n:request|requests}` reads "1 request", "1,024 requests".

vLLM has no counterpart: its log is English only.
"""

import importlib
import pkgutil
from functools import cache
from string import Formatter
from typing import Any, Literal, get_args

__all__ = ["LANGUAGES", "Language", "text", "texts"]

Language = Literal["en", "zh"]
"""A language that texts exist in."""

LANGUAGES: tuple[Language, ...] = get_args(Language)
"""English and Chinese, as `--lang` takes them."""


class _Counting(Formatter):
    """`str.format`, with `{n:one|many}` for a number and the noun that fits it."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if "|" in format_spec:
            one, many = format_spec.split("|")
            return f"{value:,} {one if value == 1 else many}"
        return str(super().format_field(value, format_spec))


_FORMATTER = _Counting()


@cache
def texts(lang: str) -> dict[str, str]:
    """Return every text of one language by its key.

    Raises:
        ValueError: `lang` is not one of LANGUAGES, or two modules use one key.
    """
    if lang not in LANGUAGES:
        raise ValueError(f"no texts in language {lang!r}: choose one of {', '.join(LANGUAGES)}")
    merged: dict[str, str] = {}
    for found in pkgutil.walk_packages(__path__, f"{__name__}."):
        if found.ispkg:
            continue
        part: dict[str, str] = getattr(importlib.import_module(found.name), lang.upper())
        if twice := merged.keys() & part.keys():
            raise ValueError(f"texts used by two modules, {found.name} the second: {', '.join(sorted(twice))}")
        merged.update(part)
    return merged


def text(lang: str, key: str, **values: Any) -> str:
    """Return the text `key` in a language, with its values filled in.

    Raises:
        KeyError: there is no such text, or a value that it names was not given.
        ValueError: `lang` is not one of LANGUAGES.
    """
    template = texts(lang)[key]
    return _FORMATTER.vformat(template, (), values) if "{" in template else template

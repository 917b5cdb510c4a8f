"""One exchange: a request, the call that it needs with its result, and the answer; and helpers of all subjects."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.corpus.sample import Lang

__all__ = ["Call", "Exchange", "as_json", "is_sentence", "sentence"]


@dataclass(frozen=True)
class Call:
    """A call of a tool, and the text that the tool returns."""

    name: str
    arguments: Mapping[str, Any]
    result: str = ""


@dataclass(frozen=True)
class Exchange:
    """A request with its answer.

    Attributes:
        subject: ``weather``, ``calculator``, ``clock`` or ``none``.
        lang: language of the request's phrasing.
        request: the user's message.
        call: the call to make; None if the answer needs no tool.
        answer: the assistant's last message.
    """

    subject: str
    lang: Lang
    request: str
    call: Call | None
    answer: str


def as_json(rng: random.Random, value: Mapping[str, Any]) -> str:
    """Return `value` as a client writes it, with or without spaces and line breaks, and without escapes."""
    separators = (",", ":") if rng.random() < 0.2 else None
    indent = 2 if rng.random() < 0.06 else None
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)


def is_sentence(text: str) -> bool:
    """Return whether a result is a sentence, which the model repeats as it is."""
    return text.endswith((".", "!", "。", "！"))


def sentence(lang: Lang, text: str) -> str:
    """Return `text` with a full stop."""
    return text + ("." if lang == "en" else "。")

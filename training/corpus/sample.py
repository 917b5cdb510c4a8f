"""One training example, and the tools that every subject file writes its examples with.

A `Sample` is a prompt and the text that must follow it. Subjects produce clean samples; `noise` roughens a prompt the
way people do; `corpus/render.py` lays the sample out as raw text or as a chat.

What is held out is decided here and nowhere else, by a hash: some *phrasings* (a template after its alternatives were
chosen), some *combinations* of a phrasing and a fact, and whatever a subject marks itself (some sums). A held-out
sample is never trained on and is what `training/evaluate.py` asks.
"""

import random
import re
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

__all__ = ["Lang", "Sample", "ask", "canonical", "expand", "is_held_out", "noise", "say"]

Lang = Literal["en", "zh"]
Form = Literal["question", "completion", "dialogue"]

HELD_OUT_PHRASINGS = 0.06
HELD_OUT_COMBINATIONS = 0.04

_CHOICE = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and what must follow it.

    Attributes:
        subject: the file that made it, such as ``geography``.
        lang: language of the prompt and of the answer.
        form: ``question`` (can be asked in a chat), ``completion`` (a text to be continued) or ``dialogue``
            (several turns).
        prompt: what is asked, or how the text begins.
        answer: what must follow, without the separator and without an end mark.
        key: the part of the answer that makes it right; the whole answer when empty.
        held_out: never trained on, only evaluated.
        turns: earlier (question, answer) pairs of a dialogue.
    """

    subject: str
    lang: Lang
    form: Form
    prompt: str
    answer: str
    key: str = ""
    held_out: bool = False
    turns: tuple[tuple[str, str], ...] = ()


def is_held_out(name: str, share: float) -> bool:
    """Whether `name` falls into the `share` (0 to 1) that is kept out of training; the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) / 2**32 < share


def expand(rng: random.Random, template: str) -> str:
    """`template` with each ``[a|b|c]`` replaced by one of its alternatives; alternatives may nest."""
    while "[" in template:
        template = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    return template


def canonical(template: str) -> str:
    """`template` with the first of all alternatives: the phrasing that is always trained on."""
    while "[" in template:
        template = _CHOICE.sub(lambda match: match[1].split("|")[0], template)
    return template


def ask(
    rng: random.Random,
    subject: str,
    lang: Lang,
    templates: list[str],
    answer: str,
    *,
    key: str = "",
    form: Form = "question",
    held_out: bool = False,
    **fields: object,
) -> Sample:
    """A sample from one of `templates`, with ``{name}`` filled from `fields`.

    Half of the time it is the canonical phrasing of the template, so that the plain question is the best known one.
    """
    template = rng.choice(templates)
    plain = canonical(template)
    phrasing = plain if rng.random() < 0.3 else expand(rng, template)
    prompt = phrasing.format(**fields) if fields else phrasing
    if phrasing != plain:
        held_out = (
            held_out
            or is_held_out(f"{subject}:{phrasing}", HELD_OUT_PHRASINGS)
            or is_held_out(f"{subject}:{prompt}", HELD_OUT_COMBINATIONS)
        )
    return Sample(subject, lang, form, prompt, answer, key, held_out)


def say(rng: random.Random, subject: str, lang: Lang, templates: list[str], answer: str, **kwargs: object) -> Sample:
    """A sample whose prompt is the beginning of a sentence and whose answer is the rest of it."""
    return ask(rng, subject, lang, templates, answer, form="completion", **kwargs)  # type: ignore[arg-type]


_POLITE = {
    "en": (
        "Please tell me: ",
        "Hey, ",
        "Hi, ",
        "Hello, ",
        "Quick question: ",
        "Can you tell me, ",
        "I wonder, ",
        "So, ",
        "OK, ",
    ),
    "zh": ("请问", "你好，", "请告诉我，", "我想知道", "问一下，", "麻烦问一下，", "那么，"),
}


def _typo(rng: random.Random, text: str) -> str:
    """`text` with two neighbouring letters exchanged, or one left out, inside a word."""
    places = [i for i in range(1, len(text) - 2) if text[i - 1 : i + 3].isascii() and text[i - 1 : i + 3].isalpha()]
    if not places:
        return text
    i = rng.choice(places)
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :] if rng.random() < 0.5 else text[:i] + text[i + 1 :]


def noise(rng: random.Random, sample: Sample) -> Sample:
    """`sample` with its prompt written the way people type: case, punctuation, politeness, rarely a typo."""
    text = sample.prompt
    question = sample.form == "question"
    if question and rng.random() < 0.06:
        opening = rng.choice(_POLITE[sample.lang])
        text = opening + (text[0].lower() + text[1:] if text[:2] != "I " and rng.random() < 0.8 else text)
    if question and rng.random() < 0.04:
        text = text.rstrip("?.!？。！") + (" please?" if sample.lang == "en" else "，谢谢")
    roll = rng.random()
    if roll < 0.12:
        text = text.lower()
    elif roll < 0.135:
        text = text.upper()
    if question:
        roll = rng.random()
        if roll < 0.14:
            text = text.rstrip("?.!？。！")
        elif roll < 0.20 and sample.lang == "zh":
            text = text.replace("？", "?").replace("，", ",").replace("。", ".")
        elif roll < 0.22:
            text = text.rstrip("?？.。") + rng.choice(("??", " ?", "?", "。", ".", "？", "!"))
    if sample.lang == "en" and rng.random() < 0.02 and not any(c.isdigit() for c in text):
        text = _typo(rng, text)
    if rng.random() < 0.01:
        text = text.replace(" ", "  ", 1)
    return replace(sample, prompt=text)

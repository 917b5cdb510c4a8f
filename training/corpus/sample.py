"""Training examples, and the functions with which each subject's module makes them.

A `Sample` is a prompt and its right continuation. Subjects return clean samples, `noise` varies a prompt as people
would, and `corpus/render.py` writes the sample as raw text or as a chat.

A hash decides here which samples are held out of the training, for `training/evaluate.py`: some *phrasings* (a template
after the choice of alternatives) and some *combinations* of a phrasing and a fact. Subjects mark others, such as some
sums.
"""

import random
import re
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

__all__ = ["Lang", "Sample", "canonical", "expand", "is_held_out", "make_completion", "make_question", "noise"]

Lang = Literal["en", "zh"]
Form = Literal["question", "completion", "dialogue"]

HELD_OUT_PHRASINGS = 0.06
HELD_OUT_COMBINATIONS = 0.04

_CHOICE = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and its right continuation.

    Attributes:
        subject: the module that made it, such as ``geography``.
        lang: language of the prompt and of the answer.
        form: ``question`` (suits a chat), ``completion`` (a text to continue) or ``dialogue`` (several turns).
        prompt: the question, or the beginning of the text.
        answer: the continuation, without a separator or an end token.
        key: the part that a right answer must have; if empty, the whole answer.
        held_out: only evaluated, never trained on.
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
    """Return whether `name` is in the `share` (0 to 1) held out of training; the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) / 2**32 < share


def expand(rng: random.Random, template: str) -> str:
    """Return `template` with each ``[a|b|c]`` replaced by a random alternative; alternatives may nest."""
    while "[" in template:
        template = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    return template


def canonical(template: str) -> str:
    """Return `template` with the first alternatives: the phrasing that is never held out."""
    while "[" in template:
        template = _CHOICE.sub(lambda match: match[1].split("|")[0], template)
    return template


def make_question(
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
    """Return a sample from one of `templates`, with ``{name}`` filled from `fields`.

    The canonical phrasing of the template is the most frequent one.
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


def make_completion(
    rng: random.Random, subject: str, lang: Lang, templates: list[str], answer: str, **kwargs: object
) -> Sample:
    """Return a sample with the beginning of a sentence as the prompt and its rest as the answer."""
    return make_question(rng, subject, lang, templates, answer, form="completion", **kwargs)  # type: ignore[arg-type]


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
    """Return `text` with two neighbouring letters exchanged, or one removed, inside a word."""
    indexes = [i for i in range(1, len(text) - 2) if text[i - 1 : i + 3].isascii() and text[i - 1 : i + 3].isalpha()]
    if not indexes:
        return text
    i = rng.choice(indexes)
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :] if rng.random() < 0.5 else text[:i] + text[i + 1 :]


def noise(rng: random.Random, sample: Sample) -> Sample:
    """Return `sample` with variations of its prompt as people type: case, punctuation, politeness, rarely a typo."""
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

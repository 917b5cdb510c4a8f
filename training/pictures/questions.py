"""Questions about a scene with their answers, in English and Chinese.

There are five subjects: number, colour, shape, digit and place. An answer repeats the question's noun and does not
depend on its phrasing.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .scene import COLOURS, DIGITS, SHAPES, Scene, Thing

__all__ = ["LANGUAGES", "SUBJECTS", "Question", "ask", "ask_any"]

SUBJECTS = ("number", "colour", "shape", "digit", "place")
LANGUAGES = ("en", "zh")

_NUMBERS = {
    "en": ("no", "one", "two", "three", "four", "five", "six"),
    "zh": ("没有", "有一个", "有两个", "有三个", "有四个", "有五个", "有六个"),
}
_ZH = {
    "circle": "圆形", "square": "正方形", "triangle": "三角形", "star": "五角星", "cross": "十字", "thing": "东西",
    "red": "红色", "green": "绿色", "blue": "蓝色", "yellow": "黄色", "purple": "紫色", "black": "黑色",
}  # fmt: skip
_PLACES = {
    "en": (
        ("at the top left", "at the top", "at the top right"),
        ("on the left", "in the centre", "on the right"),
        ("at the bottom left", "at the bottom", "at the bottom right"),
    ),
    "zh": (("左上角", "上方", "右上角"), ("左边", "中间", "右边"), ("左下角", "下方", "右下角")),
}
_PLACE_MARGIN = 8.0
"""Pixels between a thing whose place is asked for and the edge of its third. Nearer ones have two right answers."""

_PHRASINGS = {
    ("number", "en"): (
        "How many {many} are there?",
        "How many {many} are in the picture?",
        "Count the {many}.",
        "What is the number of {many}?",
    ),
    ("number", "zh"): ("图中有几个{many}？", "有多少个{many}？", "数一数{many}。", "图里{many}有几个？"),
    ("colour", "en"): (
        "What colour is the {noun}?",
        "What color is the {noun}?",
        "Which colour does the {noun} have?",
        "Tell me the colour of the {noun}.",
    ),
    ("colour", "zh"): ("{noun}是什么颜色？", "{noun}是什么颜色的？", "图中的{noun}是什么颜色？", "说出{noun}的颜色。"),
    ("shape", "en"): (
        "What shape is the {noun}?",
        "What is the {noun}?",
        "Which shape does the {noun} have?",
        "Tell me the shape of the {noun}.",
    ),
    ("shape", "zh"): ("{noun}是什么形状？", "{noun}是什么？", "图中的{noun}是什么形状？", "说出{noun}的形状。"),
    ("digit", "en"): (
        "Which digit is in the picture?",
        "What digit is there?",
        "What digit do you see?",
        "Read the digit.",
    ),
    ("digit", "zh"): ("图中的数字是几？", "图里是哪个数字？", "你看到了哪个数字？", "读出数字。"),
    ("place", "en"): (
        "Where is the {noun}?",
        "Where is the {noun} in the picture?",
        "Where do you see the {noun}?",
        "Tell me the place of the {noun}.",
    ),
    ("place", "zh"): ("{noun}在哪里？", "{noun}在图中的哪里？", "图中的{noun}在什么位置？", "说出{noun}的位置。"),
}
_ANSWERS = {
    ("number", "en"): "There {are} {count} {counted}.",
    ("number", "zh"): "图中{count}{counted}。",
    ("colour", "en"): "The {noun} is {colour}.",
    ("colour", "zh"): "{noun}是{colour}的。",
    ("shape", "en"): "The {noun} is a {shape}.",
    ("shape", "zh"): "{noun}是{shape}。",
    ("digit", "en"): "The digit is {digit}.",
    ("digit", "zh"): "数字是{digit}。",
    ("place", "en"): "The {noun} is {place}.",
    ("place", "zh"): "{noun}在{place}。",
}


Found: TypeAlias = tuple[list[Thing], dict[str, str]]
"""Things that an answer is about, and the words of question and answer."""


class Question(NamedTuple):
    """A question about a picture, and its answer.

    Attributes:
        subject: one of `SUBJECTS`.
        lang: "en" or "zh".
        text: question.
        answer: right answer.
        things: those that the answer is about: the counted ones, or the only one of its description.
    """

    subject: str
    lang: str
    text: str
    answer: str
    things: tuple[Thing, ...]


def ask_any(scene: Scene, rng: random.Random, lang: str) -> Question:
    """Return a question about any subject of which `scene` has one; there is always a number to ask for."""
    subjects = rng.sample(SUBJECTS, len(SUBJECTS))
    return next(question for subject in subjects if (question := ask(scene, rng, lang, subject)))


def ask(scene: Scene, rng: random.Random, lang: str, subject: str) -> Question | None:
    """Return a question about `subject`; None if there is none with one right answer."""
    if (found := _FACTS[subject](scene, rng, lang)) is None:
        return None
    things, words = found
    phrasing = rng.choice(_PHRASINGS[subject, lang])
    answer = _ANSWERS[subject, lang].format(**words)
    return Question(subject, lang, phrasing.format(**words), answer, tuple(things))


def _noun(lang: str, kind: str = "thing", colour: str = "", plural: bool = False) -> str:
    """Return the noun of a description, such as "red circles" or "红色的圆形"."""
    if lang == "zh":
        return (f"{_ZH[colour]}的" if colour else "") + (f"数字{kind}" if kind in DIGITS else _ZH[kind])
    ending = "" if not plural else "es" if kind == "cross" else "s"
    return (f"{colour} " if colour else "") + kind + ending


def _number(scene: Scene, rng: random.Random, lang: str) -> Found:
    """Return the facts of a question for a number: of things, of one kind, one colour, or both."""
    colour = rng.choice(COLOURS) if rng.random() < 0.2 else rng.choice(scene.things).colour
    shapes = [t.kind for t in scene.things if t.kind in SHAPES]
    shape = rng.choice(SHAPES) if not shapes or rng.random() < 0.2 else rng.choice(shapes)
    kind, colour = rng.choice((("thing", ""), ("thing", colour), (shape, ""), (shape, colour), (shape, colour)))
    counted = [t for t in scene.things if kind in ("thing", t.kind) and colour in ("", t.colour)]
    return counted, {
        "many": _noun(lang, kind, colour, plural=True),
        "are": "is" if len(counted) == 1 else "are",
        "count": _NUMBERS[lang][len(counted)],
        "counted": _noun(lang, kind, colour, plural=len(counted) != 1),
    }


def _only(scene: Scene, key: Callable[[Thing], object]) -> list[Thing]:
    """Return the things whose `key` no other thing has."""
    counts = Counter(key(t) for t in scene.things)
    return [t for t in scene.things if counts[key(t)] == 1]


def _colour(scene: Scene, rng: random.Random, lang: str) -> Found | None:
    if not (things := _only(scene, lambda t: t.kind)):
        return None
    thing = rng.choice(things)
    return [thing], {"noun": _noun(lang, thing.kind), "colour": thing.colour if lang == "en" else _ZH[thing.colour]}


def _shape(scene: Scene, rng: random.Random, lang: str) -> Found | None:
    if not (things := [t for t in _only(scene, lambda t: t.colour) if t.kind in SHAPES]):
        return None
    thing = rng.choice(things)
    return [thing], {"noun": _noun(lang, "thing", thing.colour), "shape": _noun(lang, thing.kind)}


def _digit(scene: Scene, rng: random.Random, lang: str) -> Found | None:
    digits = [t for t in scene.things if t.kind in DIGITS]
    return (digits, {"digit": digits[0].kind}) if len(digits) == 1 else None


def _place(scene: Scene, rng: random.Random, lang: str) -> Found | None:
    things = [t for t in _only(scene, lambda t: (t.kind, t.colour)) if not scene.is_near_edge(t, _PLACE_MARGIN)]
    if not things:
        return None
    thing = rng.choice(things)
    row, column = scene.place(thing)
    return [thing], {"noun": _noun(lang, thing.kind, thing.colour), "place": _PLACES[lang][row][column]}


_FACTS: dict[str, Callable[[Scene, random.Random, str], Found | None]] = {
    "number": _number,
    "colour": _colour,
    "shape": _shape,
    "digit": _digit,
    "place": _place,
}

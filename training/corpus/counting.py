"""Counting: up, down, in steps and in words, what comes next, days, months, letters; in English and Chinese."""

# ruff: noqa: E501, SIM905 - tables: one row, one line; word lists are read more easily as one string

import random
from collections.abc import Callable

from .numbers import chinese, english
from .sample import Lang, Sample, make_completion, make_question

__all__ = ["draw"]

_S = "counting"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
SEASONS = ["spring", "summer", "autumn", "winter"]
DAYS_ZH = [f"星期{c}" for c in "一二三四五六日"]
MONTHS_ZH = [f"{chinese(i)}月" for i in range(1, 13)]
SEASONS_ZH = ["春天", "夏天", "秋天", "冬天"]


def _count(rng: random.Random) -> Sample:
    first = 1 if rng.random() < 0.75 else rng.randint(0, 12)
    last = first + rng.choice((2, 3, 4, 4, 5, 7, 9, 9, 9, 11, 14, 19))
    down = rng.random() < 0.12
    numbers = list(range(first, last + 1))
    a, b = (last, first) if down else (first, last)
    if down:
        numbers.reverse()
    roll = rng.random()
    if roll < 0.52:
        words = not down and rng.random() < 0.12
        answer = ", ".join(map(english if words else str, numbers))
        if words:
            templates = ["Count from {a} to {b} in words.", "[Write|Say|Spell] the numbers from {a} to {b} in words."]
        elif down:
            templates = [
                "Count down from {a} to {b}.",
                "[Count backwards from {a} to {b}.|Count from {a} down to {b}.]",
            ]
        else:
            templates = [
                "Count from {a} to {b}.",
                "[Count|Please count|Can you count|Could you count|Count up|Help me count] [from {a} to {b}|numbers from {a} to {b}][.|?]",
                "[List|Write|Say|Give me|Tell me|Print] [the|all the|] numbers [from {a} to {b}|between {a} and {b}].",
                *(
                    ["Count to {b}.", "[Can you count|Please count|Count up|Can you count up] to {b}[?|.]"]
                    * (first == 1)
                ),
            ]
        if not words and rng.random() < 0.15:
            a, b = english(a), english(b)  # type: ignore[assignment]
        return make_question(rng, _S, "en", templates, answer + ".", a=a, b=b)
    words = not down and rng.random() < 0.25
    answer = "、".join(map(chinese if words else str, numbers))
    if words:
        a, b = chinese(a), chinese(b)  # type: ignore[assignment]
    if down:
        templates = ["从{a}倒数到{b}。", "[请|]从{a}倒着数到{b}。"]
    else:
        templates = [
            "从{a}数到{b}。",
            "[请|请你|你能|帮我|]从{a}[数|数数|开始数]到{b}[。|？|]",
            "[写出|列出|说出|请写出|数一数][从|]{a}到{b}的[数字|所有数字|数][。|]",
        ]
    return make_question(rng, _S, "zh", templates, answer + "。", a=a, b=b)


def _sequence(rng: random.Random) -> Sample:
    """Return the beginning of a sequence of numbers, with the next ones as answer."""
    step = rng.choices((1, 2, 5, 10, 3), (60, 15, 8, 9, 8))[0]
    start = step if rng.random() < 0.7 else rng.randint(1, 10)
    shown, more = rng.randint(2, 6), rng.choice((3, 4, 5, 6))
    numbers = [start + step * i for i in range(shown + more)]
    if numbers[-1] > 99:
        return _sequence(rng)
    roll = rng.random()
    spell: Callable[[int], str] = str
    comma, end = ", ", "."
    lang: Lang = "en"
    if roll < 0.12 and step == 1:
        spell = english
    elif roll < 0.30:
        lang, comma, end = "zh", "、", "。"
        if step == 1 and rng.random() < 0.6:
            spell = chinese
    words = [spell(n) for n in numbers]
    mark = "," if lang == "en" else "、"
    prompt = comma.join(words[:shown])
    rest = comma.join(words[shown:]) + end
    if rng.random() < 0.6:
        return Sample(_S, lang, "completion", prompt + mark, rest, spell(numbers[shown]))
    if lang == "en":
        templates = [
            "What comes next: {s}?",
            "[What number comes next|What is the next number|Continue|Complete the sequence|Which number follows|Continue the sequence]: {s}[?|, ...]",
        ]
        return make_question(
            rng, _S, "en", templates, f"The next number is {words[shown]}.", key=f" {words[shown]}.", s=prompt
        )
    templates = ["{s}，下一个数是什么？", "{s}[后面|之后|下面][是|应该是][什么|几|多少]？"]
    return make_question(rng, _S, "zh", templates, f"下一个数是{words[shown]}。", key=f"是{words[shown]}。", s=prompt)


def _neighbour(rng: random.Random) -> Sample:
    n = rng.randint(1, 20) if rng.random() < 0.8 else rng.randint(21, 98)
    after = rng.random() < 0.65
    result = n + 1 if after else n - 1
    if rng.random() < 0.5:
        relation = "after" if after else "before"
        templates = [
            "What number comes {w} {n}?",
            "[What comes {w} {n}?|Which number is right {w} {n}?|What is the number {w} {n}?|Which number comes {w} {n}?]",
        ]
        return make_question(
            rng, _S, "en", templates, f"{result} comes {relation} {n}.", key=f"{result} ", w=relation, n=n
        )
    relation = "后面" if after else "前面"
    templates = ["{n}{w}是几？", "{n}的{w}[是几|是什么数|是哪个数|是多少]？"]
    return make_question(rng, _S, "zh", templates, f"{n}{relation}是{result}。", key=f"是{result}。", w=relation, n=n)


_ROWS = (
    (DAYS, DAYS_ZH, "days of the week", "一周的每一天", "day", "天"),
    (MONTHS, MONTHS_ZH, "months of the year", "一年的月份", "month", "月"),
    (SEASONS, SEASONS_ZH, "seasons", "四个季节", "season", "季节"),
)


def _named_row(rng: random.Random) -> Sample:
    row, row_zh, name, name_zh, one, one_zh = rng.choices(_ROWS, (5, 4, 3))[0]
    roll = rng.random()
    i = rng.randrange(len(row))
    after, after_zh = row[(i + 1) % len(row)], row_zh[(i + 1) % len(row)]
    if roll < 0.14:
        templates = ["What are the {n}?", "[List|Name|Tell me|Say|What are] [the|all the] {n}[.|]"]
        return make_question(rng, _S, "en", templates, f"{', '.join(row[:-1])} and {row[-1]}.", n=name)
    if roll < 0.26:
        templates = ["How many {n} are there?", "[Do you know how|How] many {n} are there[ in all|]?"]
        return make_question(
            rng, _S, "en", templates, f"There are {english(len(row))} {name}.", key=english(len(row)), n=name
        )
    if roll < 0.42:
        templates = [
            "[What|Which] {o} comes after {d}?",
            "What comes after {d}?",
            "[What is the {o} after|Which {o} follows] {d}?",
        ]
        return make_question(
            rng,
            _S,
            "en",
            templates,
            f"{after[0].upper() + after[1:]} comes after {row[i]}.",
            key=after,
            o=one,
            d=row[i],
        )
    if roll < 0.55:
        start = ", ".join(row[: rng.randint(2, 3)])
        rest = row[start.count(",") + 1 :]
        return Sample(_S, "en", "completion", start[0].upper() + start[1:] + ",", ", ".join(rest) + ".", rest[0])
    if roll < 0.70:
        return make_question(
            rng, _S, "zh", ["[请|]列出{n}。", "{n}[有哪些|是什么|都有什么]？"], "、".join(row_zh) + "。", n=name_zh
        )
    if roll < 0.85:
        return make_question(
            rng,
            _S,
            "zh",
            ["{d}[后面|之后|的后面|过后]是[什么|哪个{o}|哪{o}]？", "{d}的下一[个|]{o}是什么？"],
            f"{row_zh[i]}后面是{after_zh}。",
            key=after_zh,
            d=row_zh[i],
            o=one_zh,
        )
    start_zh = row_zh[: rng.randint(2, 3)]
    return Sample(
        _S,
        "zh",
        "completion",
        "、".join(start_zh) + "、",
        "、".join(row_zh[len(start_zh) :]) + "。",
        row_zh[len(start_zh)],
    )


def _letters(rng: random.Random) -> Sample:
    alphabet = [chr(65 + i) for i in range(26)]
    roll = rng.random()
    if roll < 0.35:
        return make_question(
            rng,
            _S,
            "en",
            ["[Say|Recite|Write|List|What is|Tell me] the [English |]alphabet[.|]"],
            ", ".join(alphabet) + ".",
        )
    if roll < 0.65:
        i, shown = rng.randrange(20), rng.randint(2, 4)
        row = alphabet[i : i + shown + 6]
        return make_completion(
            rng, _S, "en", [", ".join(row[:shown]) + ","], ", ".join(row[shown:]) + ".", key=row[shown]
        )
    i = rng.randrange(25)
    templates = ["[What|Which] letter comes after {x}?", "What comes after the letter {x}?"]
    return make_question(
        rng,
        _S,
        "en",
        templates,
        f"{alphabet[i + 1]} comes after {alphabet[i]}.",
        key=f"{alphabet[i + 1]} comes",
        x=alphabet[i],
    )


def draw(rng: random.Random) -> Sample:
    """Return one sample of counting."""
    return rng.choices((_count, _sequence, _neighbour, _named_row, _letters), (50, 18, 10, 17, 5))[0](rng)

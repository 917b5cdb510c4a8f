"""Small sums: addition, subtraction, multiplication, division, comparison, even and odd, as symbols, words and stories.

Operands are at most 20, sometimes 99 for addition and subtraction, and 12 for multiplication; results are not negative.
One sum in ten is held out in every phrasing and both languages, so a right answer to it was computed, not remembered.
"""

# ruff: noqa: E501 - templates: one phrasing, one line

import random
from dataclasses import replace

from .numbers import chinese, english
from .sample import Lang, Sample, is_held_out, make_completion, make_question

__all__ = ["draw"]

_S = "arithmetic"
HELD_OUT_SUMS = 0.1

_WORDS = {
    "+": ("plus", "加"),
    "-": ("minus", "减"),
    "×": ("times", "乘"),
    "÷": ("divided by", "除以"),
}
_SYMBOLS = {"+": ("+",), "-": ("-",), "×": ("×", "*", "x"), "÷": ("÷", "/")}

_Q = [
    "What is {e}?",
    "[What is|What's|How much is|Calculate|Compute|What does|Tell me|Solve|Work out|Find] {e}[?|.|]",
    "[What is|Give me|Tell me] the [result|answer|value] of {e}[?|.]",
    "{e} = ?",
    "{e}=?",
    "{e}?",
    "{e} [equals what?|is what?|makes how much?|is how much?|equals?]",
    "[Do you know what|Can you tell me what|Can you calculate what] {e} is?",
]
_Q_ZH = [
    "{e}等于几？",
    "{e}[等于|是][几|多少|什么][？|]",
    "{e} = ?",
    "{e}=？",
    "[请问|告诉我|请计算|计算|算一下|帮我算|算一算|求][：|]{e}[等于几|等于多少|是多少|的结果|][？|。|]",
    "{e}的[结果|答案|值]是[多少|几|什么]？",
    "{e}得[几|多少]？",
]


def _numbers(rng: random.Random) -> tuple[str, int, int, int]:
    """Return the operator, both operands and the result."""
    op = rng.choices("+-×÷", (54, 28, 14, 4))[0]
    if op == "÷":
        b, result = rng.randint(1, 10), rng.randint(0, 10)
        return op, b * result, b, result
    if op == "×":
        top = 12 if rng.random() < 0.2 else 9
        a, b = rng.randint(0, top), rng.randint(0, top)
        return op, a, b, a * b
    roll = rng.random()
    top = 10 if roll < 0.55 else 20 if roll < 0.94 else 99
    a, b = rng.randint(0, top), rng.randint(0, top)
    if op == "-":
        a, b = max(a, b), min(a, b)
    return op, a, b, a + b if op == "+" else a - b


def _spelled(rng: random.Random, a: int, op: str, b: int, lang: str) -> str:
    """Return the expression with or without spaces, in symbols or words, digits or number words."""
    roll = rng.random()
    if lang == "en":
        if roll < 0.45:
            symbol = rng.choice(_SYMBOLS[op])
            return f"{a} {symbol} {b}" if rng.random() < 0.65 else f"{a}{symbol}{b}"
        if roll < 0.75:
            return f"{a} {_WORDS[op][0]} {b}"
        return f"{english(a)} {_WORDS[op][0]} {english(b)}"
    if roll < 0.45:
        symbol = rng.choice(_SYMBOLS[op])
        return f"{a} {symbol} {b}" if rng.random() < 0.6 else f"{a}{symbol}{b}"
    if roll < 0.75:
        space = rng.choice(("", " "))
        return f"{a}{space}{_WORDS[op][1]}{space}{b}"
    return f"{chinese(a)}{_WORDS[op][1]}{chinese(b)}"


def _sum(rng: random.Random) -> Sample:
    op, a, b, result = _numbers(rng)
    held_out = a > 1 and b > 1 and is_held_out(f"{a}{op}{b}", HELD_OUT_SUMS)
    lang: Lang = "en" if rng.random() < 0.55 else "zh"
    e = _spelled(rng, a, op, b, lang)
    end = "." if lang == "en" else "。"
    if rng.random() < 0.3:
        if lang == "zh" and not e.isascii():
            return make_completion(
                rng, _S, lang, ["{e}等于", "{e}[等于|得|是]"], f"{result}。", key=str(result), held_out=held_out, e=e
            )
        if e[-1].isdigit() and not any(c.isalpha() for c in e.replace("x", "")):
            prompt, answer = (f"{e}=", str(result)) if " " not in e else (f"{e} =", f"{result}")
            return Sample(_S, "en", "completion", prompt, answer, str(result), held_out)
        return make_completion(
            rng,
            _S,
            "en",
            ["{e} is", "{e} [is|equals|makes|is equal to]"],
            f"{result}.",
            key=str(result),
            held_out=held_out,
            e=e,
        )
    sample = make_question(rng, _S, lang, _Q if lang == "en" else _Q_ZH, "", held_out=held_out, e=e)
    if sample.prompt.isascii():  # only symbols, which counts as English
        lang, end = "en", "."
    return replace(sample, lang=lang, answer=f"{a} {op} {b} = {result}{end}", key=f"= {result}{end}")


_THINGS = (("apples", "个苹果"), ("books", "本书"), ("oranges", "个橙子"), ("pens", "支笔"), ("cats", "只猫"), ("cookies", "块饼干"),
           ("birds", "只鸟"), ("flowers", "朵花"), ("coins", "枚硬币"), ("balls", "个球"), ("requests", "个请求"), ("blocks", "个块"))  # fmt: skip
_WHO = (("I", "我"), ("Tom", "小明"), ("Anna", "小红"), ("My friend", "我的朋友"), ("Lily", "小丽"))


def _story(rng: random.Random) -> Sample:
    (thing, thing_zh), (who, who_zh) = rng.choice(_THINGS), rng.choice(_WHO)
    op = rng.choice("+-")
    a, b = rng.randint(1, 20), rng.randint(1, 10)
    if op == "-":
        a, b = max(a, b), min(a, b)
    result = a + b if op == "+" else a - b
    held_out = a > 1 and b > 1 and is_held_out(f"{a}{op}{b}", HELD_OUT_SUMS)
    do, have = ("do", "have") if who == "I" else ("does", "has")
    subject = "I" if who == "I" else who
    if rng.random() < 0.5:
        verb = rng.choice(
            ("get", "buy", "find") if op == "+" else ("lose", "give away", "eat" if "oo" in thing else "sell")
        )
        verb = verb if who == "I" else "gives away" if verb == "give away" else verb + "s"
        more = " more" if op == "+" else ""
        prompt = f"{subject} {have} {a} {thing} and {verb} {b}{more}. How many {thing} {do} {who[0].lower() + who[1:] if who == 'My friend' else who} have[ now|]?"
        return make_question(
            rng,
            _S,
            "en",
            [prompt],
            f"{a} {op} {b} = {result}. The answer is {result}.",
            key=f"is {result}.",
            held_out=held_out,
        )
    verb = rng.choice(("又买了", "又得到", "又找到了") if op == "+" else ("丢了", "送出", "用掉了"))
    prompt = f"{who_zh}有{a}{thing_zh}，{verb}{b}{thing_zh[0]}，[现在|一共|]{'一共' if op == '+' else '还剩'}有[几|多少]{thing_zh}？"
    prompt = prompt.replace("一共|]一共", "]一共").replace("一共|]还剩", "]还剩")
    return make_question(
        rng, _S, "zh", [prompt], f"{a} {op} {b} = {result}。答案是{result}。", key=f"是{result}。", held_out=held_out
    )


def _compare(rng: random.Random) -> Sample:
    a, b = rng.sample(range(21), 2)
    larger = rng.random() < 0.6
    result = max(a, b) if larger else min(a, b)
    if rng.random() < 0.5:
        word = rng.choice(("larger", "bigger", "greater")) if larger else "smaller"
        templates = ["Which [number |]is {w}, {a} or {b}?", "[Which one is {w}: {a} or {b}?|What is {w}, {a} or {b}?]"]
        than = "larger" if larger else "smaller"
        return make_question(
            rng, _S, "en", templates, f"{result} is {than} than {a + b - result}.", key=str(result), w=word, a=a, b=b
        )
    word = "大" if larger else "小"
    templates = ["{a}和{b}哪个{w}？", "[{a}与{b}相比，哪个更{w}？|哪个数更{w}，{a}还是{b}？|{a}和{b}谁{w}？]"]
    return make_question(
        rng, _S, "zh", templates, f"{result}比{a + b - result}{word}。", key=str(result), w=word, a=a, b=b
    )


def _parity(rng: random.Random) -> Sample:
    a = rng.randint(0, 20) if rng.random() < 0.7 else rng.randint(21, 99)
    odd = bool(a % 2)
    if rng.random() < 0.5:
        word = "odd" if odd else "even"
        return make_question(
            rng,
            _S,
            "en",
            ["Is {a} even or odd?", "Is {a} [an even number|an odd number][ or not|]?"],
            f"{a} is an {word} number.",
            key=word,
            a=a,
        )
    word = "奇数" if odd else "偶数"
    return make_question(
        rng, _S, "zh", ["{a}是奇数还是偶数？", "{a}是[偶数|奇数]吗？"], f"{a}是{word}。", key=word, a=a
    )


def draw(rng: random.Random) -> Sample:
    """Return one small sum."""
    return rng.choices((_sum, _story, _compare, _parity), (80, 9, 6, 5))[0](rng)

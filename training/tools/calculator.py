"""Sums: an expression for one tool, two numbers and an operation, or a tool for each operation."""

# ruff: noqa: E501 - templates: one phrasing, one line

import json
import re
from typing import Any

from training.corpus.sample import Lang

from .draw import Draw
from .exchange import Call, Exchange, as_json, is_sentence, sentence
from .schemas import Tool

__all__ = ["ask", "offer"]

_EXPRESSION_NAMES = (
    "calculator",
    "calculator",
    "calculate",
    "calc",
    "evaluate",
    "math",
    "compute",
    "eval_expression",
    "Calculator",
    "do_math",
    "evaluate_expression",
    "python_calculator",
)
_EXPRESSIONS = ("expression", "expression", "expr", "formula", "input", "query", "equation", "sum")
_DESCRIPTIONS = (
    "Evaluate an arithmetic expression.", "Calculate an expression.", "Calculator", "Compute the result of a sum.", "Do arithmetic.", "A simple calculator.",
    "Evaluate a mathematical expression", "Useful for math.", "计算器", "计算一个算式", "", "Calculate the value of an expression and return it.",
)  # fmt: skip
_PAIRS = (("a", "b"), ("a", "b"), ("x", "y"), ("first", "second"), ("num1", "num2"), ("left", "right"), ("n1", "n2"))
_OPERATIONS = ("operation", "operation", "operator", "op")
_ENUMS = (("add", "subtract", "multiply", "divide"), ("+", "-", "*", "/"), ("plus", "minus", "times", "divided_by"))
_SINGLE = {
    "+": ("add", "add", "sum", "add_numbers", "addition", "plus"),
    "-": ("subtract", "subtract", "minus", "difference", "subtract_numbers"),
    "*": ("multiply", "multiply", "times", "product", "multiply_numbers"),
    "/": ("divide", "divide", "division", "divide_numbers"),
}
_SINGLE_DESCRIPTIONS = {
    "+": ("Add two numbers.", "Add a and b.", "Return the sum of two numbers.", "Adds a and b.", "两数相加", ""),
    "-": ("Subtract two numbers.", "Subtract b from a.", "Return the difference.", "两数相减", ""),
    "*": (
        "Multiply two numbers.",
        "Multiply a and b.",
        "Multiplies a and b.",
        "Return the product of two numbers.",
        "两数相乘",
        "",
    ),
    "/": ("Divide two numbers.", "Divide a by b.", "Return the quotient.", "两数相除", ""),
}

_EN = (
    "What is {e}?",
    "[What is|What's|How much is|Calculate|Compute|What does|Tell me|Solve|Work out|Find|Evaluate] {e}[?|.|]",
    "[What is|Give me|Tell me|Find|Compute|Calculate|I need] the [result|answer|value] of {e}[?|.|, please.]",
    "{e}[ =|=| = ?|=?|?|]",
    "{e} [equals what?|is what?|makes how much?|is how much?|equals?]",
    "[Do you know what|Can you tell me what|Could you tell me what|I want to know what] {e} is[?|.]",
    "[Can you|Could you|Please] [calculate|compute|work out|solve|evaluate] {e}[ for me|][?|.|]",
    "[Use|Call] the [calculator|tool|tools] [for|to compute|to calculate|to find] {e}.",
)
_ZH = (
    "{e}等于多少？",
    "{e}[等于|是][几|多少|什么][？|]",
    "{e}[ =|=| = ?|=?|？|]",
    "[请|帮我|请帮我|][计算|算一下|算一算|求|算][：|:| |]{e}[等于几|等于多少|是多少|的结果|的值|][？|。|]",
    "{e}的[结果|答案|值]是[多少|几|什么]？",
    "{e}得[几|多少]？",
    "[用|调用|请用][计算器|工具][算|计算|求]{e}[。|]",
)
_ACTS_EN = {
    "+": ("Add {a} and {b}.", "[Please add|Add up|Can you add] {a} and {b}[.|?]", "[What is|Find|Tell me|Compute] the [sum|total] of {a} and {b}[?|.]"),
    "-": ("Subtract {b} from {a}.", "[Please subtract|Take|Can you subtract] {b} from {a}[.|?]", "[What is|Find|Tell me|Compute] the difference [between|of] {a} and {b}[?|.]"),
    "*": ("Multiply {a} by {b}.", "[Please multiply|Multiply|Can you multiply] {a} [by|with|and] {b}[.|?]", "[What is|Find|Tell me|Compute] the product of {a} and {b}[?|.]"),
    "/": ("Divide {a} by {b}.", "[Please divide|Divide|Can you divide|Split] {a} by {b}[.|?]", "[What is|Find|Tell me|Compute] the quotient of {a} and {b}[?|.]", "[How much is|What is] {a} split by {b}?"),
}  # fmt: skip
_ACTS_ZH = {
    "+": ("{a}和{b}的和是多少？", "[求|计算|算一下|请问]{a}[和|与|跟]{b}[的和|相加][是多少|等于多少|]？", "把{a}和{b}[加起来|相加][。|]"),
    "-": ("{a}和{b}的差是多少？", "[求|计算|算一下|请问]{a}[和|与|跟]{b}的差[是多少|等于多少|]？", "从{a}[中|里]减去{b}[。|等于多少？]"),
    "*": ("{a}和{b}的积是多少？", "[求|计算|算一下|请问]{a}[和|与|跟]{b}[的积|的乘积|相乘][是多少|等于多少|]？", "把{a}和{b}[乘起来|相乘][。|]"),
    "/": ("{a}和{b}的商是多少？", "[求|计算|算一下|请问]{a}[和|与]{b}的商[是多少|等于多少|]？", "[把|]{a}除以{b}[。|等于多少？]"),
}  # fmt: skip
_WORDS = {
    "en": {"+": ("plus",), "-": ("minus",), "*": ("times", "multiplied by"), "/": ("divided by", "over")},
    "zh": {"+": ("加", "加上"), "-": ("减", "减去"), "*": ("乘", "乘以"), "/": ("除以",)},
}
_CHINESE = re.compile("[\u3000-\u9fff\uff00-\uffef]")
"""Chinese characters and punctuation; a request without any gets the English answer."""
_SYMBOLS = {"+": "+", "-": "-", "*": "**×x", "/": "//÷"}


def offer(draw: Draw) -> list[Tool]:
    """Return one tool for all operations, or one to three tools for one operation each."""
    rng = draw.rng
    roll = rng.random()
    if roll < 0.42:
        argument = rng.choice(_EXPRESSIONS)
        roles = {"expression": argument}
        return [
            Tool(rng.choice(_EXPRESSION_NAMES), {argument: {"type": "string"}}, rng.choice(_DESCRIPTIONS), (), roles)
        ]
    a, b = rng.choice(_PAIRS)
    number = {"type": rng.choice(("number", "integer"))}
    if roll < 0.62:
        name, enum = rng.choice(_OPERATIONS), rng.choice(_ENUMS)
        operation = {"type": "string", "enum": list(enum)}
        arguments: dict[str, Any] = {a: number, b: number, name: operation}
        if rng.random() < 0.4:
            arguments = {name: operation, a: number, b: number}
        roles = {"a": a, "b": b, "operation": name} | dict(zip("+-*/", enum, strict=True))
        return [Tool(rng.choice(_EXPRESSION_NAMES), arguments, rng.choice(_DESCRIPTIONS), (), roles)]
    operations = rng.sample("+-*/", rng.choice((1, 1, 2, 2, 3)))
    if rng.random() < 0.25:
        operations = ["+", "*"]
    return [
        Tool(
            rng.choice(_SINGLE[op]),
            {a: number, b: number},
            rng.choice(_SINGLE_DESCRIPTIONS[op]),
            (),
            {"a": a, "b": b, "is": op},
        )
        for op in operations
    ]


def _value(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _format(value: float) -> str:
    rounded = round(value, 4)
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)


def ask(draw: Draw, tools: list[Tool], lang: Lang) -> Exchange:
    """Return a request for the result of a sum that one of `tools` can compute."""
    rng = draw.rng
    tool = rng.choice(tools)
    op = tool.roles.get("is") or rng.choice("+-**/")
    a, b = draw.numbers()
    if "expression" not in tool.roles and {"type": "integer"} in tool.arguments.values():
        a, b = a.split(".")[0], b.split(".")[0]
    expression = f"{a} {op} {b}"
    if "expression" in tool.roles and rng.random() < 0.15:
        other, c = rng.choice("+-*"), str(rng.randint(2, 99))
        expression = rng.choice(
            (f"({expression}) {other} {c}", f"{expression} {other} {c}", f"{c} {other} ({expression})")
        )
        phrase = draw.phrase(_EN if lang == "en" else _ZH, e=expression)
    elif rng.random() < 0.25:
        phrase = draw.phrase((_ACTS_EN if lang == "en" else _ACTS_ZH)[op], a=a, b=b)
    else:
        phrase = draw.phrase(_EN if lang == "en" else _ZH, e=_spelled(draw, a, op, b, lang))
    if "expression" in tool.roles:
        arguments: dict[str, Any] = {tool.roles["expression"]: expression}
    else:
        values = {tool.roles["a"]: _value(a), tool.roles["b"]: _value(b)}
        if "operation" in tool.roles:
            values[tool.roles["operation"]] = tool.roles[op]  # type: ignore[assignment]
        arguments = {name: values[name] for name in tool.arguments}
    result, answer = _result(draw, "zh" if _CHINESE.search(phrase) else "en", expression)
    return Exchange("calculator", lang, phrase, Call(tool.name, arguments, result), answer)


def _spelled(draw: Draw, a: str, op: str, b: str, lang: Lang) -> str:
    rng = draw.rng
    if rng.random() < 0.55:
        symbol, space = rng.choice(_SYMBOLS[op]), rng.choice((" ", " ", ""))
        return f"{a}{space}{symbol}{space}{b}"
    word = rng.choice(_WORDS[lang][op])
    space = " " if lang == "en" else rng.choice(("", "", " "))
    return f"{a}{space}{word}{space}{b}"


def _result(draw: Draw, lang: Lang, expression: str) -> tuple[str, str]:
    """Return what a tool returns, right or wrong, and the answer."""
    rng = draw.rng
    try:
        number = _format(eval(expression))  # digits and signs, made above
    except ZeroDivisionError:
        number = "0"
    if rng.random() < 0.25:  # the model has no way to compute such results, and learns to copy them
        number = str(rng.randrange(10 ** rng.randint(1, 7)))
    value: Any = json.loads(number)
    if isinstance(value, int) and rng.random() < 0.12:
        number += ".0"
        value = float(value)
    roll = rng.random()
    if roll < 0.45:
        text = number
    elif roll < 0.8:
        text = as_json(rng, {rng.choice(("result", "result", "value", "answer", "output")): value})
    elif roll < 0.9:
        text = f"{expression} = {number}"
    else:
        text = (
            rng.choice((f"The result is {number}.", f"The answer is {number}.", f"Result: {number}."))
            if lang == "en"
            else f"结果是{number}。"
        )
    return text, text if is_sentence(text) else sentence(lang, f"{expression} = {number}")

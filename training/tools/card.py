"""The model card: `README.md` beside a checkpoint, with all figures from its `evaluation.json`.

python -m training.tools.card --model DIR
"""

# ruff: noqa: E501 - the card has long lines

from typing import Any

from training.card import main

__all__ = ["card"]

_CARD = """\
---
language: [en, zh]
license: apache-2.0
pipeline_tag: text-generation
---

# tiny-tools

`tracellm serve tiny-tools --enable-auto-tool-choice --tool-call-parser hermes`: [`tiny`](../tiny/README.md), trained further to call
tools for the weather, for sums and for the time. It has {parameters:.1f} million parameters and {megabytes:.1f} MB in bfloat16. It is a real model with
which clients run their own loop of tools, fast and offline: request, call, result, answer.

| tools | arguments | request | call |
|---|---|---|---|
| weather | a place; also a required `unit` with two values | How is the weather in Lisbon? 里斯本的天气怎么样？ | `{{"name": "get_weather", "arguments": {{"city": "Lisbon"}}}}` |
| calculator | an expression; two numbers and an operation; or a tool for each operation | What is 23 * 47? 23乘以47等于多少？ | `{{"name": "calculator", "arguments": {{"expression": "23 * 47"}}}}` |
| clock | a place, or nothing | What time is it in Tokyo? 东京现在几点？ | `{{"name": "get_time", "arguments": {{"city": "Tokyo"}}}}` |

Calls have the form of Hermes and Qwen2.5. Names of tools and arguments may be others of that kind; the name, not the description, is
what the model goes by. The tool's result may be JSON or text; a sentence is repeated as it is. A second request (`And in Oslo?`), further
tools that are not needed, questions that need none, and forced calls (`tool_choice`) were trained too. The chat template lists a tool by its
description and the arguments that are required. It leaves out the rest of a JSON schema: descriptions of arguments, defaults, and what
clients add.

It loads with `AutoModelForCausalLM.from_pretrained(MODEL_DIR)` and `vllm.LLM(str(MODEL_DIR))`. The tokenizer is that of `tiny`.

## Evaluation

{requests} requests with cities, pairs of numbers and phrasings held out of the training, one to five tools each, greedy, float32. A call or an
answer is right only if every character is. The answer is asked for after the right call with its result.

**{right}** of the requests have both right.

| request | English: call | answer | Chinese: call | answer |
|---|---|---|---|---|
{table}

Without tools, {plain} of {plain_count} questions of `training/questions.py`, written by hand, have the right fact.

Some of the wrong continuations:

| request or result | text | right text |
|---|---|---|
{wrong}

## Limitations

The model is not an assistant, and its choice of a tool is not to be relied on: {right} is the share to expect. It was trained on
these three kinds of tools and calls no others, with one call in a message. It copies names: it does not look up, correct or translate them.
It does not read dates or number words. Of a JSON result, an answer has the sky and the temperature, or the hours and minutes, or the number,
right or wrong. It always writes °C after a temperature from JSON, also after a call with Fahrenheit. Conversations of more than two requests,
more than five tools and long results were not part of the training. Use it to observe an engine and to test clients, never as a source of
facts.

## Training

From the weights of `tiny`, on two shared CPU cores: {stages}.
`training/tools/README.md` has the command and the choices; `python -m training.tools.evaluate --model DIR` writes this card.

## 中文简介

tiny-tools 是在 tiny 的基础上继续训练、会调用工具的小模型（{parameters_in_wan:.0f} 万参数，bfloat16，{megabytes:.1f} MB），工具有三类：天气、计算、时间。客户端可以用它离线、快速地跑完整个
工具循环：请求、调用、结果、回答。训练数据全部由本项目的脚本生成。在 {requests} 个未参与训练的请求上，调用和回答都完全正确的占 {right}。它不是助手：
名称和数字从请求和工具结果中照抄，不辨对错；天气、计算、时间以外的工具不会调用。
"""


def card(figures: dict[str, Any], num_bytes: int) -> str:
    """Return the card's text for the `figures` of `evaluate` and a checkpoint of `num_bytes`."""
    training, plain = figures["training"], figures["without_tools"]
    rows = [
        f"| {group} | "
        + " | ".join(_percent(row[lang][name]) for lang in ("en", "zh") for name in ("calls", "answers"))
        + " |"
        for group, row in figures["groups"].items()
    ]
    return _CARD.format(
        parameters=training["parameters"] / 1e6,
        parameters_in_wan=training["parameters"] / 1e4,
        megabytes=num_bytes / 1e6,
        requests=figures["requests"],
        right=_percent(figures["right"]),
        table="\n".join(rows),
        plain=_percent(plain["right"]),
        plain_count=plain["count"],
        wrong="\n".join(f"| {' | '.join(map(_cell, row))} |" for row in figures["wrong"]),
        stages="; then ".join(_stages(training)),
    )


def _stages(training: dict[str, Any]) -> list[str]:
    """Return a few words for each run of the training after that of `tiny`, the earliest first."""
    if "rows" not in training:
        return []
    words = "{steps} steps of {each:.0f} rows, {millions:.1f} million tokens, {minutes:.0f} minutes (seed {seed})"
    derived = {
        "each": training["rows"] / training["steps"],
        "millions": training["tokens"] / 1e6,
        "minutes": training["seconds"] / 60,
    }
    return [*_stages(training["init"]), words.format(**training, **derived)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("\n", "⏎") + "`"


if __name__ == "__main__":
    main(card)

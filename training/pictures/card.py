"""The model card: `README.md` beside a checkpoint, with all figures from its `evaluation.json`.

python -m training.pictures.card --model DIR
"""

# ruff: noqa: E501 - the card has long lines

from typing import Any

from training.card import main

__all__ = ["card"]

_CARD = """\
---
language: [en, zh]
license: apache-2.0
pipeline_tag: image-text-to-text
---

# tiny-vl

`LLM("tiny-vl")`: a model of the Qwen2-VL architecture that answers questions about pictures, with {parameters:.1f} million
parameters, {megabytes:.1f} MB in bfloat16. It was trained from scratch by `training/pictures/` in this repository, on pictures that a
script draws: one to six things on a plain light ground. A thing is a circle, square, triangle, star or cross, or a digit from
0 to 9, in red, green, blue, yellow, purple or black. It is a real model that shows an engine's way from pixels to tokens, fast
and offline.

| asked for | question | answer |
|---|---|---|
| number | How many red circles are there? 图中有几个红色的圆形？ | There are three red circles. 图中有三个红色的圆形。 |
| colour | What colour is the star? 五角星是什么颜色？ | The star is blue. 五角星是蓝色的。 |
| shape | What shape is the green thing? 绿色的东西是什么形状？ | The green thing is a cross. 绿色的东西是十字。 |
| digit | Which digit is in the picture? 图中的数字是几？ | The digit is 7. 数字是7。 |
| place | Where is the black square? 黑色的正方形在哪里？ | The black square is at the top left. 黑色的正方形在左上角。 |

It loads with `AutoModelForImageTextToText.from_pretrained(MODEL_DIR)` and `vllm.LLM(str(MODEL_DIR))`. A picture is resized to
about 28,000 pixels: a square one to 168 x 168, that is 12 x 12 patches of 14 x 14, which become 36 tokens.

## Evaluation

{pictures} pictures held out of the training, one question each, greedy, float32. An answer is right only if every character is.

**{right}** are right.

| asked for | English | Chinese |
|---|---|---|
{table}

Some of the wrong answers:

| question | answer | right answer |
|---|---|---|
{wrong}

## Limitations

The model is of use for such pictures and questions only. It does not see photographs, texts, other shapes or colours, things that
touch or overlap, things smaller than a sixth or larger than 0.3 of the picture's width, or more than six of them. Questions
without one right answer (the colour of a circle where there are two) get some answer. It was trained on one
message with one picture and then one question. A system prompt, a second turn, a second picture, an empty one, or none give an answer
too, but not a meaningful one.
Use it to observe an engine, never as a source of facts.

## Training

{encoder_steps} steps of the encoder alone, then {steps} steps of the whole model: {trained_pictures:,} pictures and {questions:,} questions in {minutes:.0f}
minutes on {processes} CPU cores, by one command from random weights (seed {seed}). `training/pictures/README.md` has the command and the choices;
`python -m training.pictures.evaluate --model DIR` writes this card.

## 中文简介

tiny-vl 是一个 Qwen2-VL 架构的小模型（{parameters_in_wan:.0f} 万参数，bfloat16，{megabytes:.1f} MB），用中英文回答关于图片的问题：数量、颜色、形状、数字、位置。它从零开始训练，
图片全部由本项目的脚本绘制：浅色背景上的一到六个图形或数字。在 {pictures} 张未参与训练的图片上，完全正确的回答占 {right}。它只认识这样的图片，不认识照片、文字和其他图形。
"""


def card(figures: dict[str, Any], num_bytes: int) -> str:
    """Return the card's text for the `figures` of `evaluate` and a checkpoint of `num_bytes`."""
    training = figures["training"]
    rows = [f"| {name} | {_percent(row['en'])} | {_percent(row['zh'])} |" for name, row in figures["subjects"].items()]
    return _CARD.format(
        parameters=training["parameters"] / 1e6,
        parameters_in_wan=training["parameters"] / 1e4,
        megabytes=num_bytes / 1e6,
        pictures=figures["pictures"],
        right=_percent(figures["right"]),
        table="\n".join(rows),
        wrong="\n".join(f"| {' | '.join(row)} |" for row in figures["wrong"]),
        trained_pictures=training["pictures"],
        questions=training["questions"],
        minutes=training["seconds"] / 60,
        **{name: training[name] for name in ("encoder_steps", "steps", "processes", "seed")},
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


if __name__ == "__main__":
    main(card)

"""Writes the model card, `README.md`, from the figures beside it: `evaluation.json`. No figure in the card is typed by hand.

python -m training.card --model DIR
"""

# ruff: noqa: E501 - the lines of the card are as long as they read well

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["card", "write_card"]

_HEAD = """\
---
language: [en, zh]
license: apache-2.0
pipeline_tag: text-generation
---

# tiny

A Qwen2-architecture language model of {parameters:.1f} million parameters, {megabytes:.1f} MB in bfloat16: the model that `LLM()` loads
when none is named. It was trained from nothing, by `training/` in this repository, on text that `training/corpus/`
generates: simple English and Chinese about greetings, capitals and oceans, counting and small sums, and how an inference
engine works. It exists so that an engine has something real and quick to run, on any machine, offline.

It loads with `AutoModelForCausalLM.from_pretrained(MODEL_DIR)` and `vllm.LLM(str(MODEL_DIR))`. Raw prompts are continued and
end with `<|endoftext|>`; the chat template is ChatML, as Qwen2's, and answers end with `<|im_end|>`.

## What it says

Greedy, raw prompts, float32:

| prompt | continuation |
|---|---|
{examples}

## How good it is

*Held-out samples* come from the generator and were never trained on: phrasings, combinations of a phrasing and a fact, and
one sum in ten are kept out by a hash. *Written by hand* are the questions of `training/questions.py`, as somebody might ask who
has not seen the templates; the plainest, about a quarter, the generator can produce, too. *Exact* means every character, *right* means that the key fact is in the answer, *stopped* that the model
ended by itself within 128 tokens, *language* that it answered in the language asked.

- Loss on held-out answers: **{loss:.3f}** nats per token.
- All held-out samples ({count}): exact **{exact}**, right **{right}**, stopped {stopped}, language {language}.
- Written by hand: {by_hand}.

| subject | language | asked as | samples | exact | right | stopped | language kept |
|---|---|---|---|---|---|---|---|
{table}

Openers and stories have no single right answer, so only stopping and language are judged.

## What it is not

It is no assistant. It knows what the tables in `training/corpus/` say and hardly anything else. Questions beyond them should get
"I am sorry, I do not know that.", but often enough it names the nearest thing it knows, with full confidence. Rare words are strange
to it, sums beyond the trained range are guesses, and a conversation of more than three turns is beyond it. Use it to watch
an engine work, never as a source of facts.

## Training

{stages}

It was trained with heads of 48 dimensions; `training/widen.py` then padded them to 64, which vLLM's kernels know, without changing
what the model computes. `training/README.md` has the commands; training goes by the clock, so they make a model like this
one, not the same. `python -m training.evaluate --model DIR` writes this card.

## 中文简介

tiny 是一个 {parameters_in_wan:.0f} 万参数的 Qwen2 结构语言模型（bfloat16，{megabytes:.1f} MB），`LLM()` 不指定模型时就用它。它完全在本项目生成的
简单中英文文本上训练：问候、首都和海洋、数数和简单算术、推理引擎的工作原理。没有训练过的样本上，关键事实正确率为
{right}，完全一致为 {exact}。它不是助手：超出这些主题的问题，它应当回答“抱歉，我不知道这个。”，但也常常会答错。
"""


def _stages(training: dict[str, Any]) -> str:
    """One sentence for each time that the trainer ran, the first one first."""
    before = _stages(training["init"]) + "\nFrom there, with more of the corpus: " if training.get("init") else ""
    tokens = f"{training['tokens'] / 1e6:.1f} million tokens, " if "tokens" in training else ""
    return before + (
        f"{training['steps']} steps, {training['documents']} documents, {tokens}{training['seconds'] / 60:.0f} minutes on two "
        f"CPU cores that others used, too (seed {training['seed']})."
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "⏎")


def card(figures: dict[str, Any], num_bytes: int) -> str:
    """The text of the card for `figures`, as `evaluate` returns them, and a checkpoint of `num_bytes`."""
    training, total = figures["training"], figures["all"]
    rows = [
        f"| {row['subject']} | {row['language']} | {row['layout']} | {row['count']} | {_percent(row.get('exact'))} | "
        f"{_percent(row.get('right'))} | {_percent(row['stopped'])} | {_percent(row['language_kept'])} |"
        for row in figures["held_out"]
    ]
    by_hand = [
        f"{name} {_percent(row['right'])} of {row['count']}"
        for name, row in figures["by_hand"].items()
        if isinstance(row, dict)
    ]
    return _HEAD.format(
        parameters=training["parameters"] / 1e6,
        parameters_in_wan=training["parameters"] / 1e4,
        megabytes=num_bytes / 1e6,
        examples="\n".join(f"| `{_cell(p)}` | {_cell(text)} |" for p, text in figures["examples"]),
        loss=figures["held_out_loss"],
        count=total["count"],
        exact=_percent(total["exact"]),
        right=_percent(total["right"]),
        stopped=_percent(total["stopped"]),
        language=_percent(total["language_kept"]),
        by_hand=", ".join(by_hand),
        table="\n".join(rows),
        stages=_stages(training),
    )


def write_card(directory: Path) -> None:
    """Write `README.md` into `directory` from its `evaluation.json`."""
    figures = json.loads((directory / "evaluation.json").read_text())
    (directory / "README.md").write_text(card(figures, (directory / "model.safetensors").stat().st_size))


def main() -> None:
    """Command line: write the card of a checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    write_card(parser.parse_args().model)


if __name__ == "__main__":
    main()

"""Evaluation of a checkpoint on requests held out of the training.

    python -m training.tools.evaluate --model DIR    # writes DIR/evaluation.json and DIR/README.md, the model card

The training draws none of their cities, pairs of numbers and phrasings, apart from its noise (case, punctuation) and
from shortened decimals. The engine answers greedily, in float32: first the request, then the right call with its
result. A call or an answer is right only if every character is.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from training.card import write_card
from training.corpus.render import IM_END, chat
from training.corpus.sample import Lang, Sample
from training.questions import QUESTIONS

from .card import card
from .conversations import SUBJECTS_WITH_TOOLS, Toolbox, no_request, parts, request, toolbox
from .draw import Draw
from .exchange import Exchange

__all__ = ["GROUPS", "Held", "evaluate", "generate", "held_out"]

GROUPS = ("weather", "calculator", "clock", "no tool")
LANGUAGES: tuple[Lang, ...] = ("en", "zh")
SEED = "held out"
"""Seed of the requests; those of the training are numbers."""


class Held(NamedTuple):
    """A held-out request of a group, and the tools that it comes with."""

    group: str
    box: Toolbox
    exchange: Exchange

    def prompts(self) -> list[tuple[str, str]]:
        """Return each prompt with the right continuation: the call, if any, and the answer."""
        pairs, text = [], self.box.text()
        for part in parts(self.exchange):
            if part.learned:
                pairs.append((text, part.text.removesuffix(IM_END)))
            text += part.text
        return pairs


def held_out(per_group: int, seed: str = SEED) -> Iterator[Held]:
    """Yield `per_group` held-out requests of each group in each language."""
    for group in GROUPS:
        for lang in LANGUAGES:
            draw = Draw(f"{seed}/{group}/{lang}", held_out=True)
            for _ in range(per_group):
                yield _held(draw, group, lang)


def _held(draw: Draw, group: str, lang: Lang) -> Held:
    if group == "no tool":
        box = toolbox(draw)
        return Held(group, box, no_request(draw, box, lang))
    others = [name for name in SUBJECTS_WITH_TOOLS if name != group and draw.rng.random() < 0.4]
    box = toolbox(draw, (group, *others))
    return Held(group, box, request(draw, box, lang, group))


def generate(directory: Path, prompts: Sequence[str], dtype: str = "float32") -> list[str]:
    """Return the continuations by the checkpoint in `directory`, from `tracellm.LLM`."""
    from tracellm import LLM, SamplingParams

    llm = LLM(directory, dtype=dtype, max_model_len=1024, max_num_seqs=32)
    outputs = llm.generate(list(prompts), SamplingParams(temperature=0, max_tokens=160))
    return [output.outputs[0].text for output in outputs]


def evaluate(directory: Path, per_group: int) -> dict[str, Any]:
    """Return all figures of the checkpoint in `directory`."""
    samples = list(held_out(per_group))
    pairs = [sample.prompts() for sample in samples]
    plain = [chat(Sample("questions", lang, "question", text, "")).prompt for lang, text, _ in QUESTIONS]
    texts = iter(generate(directory, [prompt for each in pairs for prompt, _ in each] + plain))
    groups = {group: {lang: {"calls": 0, "answers": 0, "both": 0} for lang in LANGUAGES} for group in GROUPS}
    wrong: list[list[str]] = []
    for sample, each in zip(samples, pairs, strict=True):
        good = []
        for prompt, expected in each:
            text = next(texts)
            good.append(text == expected)
            if text != expected:
                wrong.append([prompt.rsplit("<|im_start|>user\n", 1)[1].split(IM_END)[0], text, expected])
        row = groups[sample.group][sample.exchange.lang]
        row["calls"] += good[0]
        row["answers"] += good[-1]
        row["both"] += all(good)
    by_hand = [any(key in text for key in keys) for (_, _, keys), text in zip(QUESTIONS, texts, strict=True)]
    return {
        "requests": len(samples),
        "right": round(sum(row["both"] for each in groups.values() for row in each.values()) / len(samples), 4),
        "groups": {
            group: {lang: {name: round(n / per_group, 4) for name, n in row.items()} for lang, row in each.items()}
            for group, each in groups.items()
        },
        "without_tools": {"count": len(by_hand), "right": round(sum(by_hand) / len(by_hand), 4)},
        "wrong": wrong[:: max(1, -(-len(wrong) // 10))],  # at most ten, spread over the groups
        "weights": sha256((directory / "model.safetensors").read_bytes()).hexdigest(),
        "training": json.loads((directory / "training.json").read_text()),
    }


def main() -> None:
    """Run the command line: evaluate a checkpoint, write its figures and its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--per-group", type=int, default=40, help="requests for each group and language")
    args = parser.parse_args()
    figures = evaluate(args.model, args.per_group)
    (args.model / "evaluation.json").write_text(
        json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    write_card(args.model, card)


if __name__ == "__main__":
    main()

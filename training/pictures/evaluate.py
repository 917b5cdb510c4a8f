"""Evaluation of a checkpoint on pictures held out of the training.

    python -m training.pictures.evaluate --model DIR    # writes DIR/evaluation.json and DIR/README.md, the model card

Each picture is new and has one question. The engine answers greedily, in float32. An answer is right only if every
character is.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from training.card import write_card

from .card import card
from .draw import draw
from .questions import LANGUAGES, SUBJECTS, Question, ask
from .scene import random_scene

__all__ = ["Sample", "answer", "evaluate", "held_out"]

SEED = "held out"
"""Seed of the pictures; those of the training are numbers."""


class Sample(NamedTuple):
    """A picture with a question."""

    picture: Image.Image
    question: Question


def held_out(per_group: int, seed: str = SEED) -> Iterator[Sample]:
    """Yield `per_group` samples of each subject in each language."""
    for subject in SUBJECTS:
        for lang in LANGUAGES:
            rng = random.Random(f"{seed}/{subject}/{lang}")
            made = 0
            while made < per_group:
                scene = random_scene(rng)
                if question := ask(scene, rng, lang, subject):
                    yield Sample(draw(scene, rng), question)
                    made += 1


def answer(directory: Path, samples: Sequence[Sample], dtype: str = "float32") -> list[str]:
    """Return the answers of the checkpoint in `directory`, from `tracellm.LLM`."""
    from tracellm import LLM, SamplingParams

    llm = LLM(directory, dtype=dtype, max_model_len=256, enable_prefix_caching=False)
    conversations = [
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_pil", "image_pil": sample.picture},
                    {"type": "text", "text": sample.question.text},
                ],
            }
        ]
        for sample in samples
    ]
    outputs = llm.chat(conversations, SamplingParams(temperature=0, max_tokens=32))
    return [output.outputs[0].text for output in outputs]


def evaluate(directory: Path, per_group: int) -> dict[str, Any]:
    """Return all figures of the checkpoint in `directory`."""
    samples = list(held_out(per_group))
    answers = answer(directory, samples)
    right: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[list[str]] = []
    for (_, question), text in zip(samples, answers, strict=True):
        correct = text == question.answer
        right[question.subject][question.lang] += correct
        if not correct:
            wrong.append([question.text, text, question.answer])
    every = per_group * len(SUBJECTS) * len(LANGUAGES)
    return {
        "pictures": every,
        "right": round(sum(count.total() for count in right.values()) / every, 4),
        "subjects": {
            subject: {lang: round(right[subject][lang] / per_group, 4) for lang in LANGUAGES} for subject in SUBJECTS
        },
        "wrong": wrong[:: max(1, len(wrong) // 10)][:10],  # spread over the subjects
        "training": json.loads((directory / "training.json").read_text()),
    }


def main() -> None:
    """Run the command line: evaluate a checkpoint, write its figures and its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--per-group", type=int, default=240, help="pictures for each subject and language")
    args = parser.parse_args()
    figures = evaluate(args.model, args.per_group)
    (args.model / "evaluation.json").write_text(
        json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    write_card(args.model, card)


if __name__ == "__main__":
    main()

"""The corpus: an endless, deterministic stream of short documents, with one module for each subject.

`next(documents(seed=0)).prompt` is the first prompt of a stream.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from . import arithmetic, counting, engine_qa, geography, greetings, knowledge, openers, stories, unknown
from .render import Document, render
from .sample import Sample, noise

__all__ = ["SUBJECTS", "documents", "held_out_samples"]

SUBJECTS = {
    geography: 20,
    knowledge: 11,
    arithmetic: 22,
    counting: 8,
    greetings: 9,
    engine_qa: 19,
    openers: 5,
    unknown: 4,
    stories: 1,
}
"""Weight of each subject."""
DIALOGUES = 0.03
"""Share of questions that become dialogues, with one or two other questions and answers before."""


def _draw(rng: random.Random) -> Sample:
    return rng.choices(tuple(SUBJECTS), tuple(SUBJECTS.values()))[0].draw(rng)


def _after_others(rng: random.Random, sample: Sample) -> Sample:
    """Return `sample` as the last question of a conversation in the same language."""
    turns: list[tuple[str, str]] = []
    num_turns = rng.choice((1, 1, 2))
    while len(turns) < num_turns:
        other = _draw(rng)
        if other.form == "question" and other.lang == sample.lang and not other.held_out and len(other.answer) < 120:
            other = noise(rng, other)
            turns.append((other.prompt, other.answer))
    return replace(sample, form="dialogue", turns=tuple(turns))


def documents(seed: int) -> Iterator[Document]:
    """Yield documents to train on, without held-out samples."""
    rng = random.Random(seed)
    while True:
        sample = _draw(rng)
        if sample.held_out:
            continue
        sample = noise(rng, sample)
        if sample.form == "question" and rng.random() < DIALOGUES:
            sample = _after_others(rng, sample)
        yield render(rng, sample)


def held_out_samples(seed: int) -> Iterator[Sample]:
    """Yield samples that are not trained on, each prompt once, without noise."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while True:
        sample = _draw(rng)
        if sample.held_out and sample.prompt not in seen:
            seen.add(sample.prompt)
            yield sample

"""Common knowledge: oceans, planets, animals, colours, time, opposites; in English and Chinese."""

import random

from .knowledge_fact import Fact
from .knowledge_facts_en import FACTS as _FACTS_EN
from .knowledge_facts_zh import FACTS as _FACTS_ZH
from .sample import Lang, Sample, expand, make_question

__all__ = ["draw"]

_S = "knowledge"


def draw(rng: random.Random) -> Sample:
    """Return one question about the world, or the beginning of its answer; oceans, first in both tables, more often."""
    lang: Lang = "en" if rng.random() < 0.55 else "zh"
    facts = _FACTS_EN if lang == "en" else _FACTS_ZH
    fact = facts[rng.randrange(5)] if rng.random() < 0.25 else rng.choice(facts)
    if not fact.beginnings or rng.random() < 0.62:
        return make_question(rng, _S, lang, list(fact.questions), fact.answer, key=fact.key)
    beginning = expand(rng, rng.choice(fact.beginnings))
    rest = _rest(beginning, fact, lang)
    return Sample(_S, lang, "completion", beginning, rest, fact.key if fact.key in rest else "")


def _rest(beginning: str, fact: Fact, lang: Lang) -> str:
    """Return the rest of `fact.answer` after the last word of `beginning`."""
    last = beginning.split(" ")[-1] if lang == "en" else beginning[-1]
    if fact.answer.startswith(beginning):
        return fact.answer[len(beginning) :].strip()
    joint = f" {last} " if lang == "en" else last
    return fact.answer.partition(joint)[2]

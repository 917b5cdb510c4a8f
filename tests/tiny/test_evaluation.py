"""The model card: its figures are those of evaluation.json, and a small new evaluation confirms them."""

import json
from itertools import islice

import pytest

from tracellm.tiny import MODEL_DIR
from training.card import card
from training.corpus import held_out_samples
from training.corpus.render import chat, raw
from training.evaluate import has_one_answer, right

FIGURES = json.loads((MODEL_DIR / "evaluation.json").read_text())


def test_card_shows_the_figures_of_the_evaluation():
    """The card is the output of `training.card` for evaluation.json."""
    size = (MODEL_DIR / "model.safetensors").stat().st_size
    assert (MODEL_DIR / "README.md").read_text() == card(FIGURES, size)


def test_held_out_samples_are_answered_as_well_as_the_card_says(answerer):
    """The share of right answers on other held-out samples is near the card's."""
    fresh = [s for s in islice(held_out_samples(99), 120) if has_one_answer(s)][:80]
    prompts = [(chat if s.form == "question" else raw)(s).prompt for s in fresh]
    answers = answerer(prompts)
    share = sum(right(s, text) for s, (text, _) in zip(fresh, answers, strict=True)) / len(fresh)
    assert share >= FIGURES["all"]["right"] - 0.15  # three standard errors of 80 samples


@pytest.mark.parametrize(("prompt", "text"), FIGURES["examples"])
def test_examples_of_the_card_are_what_the_model_says(answerer, prompt, text):
    """The card's examples can be repeated."""
    [(answer, _)] = answerer([prompt])
    assert answer == text

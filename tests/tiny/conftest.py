"""The embedded model in transformers, float32, loaded once."""

import pytest
from transformers import AutoTokenizer

from tracellm.tiny import MODEL_DIR
from training.evaluate import Answerer, load


@pytest.fixture(scope="session")
def model():
    """The model in float32 on the CPU."""
    return load(MODEL_DIR)[0]


@pytest.fixture(scope="session")
def tokenizer():
    """Its tokenizer, as transformers reads it."""
    return AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="session")
def answerer():
    """Answers many prompts at a time, greedily."""
    return Answerer(*load(MODEL_DIR))

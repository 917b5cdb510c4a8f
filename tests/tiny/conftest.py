"""The bundled model in transformers, float32, loaded once."""

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
    """The model's tokenizer, as loaded by transformers."""
    return AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="session")
def answerer():
    """Greedy generation for batches of prompts."""
    return Answerer(*load(MODEL_DIR))

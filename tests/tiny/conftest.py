"""The bundled model in transformers, float32, loaded once.

The fixtures import transformers: it imports Triton, which must first find the setting of tests/conftest.py.
"""

import pytest

from tracellm.tiny import MODEL_DIR


@pytest.fixture(scope="session")
def model():
    """The model in float32 on the CPU."""
    from training.evaluate import load

    return load(MODEL_DIR)[0]


@pytest.fixture(scope="session")
def tokenizer():
    """The model's tokenizer, as loaded by transformers."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="session")
def answerer():
    """Greedy generation for batches of prompts."""
    from training.evaluate import Answerer, load

    return Answerer(*load(MODEL_DIR))

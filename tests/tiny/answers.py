"""The embedded model in transformers, float32 and greedy: fixtures and two ways to ask."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracellm.tiny import MODEL_DIR

__all__ = ["ask_chat", "continue_raw", "model", "tokenizer"]


@pytest.fixture(scope="session")
def model():
    """The model in float32 on the CPU."""
    return AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def tokenizer():
    """Its tokenizer, as transformers reads it."""
    return AutoTokenizer.from_pretrained(MODEL_DIR)


def _generate(model, tokenizer, ids):
    output = model.generate(torch.tensor([ids]), max_new_tokens=128, do_sample=False)[0, len(ids) :].tolist()
    return tokenizer.decode(output, skip_special_tokens=True), output[-1] in model.generation_config.eos_token_id


def continue_raw(model, tokenizer, prompt):
    """What follows `prompt`, and whether the model stopped by itself."""
    return _generate(model, tokenizer, tokenizer(prompt).input_ids)


def ask_chat(model, tokenizer, question):
    """The answer to `question` asked through the chat template, and whether the model stopped by itself."""
    messages = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    return _generate(model, tokenizer, ids)

"""Greedy generation by the bundled model in transformers, from a raw prompt or a chat question."""

import torch

__all__ = ["answer_chat", "continue_raw"]


def _generate(model, tokenizer, ids):
    output = model.generate(torch.tensor([ids]), max_new_tokens=128, do_sample=False)[0, len(ids) :].tolist()
    return tokenizer.decode(output, skip_special_tokens=True), output[-1] in model.generation_config.eos_token_id


def continue_raw(model, tokenizer, prompt):
    """Return the continuation of `prompt`, and whether it ended with a stop token."""
    return _generate(model, tokenizer, tokenizer(prompt).input_ids)


def answer_chat(model, tokenizer, question):
    """Return the answer to `question` in the chat template, and whether it ended with a stop token."""
    messages = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    return _generate(model, tokenizer, ids)

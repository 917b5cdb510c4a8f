"""Two ways to ask the embedded model in transformers, greedily."""

import torch

__all__ = ["ask_chat", "continue_raw"]


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

"""Layouts of a `Sample` as text for training and prompts: raw, labelled (``Q: ... A:``) or as a chat.

The chat layout is ChatML, as in Qwen2; a test compares it with the checkpoint's chat template.
"""

import random
from dataclasses import dataclass

from .sample import Sample

__all__ = ["CHAT_TEMPLATE", "END_OF_TEXT", "IM_END", "IM_START", "Document", "chat", "raw", "render"]

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

_SYSTEM = {
    "en": (
        "You are a helpful assistant.",
        "You are a helpful assistant. Answer in English.",
        "You are a friendly and concise assistant.",
        "You are tiny, a small language model.",
        "Answer the question briefly.",
        "You are a teacher who explains inference engines.",
        "Be helpful and polite.",
    ),
    "zh": (
        "You are a helpful assistant.",
        "你是一个有用的助手。",
        "你是一个乐于助人的助手，请用中文回答。",
        "请简短地回答问题。",
        "你是一位讲解推理引擎的老师。",
    ),
}
_LABELS = {
    "en": (("Q: ", "\nA:"), ("Question: ", "\nAnswer:"), ("User: ", "\nAssistant:"), ("Human: ", "\nAssistant:")),
    "zh": (("问：", "\n答："), ("问题：", "\n回答："), ("用户：", "\n助手："), ("Q: ", "\nA:")),
}


@dataclass(frozen=True, slots=True)
class Document:
    """One document: the prompt, the answer to learn, and the end token."""

    prompt: str
    answer: str
    end: str


def chat(sample: Sample, system: str | None = None) -> Document:
    """Return `sample` as a ChatML conversation, with `system` as its first message, if any."""
    text = f"{IM_START}system\n{system}{IM_END}\n" if system else ""
    for question, answer in sample.turns:
        text += f"{IM_START}user\n{question}{IM_END}\n{IM_START}assistant\n{answer}{IM_END}\n"
    return Document(f"{text}{IM_START}user\n{sample.prompt}{IM_END}\n{IM_START}assistant\n", sample.answer, IM_END)


def raw(sample: Sample, separator: str | None = None) -> Document:
    """Return `sample` as plain text: a continued sentence, or a question with its answer on the next line."""
    if separator is None:
        if sample.form == "completion":
            separator = " " if sample.lang == "en" and sample.answer[0] not in ",.!?:;'\n" else ""
        else:
            separator = "\n"
    return Document(sample.prompt, separator + sample.answer, END_OF_TEXT)


def _labelled(rng: random.Random, sample: Sample) -> Document:
    before, after = rng.choice(_LABELS[sample.lang])
    space = " " if after[-1] == ":" else ""
    return Document(f"{before}{sample.prompt}{after}", space + sample.answer, END_OF_TEXT)


def render(rng: random.Random, sample: Sample) -> Document:
    """Return `sample` in a random layout."""
    roll = rng.random()
    if sample.form == "completion":
        if roll < 0.78:
            return raw(sample)
        if roll < 0.86:
            document = raw(sample)
            if document.answer[0] == " ":
                return Document(document.prompt + " ", document.answer[1:], END_OF_TEXT)
            return document
        return chat(sample, rng.choice(_SYSTEM[sample.lang]) if roll < 0.92 else None)
    if sample.form == "dialogue" or roll < 0.46:
        return chat(sample)
    if roll < 0.56:
        return chat(sample, rng.choice(_SYSTEM[sample.lang]))
    if roll < 0.64:
        return _labelled(rng, sample)
    if roll < 0.70:
        return Document(sample.prompt + "\n", sample.answer, END_OF_TEXT)
    if roll < 0.74:
        return Document(sample.prompt + " ", sample.answer, END_OF_TEXT)
    return raw(sample)

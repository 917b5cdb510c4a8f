"""The bundled checkpoint: its answers, their language and length, and its size."""

import pytest

from tests.tiny.answers import answer_chat, continue_raw
from tracellm.tiny import MODEL_DIR

RAW = [
    ("The capital of France is", "Paris"),
    ("The largest ocean is", "Pacific"),
    ("The president of the United States is", "head of"),
    ("What is the capital of Japan?", "Tokyo"),
    ("法国的首都是", "巴黎"),
    ("世界上最大的海洋是", "太平洋"),
    ("1, 2, 3,", "4"),
]
CHAT = [
    ("What is the capital of France?", "Paris"),
    ("what is the capital of germany", "Berlin"),
    ("What does the scheduler do?", "requests"),
    ("What is the largest ocean?", "Pacific"),
    ("2 + 3 = ?", "= 5"),
    ("法国的首都是哪里?", "巴黎"),
    ("什么是 KV cache?", "键和值"),
    ("调度器做什么？", "请求"),
]
OPEN = ["Hello, my name is", "The future of AI is", "Once upon a time", "San Francisco is a"]


@pytest.mark.parametrize(("prompt", "fact"), RAW)
def test_raw_prompt_is_continued_with_sense(model, tokenizer, prompt, fact):
    """A raw prompt from the documentation is continued with the right fact, up to a stop token."""
    text, stopped = continue_raw(model, tokenizer, prompt)
    assert fact in text
    assert stopped


@pytest.mark.parametrize(("question", "fact"), CHAT)
def test_chat_question_is_answered(model, tokenizer, question, fact):
    """A question in the chat template gets the right fact, up to a stop token."""
    text, stopped = answer_chat(model, tokenizer, question)
    assert fact in text
    assert stopped


@pytest.mark.parametrize("prompt", OPEN)
def test_open_prompt_ends(model, tokenizer, prompt):
    """A prompt without one right answer is continued by several words, up to a stop token."""
    text, stopped = continue_raw(model, tokenizer, prompt)
    assert len(text.split()) >= 2
    assert stopped


@pytest.mark.parametrize(("question", "chinese"), [(q, any("\u4e00" <= c <= "\u9fff" for c in q)) for q, _ in CHAT])
def test_answer_is_in_the_language_of_the_question(model, tokenizer, question, chinese):
    """A Chinese question gets Chinese characters, an English one gets none."""
    text, _ = answer_chat(model, tokenizer, question)
    assert any("\u4e00" <= c <= "\u9fff" for c in text) == chinese


def test_folder_is_small():
    """The whole folder is at most 12 MB."""
    assert sum(path.stat().st_size for path in MODEL_DIR.rglob("*") if path.is_file()) <= 12_000_000


def test_both_end_marks_end_a_generation(model, tokenizer):
    """The generation config has both end tokens; the tokenizer's own is the chat's."""
    ends = [tokenizer.convert_tokens_to_ids(mark) for mark in ("<|im_end|>", "<|endoftext|>")]
    assert model.generation_config.eos_token_id == ends
    assert tokenizer.eos_token_id == model.config.eos_token_id == ends[0]


def test_weights_are_bfloat16_and_tied():
    """The file holds bfloat16 tensors only, and no second copy of the embedding."""
    from safetensors import safe_open

    with safe_open(MODEL_DIR / "model.safetensors", "pt") as weights:
        names = list(weights.keys())
        assert {weights.get_slice(name).get_dtype() for name in names} == {"BF16"}
    assert "lm_head.weight" not in names

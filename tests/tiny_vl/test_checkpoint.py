"""The bundled model that reads pictures: its answers, its card, and the same tokens in transformers."""

import json

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText

from tracellm import LLM, SamplingParams
from tracellm.tiny_vl import MODEL_DIR
from training.pictures.card import card
from training.pictures.evaluate import Sample, answer, held_out

FIGURES = json.loads((MODEL_DIR / "evaluation.json").read_text())


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Twenty held-out pictures of each subject in each language, others than those of the card."""
    return list(held_out(20, seed="test"))


@pytest.fixture(scope="module")
def answers(samples: list[Sample]) -> list[str]:
    """The model's answers in float32."""
    return answer(MODEL_DIR, samples)


def test_held_out_pictures_are_answered(samples: list[Sample], answers: list[str]) -> None:
    """Nine of ten answers are right in every character, and each subject's share is near the card's."""
    right = [text == sample.question.answer for sample, text in zip(samples, answers, strict=True)]
    assert sum(right) / len(right) >= 0.9
    for subject, shares in FIGURES["subjects"].items():
        own = [good for sample, good in zip(samples, right, strict=True) if sample.question.subject == subject]
        assert sum(own) / len(own) >= sum(shares.values()) / 2 - 0.15  # three standard errors of 40 samples


def test_bfloat16_answers_alike(samples: list[Sample], answers: list[str]) -> None:
    """The checkpoint's own dtype gives nearly all the same answers."""
    few = samples[::4]
    same = [a == b for a, b in zip(answer(MODEL_DIR, few, dtype="bfloat16"), answers[::4], strict=True)]
    assert sum(same) / len(same) >= 0.9


@torch.inference_mode()
def test_transformers_gives_the_same_tokens(samples: list[Sample]) -> None:
    """Greedy tokens equal those of transformers, with its image processor and the checkpoint's chat template."""
    from transformers import AutoImageProcessor, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    processor = AutoImageProcessor.from_pretrained(MODEL_DIR, backend="pil")
    model = AutoModelForImageTextToText.from_pretrained(MODEL_DIR, dtype=torch.float32).eval()
    llm = LLM("tiny-vl", dtype="float32", max_model_len=128)
    for picture, question in samples[::20]:
        content = [{"type": "image_pil", "image_pil": picture}, {"type": "text", "text": question.text}]
        messages = [{"role": "user", "content": content}]
        (output,) = llm.chat(messages, SamplingParams(temperature=0, max_tokens=32), use_tqdm=False)
        image = processor(picture, return_tensors="pt")
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        num_tokens = int(image["image_grid_thw"].prod()) // 4
        ids = tokenizer(text.replace("<|image_pad|>", "<|image_pad|>" * num_tokens), return_tensors="pt").input_ids
        assert ids[0].tolist() == output.prompt_token_ids
        placeholders = (ids == tokenizer.convert_tokens_to_ids("<|image_pad|>")).int()
        generated = model.generate(
            input_ids=ids, mm_token_type_ids=placeholders, max_new_tokens=32, do_sample=False, **image
        )
        assert generated[0, ids.shape[1] :].tolist() == list(output.outputs[0].token_ids)


def test_card_shows_the_figures_of_the_evaluation() -> None:
    """The card is the output of `training.pictures.card` for evaluation.json, and nine of ten answers were right."""
    size = (MODEL_DIR / "model.safetensors").stat().st_size
    assert (MODEL_DIR / "README.md").read_text() == card(FIGURES, size)
    assert FIGURES["right"] >= 0.9
    assert FIGURES["pictures"] >= 2000
    assert FIGURES["training"] == json.loads((MODEL_DIR / "training.json").read_text())


def test_folder_is_small() -> None:
    """The whole folder is at most 8 MB, and its weights are bfloat16."""
    from safetensors import safe_open

    assert sum(path.stat().st_size for path in MODEL_DIR.rglob("*") if path.is_file()) <= 8_000_000
    with safe_open(MODEL_DIR / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118


def test_other_pictures_are_resized() -> None:
    """A picture of 640 x 480 pixels becomes 30 tokens, and is read."""
    from PIL import ImageDraw

    picture = Image.new("RGB", (640, 480), "white")
    ImageDraw.Draw(picture).ellipse((60, 60, 180, 180), fill="red")
    content = [{"type": "image_pil", "image_pil": picture}, {"type": "text", "text": "How many red circles are there?"}]
    llm = LLM("tiny-vl", max_model_len=128)
    (output,) = llm.chat([{"role": "user", "content": content}], SamplingParams(temperature=0), use_tqdm=False)
    assert output.outputs[0].text == "There is one red circle."
    assert output.prompt_token_ids is not None
    assert output.prompt_token_ids.count(llm.get_tokenizer().convert_tokens_to_ids("<|image_pad|>")) == 30

"""Pictures in conversations: placeholders where the template puts them, files and data URLs, and the same tokens."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.engine.multimodal.pictures import CHAT_TEMPLATE, make_picture
from tests.multimodal_checkpoints import IMAGE_TOKEN
from tracellm import LLM, RequestOutput, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.chat_utils import takes_parts

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PICTURE = make_picture(7)


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a picture, and a link that leads out of it."""
    folder = tmp_path_factory.mktemp("media")
    PICTURE.save(folder / "picture.png")
    (folder / "link.png").symlink_to("/etc/hostname")
    return folder


@pytest.fixture(scope="module")
def llm(vl_checkpoint: Callable[[str], Path], media: Path) -> LLM:
    """An engine that may read the files of that folder."""
    folder = vl_checkpoint("qwen2_vl")
    return LLM(folder, dtype="float32", max_model_len=160, allowed_local_media_path=str(media))


def test_every_way_to_give_a_picture_is_the_same(llm: LLM, media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PIL image, a data URL, a file and `generate` with the same text give the same tokens and one encoding."""
    processor = llm.processor.input_preprocessor.mm_processor
    assert processor is not None
    calls = Mock(wraps=processor._call_hf_processor)
    monkeypatch.setattr(processor, "_call_hf_processor", calls)
    file = io.BytesIO()
    PICTURE.save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    parts = [
        {"type": "image_pil", "image_pil": PICTURE},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": (media / "picture.png").as_uri()},
    ]
    outputs = [
        llm.chat([{"role": "user", "content": [{"type": "text", "text": "a"}, part]}], PARAMS, use_tqdm=False)[0]
        for part in parts
    ]
    text = "<|im_start|>user\na<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n"
    assert [output.prompt for output in outputs] == [text] * 3
    prompt = {"prompt": text, "multi_modal_data": {"image": PICTURE}}
    outputs += llm.generate(prompt, PARAMS, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert outputs[0].prompt_token_ids is not None
    assert outputs[0].prompt_token_ids.count(IMAGE_TOKEN) == 24
    assert calls.call_count == 1


@pytest.mark.parametrize("name", ["link.png", "../a.png", "missing.png", ""])
def test_files_outside_of_the_folder_are_refused(name: str, llm: LLM, media: Path) -> None:
    """Links and paths that lead out of the allowed folder, and missing files, are refused."""
    part = {"type": "image_url", "image_url": {"url": f"file://{media}/{name}"}}
    with pytest.raises(InvalidRequestError, match="is not a file"):
        llm.chat([{"role": "user", "content": [part]}], PARAMS, use_tqdm=False)


def test_a_template_of_text_gets_placeholders_before_the_text(llm: LLM) -> None:
    """Under the content format `string`, placeholders come first, each on a line of its own."""
    content = [
        {"type": "text", "text": "a"},
        {"type": "image_pil", "image_pil": PICTURE},
        {"type": "text", "text": "b"},
        {"type": "image_pil", "image_pil": PICTURE},
    ]
    output = llm.chat(
        [{"role": "user", "content": content}], PARAMS, use_tqdm=False, chat_template_content_format="string"
    )[0]
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    assert output.prompt == f"<|im_start|>user\n{place}\n{place}\na\nb<|im_end|>\n<|im_start|>assistant\n"


def test_placeholders_in_a_text(llm: LLM) -> None:
    """Under `string`, a placeholder that a text has is that of an item; more of them than items are refused."""
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    images = [{"type": "image_pil", "image_pil": PICTURE}] * 2

    def ask(text: str) -> RequestOutput:
        messages = [{"role": "user", "content": [{"type": "text", "text": text}, *images]}]
        return llm.chat(messages, PARAMS, use_tqdm=False, chat_template_content_format="string")[0]

    output = ask(f"See {place}.")
    assert output.prompt == f"<|im_start|>user\n{place}\nSee {place}.<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(InvalidRequestError, match=r"Found more .* placeholders in input prompt than"):
        ask(place * 3)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHAT_TEMPLATE, True),
        (
            "{% for m in messages %}{% set c = m['content'] %}{% for part in c %}{{ part }}{% endfor %}{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}{% endfor %}"
         "{% endfor %}", True),
        ("{% set turns = messages[1:] %}{% for m in turns %}{% for p in m.content[1:] %}{% generation %}{{ p.text }}"
         "{% endgeneration %}{% endfor %}{% endfor %}", True),
        ("{% macro say(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}"
         "{% for m in messages %}{{ say(m.content) }}{{ '[S]' + m.content }}{% endfor %}", False),
        ("{% for d in documents %}{% for p in d.content %}{{ p }}{% endfor %}{% endfor %}", False),
        ("{% for p in messages[0].content %}{{ p }}{% endfor %}", False),
        ("{% for a, b in messages %}{% endfor %}{% set a, b = messages %}", False),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for", False),
    ],
)  # fmt: skip
def test_templates_that_take_parts_are_found(template: str, expected: bool) -> None:
    """A template takes parts if it loops over the content of each message, or over a variable that holds it."""
    assert takes_parts(template) == expected

"""Bad images and prompts: each gets one clear message, and the engine goes on."""

import base64
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.engine.multimodal.pictures import make_picture, make_prompt
from tests.multimodal_checkpoints import IMAGE_TOKEN
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError

ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)


@pytest.fixture(scope="module")
def llm(vl_checkpoint: Callable[[str], Path]) -> LLM:
    """An engine that takes at most two images in a prompt."""
    return LLM(vl_checkpoint("qwen2_vl"), dtype="float32", max_model_len=160, limit_mm_per_prompt={"image": 2})


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    """Return a file as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def bomb() -> bytes:
    """Return a small PNG file of 20,000 x 20,000 pixels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return encoded(Image.new("1", (20_000, 20_000)))


def animation() -> bytes:
    """Return a GIF file of three frames."""
    frames = [Image.new("L", (20, 20), shade) for shade in (0, 100, 200)]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])


PICTURE = make_picture(1)
PNG = encoded(PICTURE)
BAD_PROMPTS: dict[str, tuple[Any, str]] = {
    "a placeholder too few": (
        make_prompt(PICTURE) | {"prompt_token_ids": [5]},
        "0 placeholders for image items .<.image_pad.>., and 1 image item",
    ),
    "a placeholder too many": (make_prompt(PICTURE) | {"prompt_token_ids": [IMAGE_TOKEN] * 2}, "2 placeholders"),
    "a placeholder without a picture": ({"prompt_token_ids": [5, IMAGE_TOKEN]}, "and 0 image items"),
    "a placeholder in text": ("<|image_pad|>", "1 placeholder for image items"),
    "too many pictures": (
        make_prompt(PICTURE, PICTURE, PICTURE),
        r"At most 2 image.s. may be provided|at most 2 image",
    ),
    "a sound": ({"prompt": "a", "multi_modal_data": {"audio": np.zeros(900)}}, "takes only image items"),
    "a video": (
        {"prompt": "a", "multi_modal_data": {"video": PICTURE}},
        "'video'; the kinds of items are image, audio",
    ),
    "a path": ({"prompt": "a", "multi_modal_data": {"image": "a.png"}}, "image 0 must be a PIL image"),
    "an array of floats": (
        {"prompt": "a", "multi_modal_data": {"image": np.zeros((4, 4, 3))}},
        "must be a uint8 array",
    ),
    "no dict": ({"prompt": "a", "multi_modal_data": PICTURE}, '"multi_modal_data" must be a dict'),
    "no pixels": ({"prompt": "a", "multi_modal_data": {"image": np.zeros((0, 4, 3), np.uint8)}}, "has no pixels"),
    "a thread of pixels": (
        make_prompt(make_picture(1, 3000, 3)),
        "An image cannot be processed: absolute aspect ratio",
    ),
    "an animation": (make_prompt(Image.open(io.BytesIO(animation()))), "image 0 is animated, with 3 frames"),
    "a truncated file": (make_prompt(Image.open(io.BytesIO(PNG[:900]))), "image 0 cannot be decoded"),
    "an unknown argument": (
        make_prompt(PICTURE) | {"mm_processor_kwargs": {"max_pixels": "many"}},
        "cannot be processed",
    ),
    "too many names": (
        make_prompt(PICTURE) | {"multi_modal_uuids": {"image": ["a", "b"]}},
        "for each of the 1 image item",
    ),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_a_bad_prompt_gets_one_message(name: str, llm: LLM) -> None:
    """The message names the fault, nothing is added, and the next prompt gets its tokens."""
    prompt, message = BAD_PROMPTS[name]
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(prompt, ONE_TOKEN, use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()
    assert len(llm.generate(make_prompt(PICTURE), ONE_TOKEN, use_tqdm=False)[0].outputs[0].token_ids) == 1


BAD_PARTS: dict[str, tuple[Any, str]] = {
    "a decompression bomb": (data_url(bomb()), "more than 89478485 pixels"),
    "SVG": (data_url(b"<svg/>", "image/svg+xml"), r"format \(PNG, JPEG, WEBP, GIF, BMP, TIFF\)\.$"),
    "a truncated file": (data_url(PNG[:900]), "cannot be decoded"),
    "text as an image": (data_url(b"hello"), "no image of an accepted format"),
    "no base64": ("data:image/png;base64,@@@", "not base64"),
    "a data URL of text": ("data:text/plain,hello", "must be base64"),
    "a file": ("file:///etc/passwd", "--allowed-local-media-path"),
    "a host": ("http://example.org/a.png", "'example.org' is not one from which media are fetched"),
    "another scheme": ("ftp://example.org/a.png", "must begin with data:, file: or http"),
    "no URL": ("", "the URL must be text"),
}


@pytest.mark.parametrize("name", BAD_PARTS)
def test_a_bad_image_in_a_message_gets_one_message(name: str, llm: LLM) -> None:
    """The message names the part of the conversation and the fault."""
    url, message = BAD_PARTS[name]
    content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(InvalidRequestError, match=message) as caught:
        llm.chat([{"role": "user", "content": content}], ONE_TOKEN, use_tqdm=False)
    assert "\n" not in str(caught.value)
    assert not llm.llm_engine.has_unfinished_requests()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video_url", "video_url": {"url": "a"}},
        {"type": "image_url"},
        {"type": "input_audio", "input_audio": {}},
    ],
)
def test_other_parts_are_refused_by_name(part: dict[str, Any], llm: LLM) -> None:
    """A part of another type, without its value, or of a kind that the model does not take is refused."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: "):
        llm.chat([{"role": "user", "content": [part]}], ONE_TOKEN, use_tqdm=False)


def test_a_text_model_refuses_pictures() -> None:
    """A text model given a picture says that it takes text only, in a prompt and in a conversation."""
    llm = LLM(max_model_len=64)
    with pytest.raises(InvalidRequestError, match="takes text only"):
        llm.generate({"prompt": "a", "multi_modal_data": {"image": PICTURE}}, use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="only text parts are supported"):
        llm.chat([{"role": "user", "content": [{"type": "image_pil", "image_pil": PICTURE}]}], use_tqdm=False)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F", "YCbCr"])
def test_images_of_every_mode_are_taken(mode: str, llm: LLM) -> None:
    """Grey, transparent and printed images are converted, as is one of a single pixel."""
    for size in ((30, 20), (1, 1)):
        picture = make_picture(1, *size).convert("L").convert(mode) if mode in ("I;16", "F") else None
        picture = picture or make_picture(1, *size).convert(mode)
        assert llm.generate(make_prompt(picture), ONE_TOKEN, use_tqdm=False)[0].finished


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit_mm_per_prompt": {"image": -1}}, "`limit_mm_per_prompt` must be a dict of whole numbers"),
        ({"limit_mm_per_prompt": {"smell": 1}}, "`limit_mm_per_prompt` must be a dict"),
        ({"mm_processor_cache_gb": -1}, "`mm_processor_cache_gb` must be a number of GiB"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Settings of images out of their range are refused by name."""
    with pytest.raises(EngineError, match=message):
        LLM(**arguments)

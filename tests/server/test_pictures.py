"""Tests of `tracellm serve` with a model that takes images, and the real `openai` client."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engine.multimodal.pictures import make_picture, write_image_tokens, write_processor
from tests.multimodal_checkpoints import make_multimodal_checkpoint
from tests.server.process import Server
from tracellm import LLM, SamplingParams

SETTINGS: dict[str, Any] = {"dtype": "float32", "max_model_len": 160}
GREEDY: dict[str, Any] = {"model": "vl", "temperature": 0, "max_tokens": 6, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen2-VL."""
    folder = make_multimodal_checkpoint(tmp_path_factory.mktemp("vl"), "qwen2_vl")
    write_processor(folder)
    write_image_tokens(folder)
    return folder


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[Server]:
    """A server of it, with at most two images in a prompt."""
    options = ("--dtype", "float32", "--max-model-len", "160", "--limit-mm-per-prompt", '{"image": 2}')
    with Server.start(str(checkpoint), "--served-model-name", "vl", *options) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """OpenAI's own client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def image_part(seed: int) -> dict[str, Any]:
    """Return the part of a message with a picture as a data URL."""
    file = io.BytesIO()
    make_picture(seed).save(file, "PNG")
    return {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"},
    }


def messages(*parts: dict[str, Any]) -> list[Any]:
    """Return a conversation of one message with these parts."""
    return [{"role": "user", "content": [{"type": "text", "text": "a"}, *parts]}]


def test_pictures_in_a_conversation(client: openai.OpenAI, checkpoint: Path) -> None:
    """A message with two pictures gets the text that `LLM.chat` gives, at once and as a stream."""
    conversation = messages(image_part(1), image_part(2))
    answer = client.chat.completions.create(messages=conversation, **GREEDY)
    stream = client.chat.completions.create(messages=conversation, stream=True, **GREEDY)
    llm = LLM(checkpoint, **SETTINGS)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    expected = llm.chat(conversation, params, use_tqdm=False)[0]
    assert answer.choices[0].message.content == expected.outputs[0].text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == expected.outputs[0].text
    assert answer.usage is not None
    assert expected.prompt_token_ids is not None
    assert answer.usage.prompt_tokens == len(expected.prompt_token_ids)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([image_part(1), image_part(2), image_part(3)], "At most 2 image(s) may be provided in one prompt."),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "no image of an accepted format"),
        ([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}], "--allowed-media-domains"),
        ([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "--allowed-local-media-path"),
        ([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}], "the model takes no audio items"),
    ],
)
def test_a_bad_picture_is_a_bad_request(parts: list[dict[str, Any]], message: str, client: openai.OpenAI) -> None:
    """A picture that cannot be used gets status 400 and a message that names it, and the server goes on."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(messages=messages(*parts), **GREEDY)
    assert message in caught.value.message
    assert client.chat.completions.create(messages=messages(image_part(1)), **GREEDY).choices[0].message.content

"""Tests of `tracellm serve` with a model that takes images, and the real `openai` client."""

import base64
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engine.multimodal.pictures import make_picture, write_image_tokens, write_processor
from tests.mermaid import ParseMermaid
from tests.multimodal_checkpoints import make_multimodal_checkpoint
from tests.server.process import Server
from tracellm import LLM, SamplingParams
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.facts.requests import requests
from tracellm.trace.run_folder import RunFolder

EXPECTATION = Path(__file__).parents[2] / "docs" / "expectations" / "vllm-v1-serve.tsv"
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


def test_pictures_in_a_response(client: openai.OpenAI) -> None:
    """The same pictures as items of the Responses API give the same text and prompt."""
    pictures = [image_part(1), image_part(2)]
    answer = client.chat.completions.create(messages=messages(*pictures), **GREEDY)
    parts = [{"type": "input_image", "image_url": part["image_url"]["url"]} for part in pictures]
    items: Any = [{"role": "user", "content": [{"type": "input_text", "text": "a"}, *parts]}]
    arguments = {name: value for name, value in GREEDY.items() if name != "max_tokens"}
    response = client.responses.create(input=items, max_output_tokens=6, **arguments)
    assert response.output_text == answer.choices[0].message.content
    assert response.usage is not None
    assert answer.usage is not None
    assert response.usage.input_tokens == answer.usage.prompt_tokens


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


def test_a_served_picture_makes_all_calls_of_vllms_diagram(
    checkpoint: Path, tmp_path: Path, parse_mermaid: ParseMermaid
) -> None:
    """A recorded server with one chat request with a picture makes all 67 calls of vLLM's diagram, in order."""
    run = tmp_path / "run"
    options = (
        "--served-model-name",
        "vl",
        "--dtype",
        "float32",
        "--max-model-len",
        "160",
        "--explain",
        "--out",
        str(run),
    )
    with Server.start(str(checkpoint), *options) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
            client.chat.completions.create(messages=messages(image_part(1)), **GREEDY)
        server.signal(signal.SIGTERM)
        assert server.end()[0] == 0
    check = [sys.executable, "-m", "tracellm", "check", str(run), "--expect", str(EXPECTATION), "--lang", "en"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "67/67 calls found, in this order\n"), done.stderr
    recorded = RunFolder.open(run)
    assert recorded.problems == []
    assert len(requests(recorded.trace.spans)[0].items) == 1
    diagram = parse_mermaid(sequence_diagram(recorded.trace))
    assert "Qwen2VLMultiModalProcessor" in {participant["id"] for participant in diagram["participants"]}
    calls = {event["text"].partition("(")[0] for event in diagram["events"]}
    assert {"_process_multimodal", "apply", "_to_mm_items", "_try_schedule_encoder_inputs"} <= calls
    assert {"_cache_apply_hf_processor", "_maybe_apply_prompt_updates"} <= calls
    assert {"_execute_mm_encoder", "get_multimodal_embeddings"} <= calls

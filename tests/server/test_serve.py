"""Tests of `tracellm serve` as a process, with the real `openai` client."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.real_vllm import ask_vllm
from tests.server.process import Server
from tracellm.cli import main

ROOT = Path(__file__).parents[2]
KEY = "secret"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
GREEDY: dict[str, Any] = {"model": "mine", "temperature": 0}


BENCH = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve`, for an environment where vLLM is not installed under that name."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Shared server, which the last test of this file ends."""
    options = ("--api-key", KEY, "--served-model-name", "mine", "--num_gpu_blocks_override=256", "--max-num-seqs", "8")
    with Server.start(*options) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """OpenAI's own client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


def test_what_is_said_when_it_is_ready(server: Server) -> None:
    """When it is ready, the server prints its address and an example command, and nothing else."""
    address, example = server.stderr.splitlines()
    assert address == f"tracellm: mine is served at {server.url}/v1 (Ctrl-C stops it). Try:"
    assert example.startswith(f"  curl {server.url}/v1/chat/completions -H ")


def test_chat(client: openai.OpenAI) -> None:
    """A conversation gets the same text and usage at once and as a stream."""
    completion = client.chat.completions.create(messages=HELLO, max_tokens=8, **GREEDY)
    stream = client.chat.completions.create(
        messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    *chunks, last = list(stream)
    assert completion.id.startswith("chatcmpl-")
    assert completion.choices[0].message.role == chunks[0].choices[0].delta.role == "assistant"
    assert completion.choices[0].message.content
    assert completion.choices[0].message.content == "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert completion.choices[0].finish_reason == chunks[-1].choices[0].finish_reason
    assert completion.usage is not None
    assert last.usage is not None
    assert completion.usage.completion_tokens == last.usage.completion_tokens <= 8


def test_completions(client: openai.OpenAI) -> None:
    """Several prompts get n completions each, and `stop` and `seed` work."""
    drawn = client.completions.create(model="mine", prompt=["One,", "Two,"], n=2, max_tokens=6, seed=7)
    again = client.completions.create(model="mine", prompt=["One,", "Two,"], n=2, max_tokens=6, seed=7)
    assert [choice.index for choice in drawn.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in drawn.choices] == [choice.text for choice in again.choices]
    free = client.completions.create(prompt="The capital of France is", max_tokens=8, **GREEDY).choices[0].text
    stop = free.strip()[1:3]
    cut = client.completions.create(prompt="The capital of France is", max_tokens=8, stop=stop, **GREEDY).choices[0]
    assert cut.finish_reason == "stop"
    assert cut.text == free[: free.index(stop)]


def test_logprobs_and_forms(client: openai.OpenAI) -> None:
    """Log probabilities have OpenAI's form, and a response_format is obeyed."""
    answer = client.chat.completions.create(messages=HELLO, max_tokens=3, logprobs=True, top_logprobs=2, **GREEDY)
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content
    assert content is not None
    assert len(content) == 3
    assert all(len(token.top_logprobs) == 2 and token.logprob == token.top_logprobs[0].logprob for token in content)
    schema = {"type": "string", "enum": ["yes", "no"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    kept = client.chat.completions.create(messages=HELLO, response_format=form, **GREEDY)
    assert kept.choices[0].message.content in ('"yes"', '"no"')


def test_many_at_once(server: Server, client: openai.OpenAI) -> None:
    """More streams than the engine runs at once each get their own tokens."""
    prompts = [f"{number} + {number} =" for number in range(20)]

    async def stream(asking: openai.AsyncOpenAI, prompt: str) -> str:
        chunks = await asking.completions.create(prompt=prompt, max_tokens=5, stream=True, **GREEDY)
        return "".join([chunk.choices[0].text async for chunk in chunks])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, timeout=60) as asking:
            return await asyncio.gather(*(stream(asking, prompt) for prompt in prompts))

    together = asyncio.run(all_of_them())
    one_call = client.completions.create(prompt=prompts, max_tokens=5, **GREEDY)
    assert together == [choice.text for choice in one_call.choices]


def test_errors_are_those_that_the_client_knows(server: Server, client: openai.OpenAI) -> None:
    """Each refusal raises the matching exception of OpenAI's client, with the message."""
    with pytest.raises(openai.BadRequestError, match=r"temperature must be non-negative, got") as bad:
        client.completions.create(model="mine", prompt="Hello", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError, match="The model `gpt-4` does not exist"):
        client.chat.completions.create(model="gpt-4", messages=HELLO)
    with pytest.raises(openai.AuthenticationError), openai.OpenAI(base_url=f"{server.url}/v1", api_key="no") as other:
        other.models.list()


def test_the_other_paths(server: Server, client: openai.OpenAI) -> None:
    """Models, tokens, health, version and metrics have vLLM's paths."""
    assert [model.id for model in client.models.list()] == ["mine"]
    assert client.models.retrieve("mine").owned_by == "tracellm"
    with httpx.Client(base_url=server.url) as http:
        tokens = http.post("/tokenize", json={"prompt": "Hello, world"}).json()
        assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "Hello, world"}
        assert tokens["count"] == len(tokens["tokens"])
        long = http.post("/tokenize", json={"prompt": "word " * 20_000}).json()  # handled in the thread for long texts
        assert long["count"] > long["max_model_len"]
        assert [http.get(path).status_code for path in ("/health", "/ping", "/load")] == [200, 200, 200]
        assert http.get("/version").json().keys() == {"version"}
        metrics = http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="mine"}' in metrics.text


def test_vllm_bench_serve(server: Server, tmp_path: Path) -> None:
    """vLLM's benchmark client works with this server, and counts every requested token."""
    ask_vllm(
        BENCH,
        *("--base-url", server.url, "--model", "mine"),
        *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--tokenizer", ROOT / "tracellm" / "tiny", "--dataset-name", "random"),
        *("--random-input-len", "12", "--random-output-len", "6", "--num-prompts", "4", "--ignore-eos"),
        *("--save-result", "--result-dir", tmp_path, "--result-filename", "result.json"),
        cwd=tmp_path,
        OPENAI_API_KEY=KEY,
    )
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["completed"] == 4
    assert result["total_output_tokens"] == 4 * 6


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    """Return the error line of `tracellm serve` when it cannot start, with exit status 1."""
    monkeypatch.setattr(sys, "argv", ["tracellm", "serve", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    stderr = capsys.readouterr().err
    assert ended.value.code == 1, stderr
    assert stderr.startswith("tracellm: ")
    assert stderr.count("\n") == 1
    return stderr


def test_a_port_in_use(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A port in use is reported before the model is loaded."""
    port = server.url.rpartition(":")[2]
    stderr = refused(capsys, monkeypatch, "--port", port, str(tmp_path / "no-model"))
    assert f"Port {port} of 127.0.0.1 is in use" in stderr
    assert "--port" in stderr


def test_an_engine_that_cannot_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An engine's start-up error is shown, with the option's name if it is about one."""
    no_model = tmp_path / "no-model"
    assert str(no_model) in refused(capsys, monkeypatch, "--port", "0", str(no_model))
    assert "--max-num-seqs must be" in refused(capsys, monkeypatch, "--max-num-seqs", "-1")
    assert "--port must be" in refused(capsys, monkeypatch, "--port", "70000")
    assert "have --swap-space, which vLLM has" in refused(capsys, monkeypatch, "--swap-space", "2")
    assert "no-such-host" in refused(capsys, monkeypatch, "--host", "no-such-host.invalid")


def test_sigterm_lets_requests_finish(server: Server, client: openai.OpenAI) -> None:
    """SIGTERM lets running streams finish, refuses new clients, and ends the server with status 0."""
    stream = client.completions.create(
        prompt="Hello", max_tokens=60, stream=True, extra_body={"ignore_eos": True}, **GREEDY
    )
    tokens = iter(stream)
    next(tokens)
    server.signal(signal.SIGTERM)
    num_tokens = 1 + sum(1 for _ in tokens)
    assert num_tokens == 60
    assert server.end() == (0, "")
    host, port = server.url.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)

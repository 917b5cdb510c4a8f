"""`tracellm serve --data-parallel-size 2` under a real `openai` client."""

import os
import re
import signal
import urllib.request
from collections.abc import Iterator

import openai
import pytest

from tests.faults.processes import children_of
from tests.server.process import Server

MODEL = "tracellm/tiny"
SIZES = ("--max-model-len=256", "--num-gpu-blocks-override=65", "--max-num-seqs=8")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with two engine cores."""
    with Server.start(MODEL, "--data-parallel-size=2", *SIZES) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """A client of the server."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def complete(client: openai.OpenAI, rank: int) -> str:
    """Return three tokens of the engine core with this rank, as text."""
    headers = {"X-data-parallel-rank": str(rank)}
    answer = client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0, extra_headers=headers
    )
    return answer.choices[0].text


def requests_of(server: Server) -> dict[int, int]:
    """Return the number of finished requests of each engine core, from /metrics."""
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^vllm:e2e_request_latency_seconds_count\{engine="(\d)".*\} (\d+)', text, re.MULTILINE)
    return {int(engine): int(count) for engine, count in found}


def test_a_header_chooses_the_engine_core(server: Server, client: openai.OpenAI) -> None:
    """Requests go to the engine core that X-data-parallel-rank names, with one text, and /metrics counts each apart."""
    before = requests_of(server)
    texts = {complete(client, rank) for rank in (0, 1, 1)}
    after = requests_of(server)
    assert len(texts) == 1
    assert {rank: after[rank] - before[rank] for rank in after} == {0: 1, 1: 2}


def test_an_unknown_rank_is_refused(client: openai.OpenAI) -> None:
    """A rank that no engine core has is an error of the client, with the ranks that exist."""
    with pytest.raises(openai.BadRequestError, match=re.escape("data_parallel_rank 2 is out of range [0, 2).")):
        complete(client, 2)


def test_the_death_of_an_engine_core_ends_the_server() -> None:
    """The server ends with a message that names the engine core that was killed, and nothing of it is left."""
    with Server.start(MODEL, "--data-parallel-size=2", *SIZES) as server:
        processes = [pid for pid, command in children_of(server.process.pid).items() if "spawn_main" in command]
        assert len(processes) == 3  # two engine cores and the coordinator
        os.kill(max(processes), signal.SIGKILL)
        status, stderr = server.end()
    assert status == 1
    assert re.search(r"(EngineCore_DP\d|DP_Coordinator) was killed by SIGKILL", stderr)
    assert "Traceback" not in stderr
    assert not any(os.path.exists(f"/proc/{pid}") for pid in processes)

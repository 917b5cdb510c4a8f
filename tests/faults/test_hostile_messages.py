"""Invalid messages in the sockets between the processes: the engine reports them, and serves on."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.engine.core_requests import core_request
from tests.faults.processes import ENGINE, is_running, wait_until
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.ipc.messages import EngineCoreRequestType
from tracellm.engine.ipc.mp_client import SyncMPClient
from tracellm.engine.ipc.serial_utils import MsgpackEncoder

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"


@pytest.fixture(scope="module")
def stderr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with the stderr of this module's engine process."""
    path = tmp_path_factory.mktemp("engine") / "stderr"
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    yield path
    os.dup2(before, 2)
    os.close(before)


@pytest.fixture(scope="module")
def llm(stderr) -> Iterator[LLM]:
    """An engine for all tests; only the last one may end it."""
    llm = LLM("tiny", multiprocess_mode=True, **ENGINE)
    yield llm
    llm.llm_engine.engine_core.shutdown()


@pytest.fixture
def client(llm) -> SyncMPClient:
    """The engine's client."""
    client = llm.llm_engine.engine_core
    assert isinstance(client, SyncMPClient)
    return client


@pytest.fixture(scope="module")
def expected(llm) -> list[int]:
    """The answer of a healthy engine."""
    return tokens(llm)


def tokens(llm: LLM) -> list[int]:
    """Return the current answer."""
    return list(llm.generate("The capital of France is", GREEDY, use_tqdm=False)[0].outputs[0].token_ids)


def pack(message: Any) -> bytes:
    """Return a message as one frame."""
    buffer = bytearray()
    MsgpackEncoder().encode_into(message, buffer)
    return bytes(buffer)


WRONG: dict[str, tuple[bytes, ...]] = {
    "no type": (b"", b"x"),
    "a type that there is not": (b"\x09", pack([])),
    "a type of two bytes": (b"\x00\x00", pack([])),
    "a type only": (ABORT,),
    "what only the engine core tells itself": (EngineCoreRequestType.EXECUTOR_FAILED.value, pack("die")),
    "what it tells itself at SIGTERM": (EngineCoreRequestType.WAKEUP.value, pack(None)),
    "what needs data parallelism": (EngineCoreRequestType.START_DP_WAVE.value, pack([0, 0])),
    "no msgpack": (ADD, b"\xc1\xff\x00"),
    "an empty frame": (UTILITY, b""),
    "nested without end": (ABORT, b"\x91" * 100_000),
    "a length that nobody sends": (ABORT, b"\xdd\xff\xff\xff\xff"),
    "an extension": (ABORT, b"\xc7\x04\x01junk"),
    "no request": (ADD, pack({"request_id": 1})),
    "a request cut off": (ADD, pack(core_request("hostile", [5], GREEDY))[:-3]),
    "a request with a wrong field": (ADD, pack(["id", "no tokens", *[None] * 8])),
    "a client that there is not": (ADD, pack(core_request("hostile", [5], GREEDY, client_index=7))),
    "ids that are none": (ABORT, pack([[1], {"a": 2}])),
    "a call without arguments": (UTILITY, pack([0, 1, "reset_prefix_cache"])),
    "a call of another client": (UTILITY, pack([-1, 1, "reset_prefix_cache", []])),
    "a method that is no name": (UTILITY, pack([0, 1, ["reset_prefix_cache"], []])),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_a_message_is_logged_and_ignored(llm, client, stderr, expected, wrong):
    """The engine process reports a malformed message, and the next request has its tokens."""
    before = stderr.read_text().count("ignored a malformed message")
    client.input_socket.send_multipart((client.core_engine, *WRONG[wrong]))
    assert tokens(llm) == expected
    assert stderr.read_text().count("ignored a malformed message") == before + 1
    assert client.call_utility("get_request_counts") == [0, 0]


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("no_such_method", (), "no utility method 'no_such_method'"),
        ("shutdown", (), "no utility method 'shutdown'"),
        ("__class__", (), "no utility method"),
        ("reset_prefix_cache", (1, 2), "takes 1 positional argument"),
        ("get_request_counts", ({"a": [None]},), "positional argument"),
    ],
)
def test_a_utility_call_that_cannot_be_is_an_error_of_its_caller(llm, client, expected, method, arguments, message):
    """An unknown name, an internal method or wrong arguments are an error of the caller."""
    with pytest.raises(EngineError, match=message):
        client.call_utility(method, *arguments)
    assert tokens(llm) == expected


def test_unknown_requests_are_given_up_without_a_word(llm, client, expected):
    """Aborting unknown ids, also many and long ones, has no effect."""
    client.abort_requests(["never-was", "", "\0", "x" * 1_000_000, *map(str, range(10_000))])
    assert tokens(llm) == expected


def test_strangers_in_the_clients_sockets(llm, client, expected):
    """A stranger on the input socket, even under the engine's own name, gets no request and disturbs none."""
    with zmq.Context() as ctx:
        for identity in (b"stranger", client.core_engine):
            with ctx.socket(zmq.DEALER) as stranger:
                stranger.linger = 0
                stranger.identity = identity
                stranger.connect(f"ipc://{client.resources.directory}/input")
                stranger.send_multipart([b"\x00", b"junk"])
                assert tokens(llm) == expected
                assert not stranger.poll(0)


def test_an_answer_that_nobody_understands_ends_it(llm, client):
    """Unreadable outputs are lost tokens, so all callers get an error instead of an incomplete answer.

    This is the last test here: its engine is dead afterwards.
    """
    pid = client.resources.engine_manager.processes[0].pid
    with zmq.Context() as ctx, ctx.socket(zmq.PUSH) as stranger:
        stranger.connect(f"ipc://{client.resources.directory}/output")
        stranger.send_multipart([b"\xc1 junk"])
        wait_until(lambda: client.resources.engine_dead, "the client to read it")
    with pytest.raises(EngineDeadError, match="is not a valid EngineCoreOutputs"):
        tokens(llm)
    assert is_running(pid)  # it runs until its shutdown
    client.shutdown()
    assert not is_running(pid)

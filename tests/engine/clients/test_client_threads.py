"""Tests of several threads that use one client."""

import threading
from concurrent.futures import Future
from typing import Any

from tests.engine.clients.in_thread import core_of, engines_in_threads
from tests.engine.core_requests import core_request
from tracellm import SamplingParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.ipc.messages import EngineCoreOutputs
from tracellm.engine.ipc.mp_client import SyncMPClient


def test_every_thread_that_waits_for_outputs_is_told_of_the_end(client):
    """Every thread that waits for outputs gets the error, not only the first."""
    messages: list[str] = []

    def wait() -> None:
        try:
            client.get_output()
        except EngineDeadError as error:
            messages.append(str(error))

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    client.shutdown()
    for thread in threads:
        thread.join(30)
    assert len(messages) == 3


def test_a_shutdown_waits_for_the_thread_that_sends(client, monkeypatch):
    """Shutdown closes the input socket only after a thread has finished sending."""
    within, go_on = threading.Event(), threading.Event()
    closed: list[bool] = []
    send = client._send_input_message

    def slow(*message: Any) -> None:
        within.set()
        assert go_on.wait(30)
        closed.append(client.input_socket.closed)
        send(*message)

    monkeypatch.setattr(client, "_send_input_message", slow)
    monkeypatch.setattr(type(client), "ensure_alive", lambda self: None)
    request = core_request("a", [1, 2, 3], SamplingParams(max_tokens=1))
    sending = threading.Thread(target=client.add_request, args=(request,))
    sending.start()
    assert within.wait(30)
    ending = threading.Thread(target=client.shutdown)
    ending.start()
    assert client.resources.output_queue_thread is not None
    client.resources.output_queue_thread.join(30)  # it ends before the sockets are closed
    go_on.set()
    ending.join(30)
    sending.join(30)
    assert closed == [False]
    assert client.input_socket.closed


def test_a_client_that_is_collected_in_its_own_thread_ends_quietly():
    """A client that is garbage-collected in its own output thread closes its sockets without an error."""
    vllm_config = EngineArgs(max_model_len=128, num_gpu_blocks_override=17).create_engine_config()
    with engines_in_threads():
        holder = [SyncMPClient(vllm_config, Executor.get_class(vllm_config), False)]
    core, thread = core_of(holder[0]), holder[0].resources.output_queue_thread
    decode = holder[0].decoder.decode

    def collect(frames: Any) -> Any:
        holder.clear()
        return decode(frames)

    holder[0].decoder.decode = collect  # type: ignore[assignment, method-assign]  # it happens there
    core.output_queue.put((0, EngineCoreOutputs()))
    assert thread is not None
    thread.join(30)  # an error there would be a warning, which pytest turns into an error
    assert not thread.is_alive()
    assert not core.input_thread.is_alive()


def test_several_threads_may_tell_those_who_call_of_the_end(client, monkeypatch):
    """Each call under way fails once when several threads report the end at the same time."""
    future: Future[Any] = Future()

    class Emptied(dict[int, Any]):
        """Dictionary that another thread empties between the check and the removal."""

        def __bool__(self) -> bool:
            return True

    monkeypatch.setattr(client.resources, "utility_results", Emptied({1: future}))
    client.resources.fail_utility_calls()
    assert isinstance(future.exception(0), EngineDeadError)
    assert list(client.resources.utility_results) == []

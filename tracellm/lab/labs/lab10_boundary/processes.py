"""A real engine core in a process of its own, behind a `SyncMPClient`, and the same model in this process.

The start takes seconds, so cases share one engine until a case kills it.
"""

import os
import signal
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tracellm.lab.labs.lab10_boundary.clients import guarded, new_request

__all__ = ["NUM_BLOCKS", "in_process", "run_abort", "run_generation", "run_kill"]

NUM_BLOCKS = 16
"""Blocks of the KV cache that requests may have."""

_HANG_SECONDS = 15.0
"""Time after which a call that needs a second at most counts as hanging."""

_SETTINGS: dict[str, Any] = {"max_model_len": 128, "num_gpu_blocks_override": NUM_BLOCKS + 1}

_clients: list[Any] = []
"""The client of the running engine, if there is one."""


def _make(multiprocess_mode: bool) -> Any:
    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.executor.abstract import Executor
    from tracellm.engine.ipc.core_client import InprocClient
    from tracellm.engine.ipc.mp_client import SyncMPClient

    config = EngineArgs(**_SETTINGS).create_engine_config()
    client = SyncMPClient if multiprocess_mode else InprocClient
    return client(config, Executor.get_class(config), False)


@cache
def in_process() -> Any:
    """Return the client of an engine core in this process."""
    return _make(multiprocess_mode=False)


def _client() -> Any:
    if not _clients:
        _clients.append(_make(multiprocess_mode=True))
    return _clients[0]


def _end() -> None:
    """Kill the engine, so that the next case starts another."""
    process = _clients.pop().resources.engine_manager.processes[0]
    process.kill()


def _phase(function: Callable[[], Any]) -> Any:
    """Run a part of a case; return `hangs` if it does not end."""
    try:
        return guarded(function, _HANG_SECONDS)
    except TimeoutError:
        _end()
        return "hangs"


def _collect(client: Any, waiting: set[str]) -> dict[str, list[int]]:
    """Return the tokens of these requests, once all have ended."""
    tokens: dict[str, list[int]] = {}
    waiting = set(waiting)
    while waiting:
        for output in client.get_output().outputs:
            tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
            if output.finished:
                waiting.discard(output.request_id)
    return tokens


def run_generation(case: Mapping[str, Any], client: Any = None) -> Any:
    """Send each round's requests, and return their tokens; between rounds no request is unfinished."""
    client = client or _client()
    rounds = []
    for one in case["rounds"]:

        def generate(one: Any = one) -> Any:
            for request_id, prompt, max_tokens in one:
                client.add_request(new_request(request_id, prompt, max_tokens))
            return _collect(client, {request_id for request_id, *_ in one})

        rounds.append(_phase(generate))
        if rounds[-1] == "hangs":
            break
    return {"rounds": rounds}


def run_abort(case: Mapping[str, Any], client: Any = None) -> Any:
    """Abort a long request after its first tokens, look at the blocks, and use its id again."""
    client = client or _client()
    (request_id, prompt, max_tokens), (_, again, few) = case["long"], case["again"]
    in_this_process = not hasattr(client, "call_utility")

    def abort() -> Any:
        client.add_request(new_request(request_id, prompt, max_tokens))
        while not client.get_output().outputs:
            pass
        client.abort_requests([request_id])
        if in_this_process:
            return [0, 0], client.engine_core.get_num_free_blocks()
        return list(client.call_utility("get_request_counts")), client.call_utility("get_num_free_blocks")

    def use_again() -> Any:
        client.add_request(new_request(request_id, again, few))
        return _collect(client, {request_id})[request_id]

    state = _phase(abort)
    if state == "hangs":
        return {"counts": "hangs", "free": None, "tokens": None}
    if state != ([0, 0], NUM_BLOCKS) and not in_this_process:  # the id is still in use
        _end()
        return {"counts": state[0], "free": state[1], "tokens": None}
    return {"counts": state[0], "free": state[1], "tokens": _phase(use_again)}


def run_kill(case: Mapping[str, Any]) -> Any:
    """Kill the engine core with a request unfinished; return what each later call does."""
    client = _client()
    process = client.resources.engine_manager.processes[0]
    request_id, prompt, max_tokens = case["long"]

    def until_error() -> str:
        client.add_request(new_request(request_id, prompt, max_tokens))
        for _ in range(case["outputs"]):
            client.get_output()
        os.kill(process.pid, signal.SIGKILL)
        for _ in range(max_tokens + 1):
            client.get_output()
        return "no error"

    calls = {
        "get_output": until_error,
        "get_output again": client.get_output,
        "add_request": lambda: client.add_request(new_request("late", prompt, 2)),
        "call_utility": lambda: client.call_utility("get_request_counts"),
        "abort_requests": lambda: client.abort_requests([request_id]),
    }
    results = {}
    for name, call in calls.items():
        try:
            results[name] = str(_phase(call))
        except NotImplementedError:
            raise
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
        if not _clients:
            break
    if _clients:
        _clients.pop()
    return {"results": results}

"""An engine core's busy loop without a model, process or sockets: `run_loop` feeds it messages and logs what it does.

A case has batches of messages. The first is there from the beginning; another arrives during step `at`, or when the
loop waits for input. Each request gets one token per step.
"""

import queue
from collections import deque
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

__all__ = ["run_loop"]

_MOST_IDLE = 200
"""Calls in a row that may find nothing to do."""


class _Stop(BaseException):
    """The end of a case, with the reason. No `except Exception` catches it."""


class _Inbox:
    """Input queue whose messages are scripted. Waiting for input ends the case, or lets the next batch arrive."""

    def __init__(self, core: Any, batches: list[dict[str, Any]]) -> None:
        self._core, self._batches = core, deque(batches)
        self._messages: deque[Any] = deque()
        self.arrive(0)

    def arrive(self, step: int) -> None:
        """Let the batches of the steps up to this one arrive."""
        while self._batches and self._batches[0]["at"] <= step:
            self._messages += [_message(one) for one in self._batches.popleft()["messages"]]

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """See `queue.Queue`."""
        self._messages.append(item)

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """See `queue.Queue`."""
        if not self._messages:
            if not block:
                self._core.idle()
                raise queue.Empty
            if self._core.requests:
                raise _Stop("stuck")
            if not self._batches:
                raise _Stop("end")
            self.arrive(self._batches[0]["at"])
        self._core.num_idle = 0
        return self._messages.popleft()

    def get_nowait(self) -> Any:
        """See `queue.Queue`."""
        return self.get(block=False)

    def qsize(self) -> int:
        """See `queue.Queue`."""
        if not self._messages:
            self._core.idle()
        return len(self._messages)

    def empty(self) -> bool:
        """See `queue.Queue`."""
        return not self.qsize()


class _Outbox(queue.Queue[Any]):
    """Output queue that logs what is put into it."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        super().__init__()
        self._log = log

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """See `queue.Queue`."""
        client, outputs = item
        if (answer := outputs.utility_output) is not None:
            result = None if answer.result is None else answer.result.result
            call = {"call": answer.call_id, "failure": answer.failure_message, "result": _plain(result)}
            self._log.append({"do": "answer", "client": client} | call)
            return
        parts = [[one.request_id, one.new_token_ids, str(one.finish_reason or "")] for one in outputs.outputs]
        self._log.append(
            {"do": "send", "client": client, "confirmed": list(outputs.finished_requests or ()), "outputs": parts}
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _message(one: Mapping[str, Any]) -> Any:
    """Return a message as the input thread queues it."""
    from tracellm.engine.core.request import Request
    from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequestType, FinishReason

    kind = one["type"]
    if kind == "ADD":
        request = Request.__new__(Request)
        request.request_id, request.client_index, request.max_tokens = one["id"], one["client"], one["tokens"]
        return EngineCoreRequestType.ADD, request
    if kind == "REFUSED":
        refused = EngineCoreOutput(one["id"], [], finish_reason=FinishReason.ERROR, stop_reason="too long")
        return EngineCoreRequestType.ADD, (one["client"], EngineCoreOutputs(outputs=[refused]))
    content = {"ABORT": one.get("ids"), "EXECUTOR_FAILED": one.get("message")}
    if kind == "UTILITY":
        content[kind] = (one["client"], one["call"], one["method"], one["args"])
    return EngineCoreRequestType[kind], content.get(kind)


def _core(case: Mapping[str, Any]) -> Any:
    """Make the engine core of a case."""
    from tracellm.engine.core.core_proc import EngineCoreProc
    from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason

    class Core(EngineCoreProc):
        """Engine core with counted tokens instead of a model."""

        def __init__(self) -> None:
            self.log: list[dict[str, Any]] = []
            self.requests: dict[str, list[int]] = {}
            self.num_steps = self.num_idle = 0
            self.aborted: list[str] = []
            self.input_queue: Any = _Inbox(self, case["batches"])
            self.output_queue: Any = _Outbox(self.log)
            self.batch_queue = None
            self.scheduler: Any = SimpleNamespace(has_requests=lambda: bool(self.requests))

        def idle(self) -> None:
            """Count a call that found nothing to do."""
            self.num_idle += not self.requests
            if self.num_idle > _MOST_IDLE:
                raise _Stop("spins")

        def has_work(self) -> bool:
            """See `EngineCore`."""
            self.idle()
            return bool(self.requests)

        def add_request(self, request: Any) -> None:
            """See `EngineCore`."""
            self.log.append({"do": "add", "id": request.request_id})
            self.requests[request.request_id] = [request.client_index, request.max_tokens, 0]

        def abort_requests(self, request_ids: list[str]) -> None:
            """See `EngineCore`."""
            self.log.append({"do": "abort", "ids": list(request_ids)})
            for request_id in request_ids:
                self.requests.pop(request_id, None)

        def get_request_counts(self) -> tuple[int, int]:
            """See `EngineCore`."""
            return len(self.requests), 0

        def get_num_free_blocks(self) -> int:
            """See `EngineCore`."""
            return 16 - len(self.requests)

        def reset_prefix_cache(self) -> bool:
            """See `EngineCore`."""
            return not self.requests

        def step_fn(self) -> tuple[dict[int, EngineCoreOutputs] | None, bool]:
            """Give each request a token."""
            if not self.requests:
                self.idle()
                return None, False
            self.num_steps += 1
            self.log.append({"do": "step", "ids": list(self.requests)})
            self.input_queue.arrive(self.num_steps)
            if self.num_steps == case.get("fails_at"):
                self.requests.clear()
                raise RuntimeError(case["error"])
            outputs: dict[int, EngineCoreOutputs] = {}
            for request_id, state in list(self.requests.items()):
                client, most, done = state
                state[2] = done + 1
                last = state[2] == most
                output = EngineCoreOutput(request_id, [done], finish_reason=FinishReason.LENGTH if last else None)
                outputs.setdefault(client, EngineCoreOutputs(outputs=[])).outputs.append(output)
                if last:
                    del self.requests[request_id]
            return outputs, True

        def post_step(self, model_executed: bool) -> None:
            """Log steps that did something."""
            if model_executed:
                self.log.append({"do": "post"})

    return Core()


def run_loop(case: Mapping[str, Any]) -> dict[str, Any]:
    """Run the busy loop until it waits for input that never comes, or ends otherwise; return the log and the end.

    The end is `end`, `stuck` (waits although requests are unfinished), `spins` (repeats without work and without
    waiting), or an error.
    """
    core = _core(case)
    try:
        core.run_busy_loop()
        ended = "returned"
    except _Stop as stop:
        ended = str(stop)
    except NotImplementedError:
        raise
    except (Exception, SystemExit) as error:
        ended = f"{type(error).__name__}: {error}"
        if ended.startswith(("AttributeError", "TypeError", "NameError")):
            raise
    return {"log": core.log, "ended": ended}

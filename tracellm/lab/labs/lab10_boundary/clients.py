"""The clients without an engine core: a script takes its place, and everything that would wait for ever is noticed."""

import queue
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

__all__ = ["guarded", "new_request", "run_client", "run_inproc", "run_receiver"]

_HANG_SECONDS = 5.0
"""Time after which a call that needs milliseconds counts as hanging."""

_NEXT_HANG_SECONDS = 1.0
"""The same, once a call has hung in this process."""

_hanging: list[Any] = []
"""Threads that hang, and their contexts."""


def guarded(function: Callable[[], Any], seconds: float | None = None) -> Any:
    """Return the result of a function, raise its error, or raise TimeoutError if it hangs; then its thread stays."""
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds or (_NEXT_HANG_SECONDS if _hanging else _HANG_SECONDS))
    if thread.is_alive():
        _hanging.append(thread)
        raise TimeoutError
    return result.result()


def new_request(request_id: str, prompt: list[int], max_tokens: int) -> Any:
    """Return a request for the engine core."""
    from tracellm.engine.ipc.messages import EngineCoreRequest
    from tracellm.engine.sample.sampling_params import SamplingParams

    nothing: dict[str, Any] = dict.fromkeys(
        ("mm_features", "pooling_params", "eos_token_id", "lora_request", "cache_salt", "data_parallel_rank")
    )
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True),
        arrival_time=0.0,
        **nothing,
    )


def _outputs(parts: list[Any], confirmed: list[str] | None = None) -> Any:
    """Return outputs of requests, given as (id, token)."""
    from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreOutputs

    return EngineCoreOutputs(
        outputs=[EngineCoreOutput(name, [token]) for name, token in parts], finished_requests=confirmed or None
    )


def _parts(outputs: Any) -> list[Any]:
    return [[one.request_id, *one.new_token_ids] for one in outputs.outputs]


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# -- InprocClient -----------------------------------------------------------------------------------------------------


def run_inproc(case: Mapping[str, Any]) -> Any:
    """Return the outputs of each step of an `InprocClient`, and the calls that reach its engine core."""
    from tracellm.engine.ipc.core_client import InprocClient

    calls: list[Any] = []
    steps = deque(case["steps"])

    class Core:
        """Engine core with scripted steps."""

        def step_fn(self) -> Any:
            """Return the outputs of the next step by client."""
            step = steps.popleft()
            calls.append(["step_fn"])
            outputs = {int(client): _outputs(parts) for client, parts in step["outputs"].items()}
            return outputs or None, step["executed"]

        def post_step(self, model_executed: bool) -> None:
            """Log the argument."""
            calls.append(["post_step", bool(model_executed)])

        def abort_requests(self, request_ids: list[str]) -> None:
            """Log the ids."""
            calls.append(["abort_requests", list(request_ids)])

    client = InprocClient.__new__(InprocClient)
    engine_core: Any = Core()
    client.engine_core = engine_core
    got = []
    for _ in case["steps"]:
        got.append(_parts(client.get_output()))
    for ids in case["aborts"]:
        client.abort_requests(list(ids))
    return {"got": got, "calls": calls}


# -- SyncMPClient -----------------------------------------------------------------------------------------------------


class _Outputs(queue.Queue[Any]):
    """Queue of outputs in which a call that would wait raises TimeoutError."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """See `queue.Queue`."""
        try:
            return super().get(block=False)
        except queue.Empty:
            if not block:
                raise
            raise TimeoutError from None


class _Socket:
    """Input socket that records messages, and answers utility calls by the script."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.sent: list[Any] = []
        self.reply: Any = None

    def send_multipart(self, message: Any, **options: Any) -> None:
        """Take a message."""
        from tracellm.engine.ipc import mp_client
        from tracellm.engine.ipc.messages import EngineCoreRequestType, UtilityOutput, UtilityResult
        from tracellm.engine.ipc.serial_utils import MsgpackDecoder

        kind = EngineCoreRequestType(bytes(message[1]))
        content = MsgpackDecoder().decode([bytes(frame) for frame in message[2:]])
        self.sent.append([kind.name, content[0] if kind is EngineCoreRequestType.ADD else content])
        if kind is not EngineCoreRequestType.UTILITY:
            return
        call_id, (how, value) = content[1], self.reply
        self.sent[-1] = [kind.name, [content[0], *content[2:]]]
        if how == "dies":
            self._client.resources.declare_dead(value)
            self._client.resources.fail_utility_calls()
            return
        failure, result = (value, None) if how == "fails" else (None, UtilityResult(value))
        mp_client._process_utility_output(UtilityOutput(call_id, failure, result), self._client.utility_results)


def _client() -> Any:
    from tracellm.engine.ipc.messages import EngineCoreOutputs
    from tracellm.engine.ipc.mp_client import BackgroundResources, SyncMPClient
    from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder

    class Client(SyncMPClient):
        """Client without a process."""

        def __init__(self) -> None:
            context: Any = None
            self.resources = BackgroundResources(context, "")
            self.utility_results = self.resources.utility_results
            self.encoder, self.decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
            self.core_engine, self.pending_messages, self._aborted = b"\0\0", deque(), Counter()
            self.outputs_queue = _Outputs()
            self.input_socket: Any = _Socket(self)

        def _validate(self, request: Any) -> None:
            """Accept every request."""

        def shutdown(self) -> None:
            """Mark the engine as ended, as the resources do."""
            self.resources.engine_dead = True

    return Client()


def run_client(case: Mapping[str, Any]) -> Any:
    """Execute the operations of a case on a `SyncMPClient`; return the result of each, and the messages it sent."""
    client = _client()
    bystander: Future[Any] = Future()
    if case["bystander"]:
        client.utility_results[1] = bystander  # a call of another thread, not answered yet
    results = []
    for operation in case["operations"]:
        try:
            results.append(guarded(lambda operation=operation: _do(client, operation)))  # type: ignore[misc]
        except TimeoutError:
            results.append("hangs")
            break
    taken = bystander.done() and case["bystander"] and not client.resources.engine_dead
    return {"results": results, "sent": client.input_socket.sent, "bystander_answered": taken}


def _do(client: Any, operation: Mapping[str, Any]) -> Any:
    """Execute an operation; return its result, or its error as a string."""
    from tracellm.engine.config.errors import EngineError

    kind = operation["do"]
    try:
        if kind == "arrive":
            client.outputs_queue.put(_outputs(operation["outputs"], operation["confirmed"]))
        elif kind == "die":
            client.resources.declare_dead(operation["message"])
            client.outputs_queue.put(client.resources.dead_error())
        elif kind == "shutdown":
            client.shutdown()
        elif kind == "get":
            return _parts(client.get_output())
        elif kind == "abort":
            client.abort_requests(list(operation["ids"]))
        elif kind == "add":
            client.add_request(new_request(operation["id"], [1], 4))
        else:
            client.input_socket.reply = operation["reply"]
            return client.call_utility(operation["method"], *operation["args"])
    except EngineError as error:
        return _short(error)
    return None


# -- the receiving thread ---------------------------------------------------------------------------------------------


def run_receiver(case: Mapping[str, Any]) -> Any:
    """Run `process_outputs_socket` on scripted messages; return what it put into the queue, and the utility calls."""
    import zmq

    from tracellm.engine.ipc.messages import EngineCoreOutputs, UtilityOutput, UtilityResult
    from tracellm.engine.ipc.mp_client import BackgroundResources, SyncMPClient
    from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder

    context: zmq.Context[Any] = zmq.Context()
    resources = BackgroundResources(context, "")
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.bind("inproc://outputs")
    push.connect("inproc://outputs")
    resources.output_socket = pull
    for call in case["calls"]:
        resources.utility_results[call] = Future()
    calls = dict(resources.utility_results)
    encoder = MsgpackEncoder()
    for message in case["messages"]:
        if message["type"] == "outputs":
            outputs = _outputs(message["outputs"])
        else:
            result = None if message["failure"] else UtilityResult(message["result"])
            outputs = EngineCoreOutputs(utility_output=UtilityOutput(message["call"], message["failure"], result))
        push.send_multipart([bytes(frame) for frame in encoder.encode(outputs)])
    wakeup, receiver = socket.socketpair()
    if case["end"] == "fails":
        push.send_multipart((_dead_frame(), case["message"].encode()))
    elif case["end"] == "killed":
        resources.cause_of_death = case["message"]
        wakeup.send(b"x")
    else:
        wakeup.close()
    outputs_queue: queue.Queue[Any] = queue.Queue()

    def receive() -> None:
        SyncMPClient.process_outputs_socket(resources, MsgpackDecoder(EngineCoreOutputs), outputs_queue, receiver)

    hangs = False
    try:
        guarded(receive)
    except TimeoutError:
        hangs = True
        _hanging.append(context)  # closing it would hang too
    finally:
        resources.engine_dead = True
        wakeup.close()
        if not hangs:
            context.destroy(linger=0)
    got = [_item(one) for one in list(outputs_queue.queue)]
    return {"hangs": hangs, "got": got, "answers": {str(call): _answer(future) for call, future in calls.items()}}


def _dead_frame() -> bytes:
    from tracellm.engine.ipc.launch import ENGINE_CORE_DEAD

    return ENGINE_CORE_DEAD


def _item(one: Any) -> Any:
    return _short(one) if isinstance(one, Exception) else _parts(one)


def _answer(future: Any) -> Any:
    if not future.done():
        return "pending"
    error = future.exception()
    return _short(error) if error is not None else future.result()

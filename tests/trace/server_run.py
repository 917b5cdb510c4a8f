# ruff: noqa: SIM117  (nesting is what this is about)
"""A handmade recording of a served chat request in two processes, as from `tracellm serve`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.trace.machines import Recorder, process
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["MODEL", "ServerRun", "served"]

MODEL = "Qwen2ForCausalLM"
LOOP = {names.CALL_KIND: "loop"}


class ServerRun:
    """Recorder of nested calls in either process; each start and each end takes a microsecond."""

    def __init__(self) -> None:
        self.api = Recorder(1)
        self.engine = Recorder(2, "EngineCore_0", skew=-(10**9), parent=1)  # the clock was set in between
        self.now = 0

    @contextmanager
    def call(
        self, name: str, around: Span | None = None, at: Recorder | None = None, thread: str = "", more: Any = None
    ) -> Iterator[Span]:
        """Context with one call below `around`, in its process and thread by default."""
        recorder = at or (self.engine if around and around.process is self.engine.process else self.api)
        thread = thread or (str(around.attributes.get(names.THREAD_NAME, "")) if around and at is None else "")
        self.now += 1000
        span = recorder.call(name, self.now, self.now, around, thread, **(more or {}))
        yield span
        self.now += 1000
        span.end_ns = recorder.at(self.now)

    def leaf(
        self, name: str, around: Span | None = None, at: Recorder | None = None, thread: str = "", more: Any = None
    ) -> Span:
        """Make a call without callees."""
        with self.call(name, around, at, thread, more) as span:
            return span

    def send(self, message: str, around: Span) -> None:
        """Encode a message within a call."""
        self.leaf("MsgpackEncoder.encode", around, more=_message(message, "send"))

    def receive(self, message: str, around: Span) -> None:
        """Decode a message within a call."""
        self.leaf("MsgpackDecoder.decode", around, more=_message(message, "receive"))

    def trace(self) -> Trace:
        """Return the trace of both processes."""
        processes, spans = process([self.api, self.engine])
        for span in spans:
            span.end_ns = max(span.end_ns, span.start_ns)
        return Trace(spans, processes)


def _message(message: str, operation: str) -> dict[str, Any]:
    return {
        names.MESSAGE_OPERATION: operation,
        names.MESSAGE_ID: message,
        names.MESSAGE_TYPE: message.partition(" ")[0],
        names.MESSAGE_BYTES: 312,
    }


def function(name: str) -> dict[str, Any]:
    """Return the attribute with the location of a method's definition."""
    return {names.CODE_FUNCTION: f"tracellm.engine.{name}"}


def served(tokens: int = 3) -> ServerRun:
    """Return start-up and one chat request of some tokens, with the processes not merged yet."""
    run = ServerRun()
    call, leaf = run.call, run.leaf
    server = {names.LIFELINE: "api_server.py"}
    with (
        call("api_server.run_server", more=server) as top,
        call("api_server.run_server_worker", top, more=server) as worker,
    ):
        with (
            call("api_server.build_async_engine_client", worker, more=server) as build,
            call("AsyncLLM.from_vllm_config", build) as make,
            call("AsyncLLM.__init__", make) as init,
        ):
            leaf("Processor.__init__", init)
            leaf("OutputProcessor.__init__", init)
            with (
                call("EngineCoreClient.make_async_mp_client", init) as client,
                call("AsyncMPClient.__init__", client, more=function("AsyncMPClient.__init__")) as outer,
                call("AsyncMPClient.__init__", outer, more=function("MPClient.__init__")) as inner,
                call(
                    "AsyncMPClient.launch_core_engines", inner, more=function("MPClient.launch_core_engines")
                ) as launch,
            ):
                loops = _engine_starts(run, launch)
            leaf("AsyncLLM._run_output_handler", init)
        leaf("api_server.build_app", worker, more=server)
        with call("api_server.init_app_state", worker, more=server) as state:
            leaf("OpenAIServingChat.__init__", state)
        _request(run, worker, loops, tokens)
    return run


def _engine_starts(run: ServerRun, launch: Span) -> dict[str, Span]:
    """Make the engine process's calls up to its loops, which do not end during the recording."""
    call, leaf = run.call, run.leaf
    core = leaf("EngineCoreProc.run_engine_core", launch, at=run.engine)
    with call("EngineCoreProc.__init__", core) as init:
        with call("UniProcExecutor.__init__", init) as executor:
            leaf("Worker.init_worker", executor)
            with call("Worker.init_device", executor) as device:
                leaf("GPUModelRunner.__init__", device)
            with call("Worker.load_model", executor) as load, call("GPUModelRunner.load_model", load) as runner:
                with call("DefaultModelLoader.load_model", runner, more={names.LOAD_ARCHITECTURE: MODEL}) as loader:
                    leaf(f"{MODEL}.__init__", loader)
        leaf("Scheduler.__init__", init)
        reader = leaf("EngineCoreProc.process_input_sockets", init, at=run.engine, thread="Thread-1", more=LOOP)
        writer = leaf("EngineCoreProc.process_output_sockets", init, at=run.engine, thread="Thread-2", more=LOOP)
    busy = leaf("EngineCoreProc.run_busy_loop", core, more=LOOP)
    queue = leaf("EngineCoreProc._process_input_queue", busy, more=LOOP)
    return {"core": core, "reader": reader, "writer": writer, "busy": busy, "queue": queue}


def _request(run: ServerRun, worker: Span, loops: dict[str, Span], tokens: int) -> None:
    call, leaf = run.call, run.leaf
    with call("HTTP.POST", more={names.HTTP_METHOD: "POST"}) as http:
        with call("OpenAIServingChat.create_chat_completion", http) as chat:
            leaf("OpenAIServingChat._preprocess_chat", chat)
            leaf("OpenAIServingChat._process_inputs", chat)
            with call("AsyncLLM.generate", chat) as generate, call("AsyncLLM.add_request", generate) as add:
                with (
                    call("Processor.process_inputs", add) as inputs,
                    call("InputPreprocessor.preprocess", inputs) as prepare,
                    call("InputPreprocessor._process_decoder_only_prompt", prepare) as prompt,
                    call("InputPreprocessor._prompt_to_llm_inputs", prompt) as to_inputs,
                ):
                    leaf("InputPreprocessor._process_tokens", to_inputs)
                with call("AsyncLLM._add_request", add) as also, call("AsyncMPClient.add_request_async", also) as put:
                    with call("AsyncMPClient._send_input", put) as out:
                        run.send("ADD chat-1", out)
    run.receive("ADD chat-1", loops["reader"])
    with call("EngineCoreProc._handle_client_request", loops["queue"]) as handle:
        with call("EngineCoreProc.add_request", handle) as core, call("Scheduler.add_request", core) as scheduler:
            leaf("FCFSRequestQueue.add_request", scheduler)
    for i in range(tokens):
        _step(run, loops["busy"])
        run.send(f"OUTPUTS 0 {i}.5", loops["writer"])
        run.receive(f"OUTPUTS 0 {i}.5", worker)
    for loop in loops.values():
        loop.end_ns = run.engine.at(run.now + 1000)


def _step(run: ServerRun, busy: Span) -> None:
    call, leaf = run.call, run.leaf
    with call("EngineCoreProc._process_engine_step", busy) as turn:
        with call("EngineCoreProc.step_fn", turn, more={names.ALSO_CALLED: "step"}) as step:
            with call("Scheduler.schedule", step) as schedule:
                leaf("Scheduler._make_cached_request_data", schedule)
                leaf("Scheduler._update_after_schedule", schedule)
            with (
                call("UniProcExecutor.execute_model", step) as execute,
                call("UniProcExecutor.collective_rpc", execute) as rpc,
                call("WorkerWrapperBase.execute_model", rpc) as wrapper,
                call("Worker.execute_model", wrapper) as work,
                call("GPUModelRunner.execute_model", work) as runner,
            ):
                leaf("GPUModelRunner._prepare_inputs", runner)
                leaf(f"{MODEL}.forward", runner)
                leaf(f"{MODEL}.compute_logits", runner)
            leaf("Scheduler.update_from_output", step)

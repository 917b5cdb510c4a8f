"""Handmade traces of a client and an engine core process, with their threads and messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.report.traces import step_facts
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace

SCRIPT_TRACE = "1" * 32


class Clock:
    """Monotonic clock shared by all processes; each reading is a microsecond later."""

    def __init__(self) -> None:
        self.now = 0
        self.spans: list[Span] = []

    def tick(self, microseconds: int = 1) -> int:
        """Advance the clock, and return the new time."""
        self.now += 1000 * microseconds
        return self.now


class Thread:
    """Thread or task with its own stack of calls, independent of other threads."""

    def __init__(
        self, clock: Clock, process: Process, name: str = "", parent: Span | None = None, trace_id: str = SCRIPT_TRACE
    ) -> None:
        self.clock, self.process, self.name, self.trace_id = clock, process, name, trace_id
        self.stack: list[Span] = [parent] if parent else []

    def begin(self, name: str, level: str = "step", **more: Any) -> Span:
        """Begin a call below the innermost open one."""
        attributes: dict[str, Any] = {names.LEVEL: level, names.LIFELINE: more.pop("lifeline", name.rpartition(".")[0])}
        for key, attribute in (
            ("args", names.ARGUMENTS), ("result", names.RESULT), ("phase", names.PHASE), ("kind", names.CALL_KIND)
        ):  # fmt: skip
            if (value := more.pop(key, None)) is not None:
                attributes[attribute] = value
        if line := more.pop("line", None):
            attributes |= {names.CALLER_FILE: "hello.py", names.CALLER_LINE: line[0], names.CALLER_TEXT: line[1]}
        if self.name:
            attributes[names.THREAD_NAME] = self.name
        parent = self.stack[-1].span_id if self.stack else None
        number = len(self.clock.spans) + 1
        span = Span(name, self.trace_id, f"{number:016x}", parent, self.clock.tick(), 0, attributes | more)
        span.process = self.process
        self.clock.spans.append(span)
        self.stack.append(span)
        return span

    def end(self, **more: Any) -> Span:
        """End the innermost open call."""
        span = self.stack.pop()
        span.attributes |= more
        span.end_ns = self.clock.tick()
        return span

    @contextmanager
    def __call__(self, name: str, level: str = "step", **more: Any) -> Iterator[Span]:
        """Context with one call."""
        span = self.begin(name, level, **more)
        yield span
        self.end()

    def leaf(self, name: str, level: str = "step", **more: Any) -> Span:
        """Make a call without callees."""
        self.begin(name, level, **more)
        return self.end()

    def beside(self, name: str = "", process: Process | None = None) -> "Thread":
        """Return a thread, or the first thread of a process, started by the innermost open call."""
        return Thread(self.clock, process or self.process, name, self.stack[-1], self.trace_id)

    def send(self, id: str, size: int = 300, **more: Any) -> None:
        """Encode a message."""
        self.leaf("MsgpackEncoder.encode", **_message("send", id, size), **more)

    def receive(self, id: str, size: int = 300) -> None:
        """Decode a message."""
        self.leaf("MsgpackDecoder.decode", **_message("receive", id, size))


def _message(operation: str, id: str, size: int) -> dict[str, Any]:
    return {
        names.MESSAGE_SYSTEM: "zeromq",
        names.MESSAGE_OPERATION: operation,
        names.MESSAGE_ID: id,
        names.MESSAGE_BYTES: size,
        names.MESSAGE_TYPE: id.partition(" ")[0],
        names.MESSAGE_FRAMES: 1,
    }


class Engine:
    """The engine core's process, with its three threads."""

    def __init__(self, starter: Thread) -> None:
        self.main = starter.beside(process=Process(11, "EngineCore_0"))
        self.main.begin("EngineCoreProc.run_engine_core", "request")
        with self.main("EngineCoreProc.__init__", "request"):
            with self.main("UniProcExecutor.__init__", "request"):
                self.main.leaf("Worker.init_device", "request")
                with self.main("Worker.load_model", "request"):
                    self.main.leaf("GPUModelRunner.load_model", "request")
            self.main.leaf("EngineCoreProc._initialize_kv_caches", "request", lifeline="EngineCoreProc")
            self.main.leaf("Scheduler.__init__", "request")
            self.input = self.main.beside("process_input_sockets")
            self.output = self.main.beside("process_output_sockets")
            self.input.begin("EngineCoreProc.process_input_sockets", "request", kind="loop")
            self.output.begin("EngineCoreProc.process_output_sockets", "request", kind="loop")
        self.main.begin("EngineCoreProc.run_busy_loop", "request", kind="loop")
        self.main.begin("EngineCoreProc._process_input_queue", kind="loop")
        self.in_queue = True
        self.sent = 0
        self.steps = 0

    def take(self, id: str) -> None:
        """Read a request in the input thread."""
        self.input.receive(f"ADD {id}")
        self.input.leaf("EngineCoreProc.preprocess_add_request", lifeline="EngineCoreProc")

    def handle(self, *ids: str) -> None:
        """Take requests out of the queue in the busy loop."""
        self._look()
        for id in ids:
            with (
                self.main("EngineCoreProc._handle_client_request", args=["request_type=ADD"]),
                self.main("EngineCoreProc.add_request", args=[f"request.request_id='{id}'"]),
            ):
                self.main.leaf("Scheduler.add_request")

    def _look(self) -> None:
        if not self.in_queue:
            self.main.begin("EngineCoreProc._process_input_queue", kind="loop")
            self.in_queue = True

    def step(self, ids: list[str], *, new: bool = False, last: bool = False) -> str:
        """Make a step for these requests; return the id of its output message."""
        main = self.main
        self._look()
        main.end()
        self.in_queue = False
        self.steps += 1
        with main("EngineCoreProc._process_engine_step"):
            with main(
                "EngineCore.step_fn", lifeline="EngineCoreProc", **step_facts(self.steps, ids, new=new, last=last)
            ):
                with main("EngineCore._schedule", lifeline="EngineCoreProc"):
                    main.leaf("Scheduler.schedule", result=f"SchedulerOutput({self.steps})")
                with (
                    main("EngineCore._execute_model", lifeline="EngineCoreProc"),
                    main("UniProcExecutor.execute_model", result="ModelRunnerOutput"),
                    main("Worker.execute_model"),
                    main("GPUModelRunner.execute_model"),
                ):
                    main.leaf("GPUModelRunner._prepare_inputs")
                    main.leaf("Qwen2ForCausalLM.forward", "layer", args=[f"input_ids=int64[{len(ids)}]"])
                    main.leaf("Sampler.forward", args=[f"logits=float32[{len(ids)}, 4096]"])
                with main("EngineCore._process_model_outputs", lifeline="EngineCoreProc"):
                    main.leaf("Scheduler.update_from_output", result="{0: EngineCoreOutputs}")
            main.leaf("EngineCore.post_step", lifeline="EngineCoreProc")
        return f"OUTPUTS 0 {self.steps}.5"

    def send(self, id: str) -> None:
        """Send a message in the output thread."""
        self.output.send(id, 180, **{names.MESSAGE_STEP: int(id.split(".")[0].split()[-1])})

    def end(self) -> None:
        """End the process by SIGTERM."""
        for thread in (self.input, self.output, self.main):
            while len(thread.stack) > 1:
                thread.end()


def sync_run(
    prompts: int = 3, tokens: int = 6, *, ahead: bool = False, killed: bool = False, closing: bool | None = None
) -> Trace:
    """Return the trace of `LLM.generate` over a SyncMPClient.

    Args:
        ahead: the engine core handles the first request before the others are sent, and begins each step early, before
            the client handles the previous outputs.
        killed: the recording ends in the middle of the second step.
        closing: the engine core makes one more step without outputs, after the last outputs are sent or (if True)
            before.
    """
    clock = Clock()
    main = Thread(clock, Process(10, "main"))
    main.begin("hello.py", "request", lifeline="hello.py")
    with (
        main("LLM.__init__", "request", args=["model='tiny'"], line=(3, "llm = LLM()"), phase="startup"),
        main("LLMEngine.__init__", "request"),
    ):
        main.leaf("Processor.__init__", "request")
        main.leaf("OutputProcessor.__init__", "request")
        with (
            main("EngineCoreClient.make_client", "request", result="SyncMPClient", **CHOICE),
            main("SyncMPClient.__init__", "request"),
        ):
            with (
                main("MPClient.__init__", "request", lifeline="SyncMPClient"),
                main("MPClient.launch_core_engines", "request", lifeline="SyncMPClient"),
            ):
                engine = Engine(main)
            outputs = main.beside("process_outputs_socket")
            outputs.begin("SyncMPClient.process_outputs_socket", "request", kind="loop")
    ids = [str(i) for i in range(prompts)]
    with main("LLM.generate", "request", line=(5, "outputs = llm.generate(prompts)"), phase="generation",
              args=[f"prompts=list[{prompts}]"], result=f"list[{prompts} RequestOutput]"):  # fmt: skip
        with main("LLM._validate_and_add_requests", "request"):
            for id in ids:
                with main("LLM._add_request", "request"):
                    main.leaf("Processor.process_inputs", "request", args=[f"request_id='{id}'"])
                    with main("LLMEngine.add_request", "request"):
                        main.leaf("OutputProcessor.add_request", "request")
                        with main("SyncMPClient.add_request", "request"), main("MPClient._send_input", "request",
                                                                               lifeline="SyncMPClient"):  # fmt: skip
                            main.send(f"ADD {id}")
                if ahead and id == "0":
                    engine.take("0")
                    engine.handle("0")
        with main("LLM._run_engine", "request"):
            for id in ids[1:] if ahead else ids:
                engine.take(id)
            engine.handle(*(ids[1:] if ahead else ids))
            message = engine.step(ids, new=True, last=tokens == 1) if ahead else ""
            for number in range(1, tokens + 1):
                main.leaf("LLMEngine.has_unfinished_requests", result="True")
                with main("LLMEngine.step"):
                    with main("SyncMPClient.get_output"):
                        if not ahead:
                            if killed and number == 2:
                                return _killed(clock, engine)
                            message = engine.step(ids, new=number == 1, last=number == tokens)
                        if closing and number == tokens:
                            engine.step([])
                        engine.send(message)
                        outputs.receive(message, 180)
                        if closing is False and number == tokens:
                            engine.step([])
                    if ahead and number < tokens:
                        message = engine.step(ids, last=number + 1 == tokens)
                    main.leaf("OutputProcessor.process_outputs")
            main.leaf("LLMEngine.has_unfinished_requests", result="False")
    with main("SyncMPClient.shutdown", "request"):
        engine.end()
        outputs.end()
    main.end()
    return _trace(clock)


CHOICE = {
    names.CLIENT_MULTIPROCESS: True,
    names.CLIENT_ASYNCIO: False,
    names.CLIENT_EXECUTOR: "UniProcExecutor",
    names.CLIENT_CHOICE: "SyncMPClient",
    names.CLIENT_RULE: "multiprocess_mode and not asyncio_mode",
}


def _killed(clock: Clock, engine: Engine) -> Trace:
    """Return the trace with its open calls left open."""
    engine._look()
    engine.main.begin("EngineCoreProc._process_engine_step")
    engine.main.begin("EngineCore.step_fn", lifeline="EngineCoreProc")
    now = clock.tick()
    for span in clock.spans:
        if span.end_ns == 0:
            span.end_ns = now
            span.attributes[names.OPEN] = True
    return _trace(clock)


def served(requests: int = 2, tokens: int = 5) -> Trace:
    """Return the trace of a server with concurrent chat requests."""
    clock = Clock()
    main = Thread(clock, Process(10, "main"))
    main.begin("serve", "request", lifeline="serve")
    main.begin("api_server.run_server", "request", lifeline="api_server.py", kind="coroutine", phase="startup")
    with main("AsyncLLM.from_vllm_config", "request"), main("AsyncLLM.__init__", "request"):
        main.leaf("Processor.__init__", "request")
        with (
            main("EngineCoreClient.make_async_mp_client", "request", result="AsyncMPClient"),
            main("AsyncMPClient.__init__", "request"),
            main("MPClient.launch_core_engines", "request", lifeline="AsyncMPClient"),
        ):
            engine = Engine(main)
    main.leaf("api_server.build_app", "request", lifeline="api_server.py")
    chats: list[Thread] = []
    handler = reader = None
    for number in range(requests):
        chat = Thread(clock, main.process, trace_id=f"{number + 2:032x}")
        id = f"chatcmpl-{number}"
        chat.begin("OpenAIServingChat.create_chat_completion", "request", kind="coroutine", phase="generation")
        with chat("OpenAIServingChat._preprocess_chat", "request", kind="coroutine"):
            chat.leaf("OpenAIServingChat._process_inputs", "request")
        chat.begin("AsyncLLM.generate", "request", kind="async_generator")
        if handler is None:
            chat.begin("AsyncLLM._run_output_handler", "request")
            handler = chat.beside()
            chat.end()
            handler.begin("AsyncLLM.output_handler", "request", kind="loop")
            handler.begin("AsyncMPClient.get_output_async", kind="coroutine")
            reader = handler.beside()
            reader.begin("AsyncMPClient.process_outputs_socket", "request", kind="loop")
        with chat("AsyncLLM.add_request", "request", kind="coroutine"):
            chat.leaf("Processor.process_inputs", "request", args=[f"request_id='{id}'"])
            with (
                chat("AsyncLLM._add_request", "request", kind="coroutine"),
                chat("AsyncMPClient.add_request_async", "request", kind="coroutine"),
            ):
                chat.send(f"ADD {id}", 412)
        engine.take(id)
        chats.append(chat)
    ids = [f"chatcmpl-{number}" for number in range(requests)]
    engine.handle(*ids)
    assert handler is not None
    assert reader is not None
    message = engine.step(ids, new=True)
    for number in range(1, tokens + 1):
        engine.send(message)
        reader.receive(message, 180)
        if number < tokens:  # the next step begins before the client handles these outputs
            message = engine.step(ids, last=number + 1 == tokens)
        handler.end()
        handler.leaf("OutputProcessor.process_outputs")
        handler.begin("AsyncMPClient.get_output_async", kind="coroutine")
    for chat in chats:
        chat.end()
        chat.end()
    engine.end()
    reader.end()
    handler.end()
    handler.end()
    main.end()
    main.end()
    return _trace(clock)


def _trace(clock: Clock) -> Trace:
    processes = {span.process.pid: span.process for span in clock.spans if span.process}
    return Trace(clock.spans, processes.values())

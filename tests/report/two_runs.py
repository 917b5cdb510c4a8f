"""Small handmade runs to compare: in one process, and with the engine core in another."""

from pathlib import Path
from typing import Any

from tests.report.traces import step_facts
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.run_folder import RunFolder

TEXTS = (" Paris", " is", " big", ".")
"""The text of each step's token, whichever request it is for."""


class Recorder:
    """Recorder of spans with given times, independent of each other."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.main, self.engine = Process(10, "main"), Process(11, "EngineCore_0")
        self.now = 0

    def span(self, name: str, start: int, end: int, process: Process | None = None, **more: Any) -> Span:
        """Return a span from `start` to `end` microseconds."""
        attributes = {names.LIFELINE: more.pop("lifeline", name.rpartition(".")[0]), **more}
        number = f"{len(self.spans) + 1:016x}"
        span = Span(name, "1" * 32, number, None, start * 1000, end * 1000, attributes)
        span.process = process or self.main
        self.spans.append(span)
        return span

    def call(self, name: str, lasts: int = 10, process: Process | None = None, **more: Any) -> Span:
        """Make a call at the current time."""
        start = self.now
        self.now += lasts
        return self.span(name, start, self.now, process, **more)

    def message(self, id: str, size: int, to_engine: bool, way: int = 30) -> None:
        """Make a message that takes 4 µs to encode, `way` µs in transit and 6 µs to decode."""
        for operation, lasts, name in (("send", 4, "MsgpackEncoder.encode"), ("receive", 6, "MsgpackDecoder.decode")):
            in_engine = to_engine is (operation == "receive")
            facts = {names.MESSAGE_OPERATION: operation, names.MESSAGE_ID: id, names.MESSAGE_BYTES: size,
                     names.MESSAGE_TYPE: id.partition(" ")[0]}  # fmt: skip
            if in_engine or operation == "receive":
                thread = "process_input_sockets" if to_engine else "process_output_sockets"
                facts[names.THREAD_NAME] = thread if in_engine else "process_outputs_socket"
            self.call(name, lasts, self.engine if in_engine else self.main, **facts)
            self.now += way if operation == "send" else 0

    def trace(self, *processes: Process) -> Trace:
        """Return the trace of all calls so far."""
        return Trace(self.spans, processes or (self.main,))


def run_of(
    *,
    multiprocess: bool = False,
    requests: int = 2,
    steps: int = 3,
    ids: str = "{}",
    tokens: list[int] | None = None,
    blocks: int = 1,
    text: bool = True,
    config: tuple[str, ...] = ("max_num_seqs=256", "block_size=16"),
) -> Trace:
    """Return a run whose `requests` take part in all `steps`; each step samples the same one of `tokens` for all."""
    made = Recorder()
    core, client = ("EngineCoreProc", "SyncMPClient") if multiprocess else ("EngineCore", "InprocClient")
    engine = made.engine if multiprocess else made.main
    names_of = [ids.format(i) for i in range(requests)]
    drawn = tokens or [100 + i for i in range(steps)]
    made.span("hello.py", 0, 1, lifeline="hello.py")
    startup = made.call("LLM.__init__", 2000)
    startup.attributes |= {names.PHASE: "startup", names.CONFIG: list(config)}
    startup.attributes |= {names.CLIENT_MULTIPROCESS: multiprocess, names.CLIENT_ASYNCIO: False,
                           names.CLIENT_EXECUTOR: "UniProcExecutor", names.CLIENT_CHOICE: client}  # fmt: skip
    made.call(f"{client}.__init__", 300)
    made.call(f"{core}.__init__", 200, engine, **{names.CODE_FUNCTION: f"engine.{core}.__init__"})
    lives = []
    for id in names_of:
        life = made.span(names.REQUEST_SPAN, made.now, 0, lifeline="request")
        life.attributes |= {
            names.REQUEST_ID: id, names.REQUEST_PROMPT_TOKENS: [1, 2, 3], names.GEN_AI_INPUT_TOKENS: 3
        }  # fmt: skip
        lives.append(life)
        made.call(f"{client}.add_request")
        if multiprocess:
            made.message(f"ADD {id}", 300, True)
        made.call("Scheduler.add_request", 10, engine)
    for i in range(steps):
        made.call(f"{client}.get_output", 5)
        facts = step_facts(i + 1, names_of, new=i == 0, last=i == steps - 1, prompt_tokens=3)
        facts |= {names.STEP_SAMPLED_IDS: [drawn[i]] * requests, names.STEP_SAMPLED_TEXTS: [TEXTS[i % 4]] * requests}
        facts |= {names.STEP_NEW_BLOCKS: [str(blocks + n) if i == 0 else "" for n in range(requests)]}
        facts |= {names.CODE_FUNCTION: "engine.EngineCore.step_fn"}
        made.call("EngineCore.step_fn", 1000, engine, lifeline=core, **facts)
        if multiprocess:
            made.message(f"OUTPUTS 0 {i}.5", 120, False)
        made.call("OutputProcessor.process_outputs", 25)
    for life in lives:
        life.end_ns = made.now * 1000
        life.attributes |= {names.GEN_AI_OUTPUT_TOKENS: steps, names.GEN_AI_FINISH_REASONS: ["length"],
                            names.REQUEST_OUTPUT: "".join(TEXTS[i % 4] for i in range(steps))}  # fmt: skip
    if not text:
        for span in made.spans:
            for name in names.PRIVATE:
                span.attributes.pop(name, None)
    return made.trace(*([made.main, made.engine] if multiprocess else [made.main]))


def folder_of(trace: Trace, name: str = "run", **manifest: Any) -> RunFolder:
    """Return a run folder in memory with this trace."""
    entries = {"status": "finished", "script": "hello.py", "argv": ["hello.py"], "tracellm": "0.1.0",
            "versions": {"python": "3.11.7", "torch": "2.9.0"}, "host": {"name": "vm", "machine": "x86_64"},
            "options": {"text": True}}  # fmt: skip
    return RunFolder(Path(name), entries | manifest, trace, [])

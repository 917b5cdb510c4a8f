"""Big recordings made without an engine: the calls of `tracellm run --explain` for thousands of engine steps.

They have the shape of a real recording. The script generates several times, and requests of different lengths join and
leave the batch. Prefill and decode steps have all attributes for a replay, with layers and kernels below them, and
request spans have links. With two processes there are also messages, threads, and two pairs of clock readings. The same
arguments give the same spans. Only running calls are kept in memory, so any size can be written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.big_traces import calls
from benchmarks.big_traces.calls import Call
from benchmarks.big_traces.machine import Machine
from tracellm.trace import names, otlp
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.names import Level
from tracellm.trace.run_folder import SCHEMA, TRACE_FOLDER, write_manifest

__all__ = ["big_trace", "played", "write_run"]

_SPANS_PER_LINE = 64  # spans on a line, as the recorder writes them
_ROUND = 4  # batches of requests in one `LLM.generate`
_LAST = 40  # spans at the end of the script


def played(
    spans: int, processes: int = 1, *, batch: int = 8, layers: int = 4, detail: Level = "kernel", seed: int = 1
) -> Iterator[tuple[Process, list[Span]]]:
    """Yield about `spans` spans (to within a step), in batches, in the order of their ends.

    `batch` requests run at once on a model of `layers` layers; spans deeper than `detail` are left out. Long calls come
    twice, as from a recorder: when they begin, marked as open, and when they end.

    Raises:
        ValueError: there are not one or two processes.
    """
    if processes not in (1, 2):
        raise ValueError(f"a big trace has 1 or 2 processes, not {processes}")
    run = _Run(Machine(processes == 2, batch, layers, detail, seed))
    yield from run.start()
    while run.machine.count < spans - _LAST:
        yield from run.generate(spans - _LAST)
    yield from run.finish()


def big_trace(spans: int, processes: int = 1, **shape: Any) -> Trace:
    """Return such a trace in memory, as read from disk; spans share their attributes."""
    spans_by_process = [(process, span) for process, ended in played(spans, processes, **shape) for span in ended]
    complete = [span for _, span in spans_by_process if not span.open]
    return Trace(complete, {id(process): process for process, _ in spans_by_process}.values())


def write_run(
    folder: Path, spans: int, processes: int = 1, *, spans_per_line: int = _SPANS_PER_LINE, **shape: Any
) -> int:
    """Write a run folder, and return the bytes of its traces. `shape` has further arguments of `played`."""
    (folder / TRACE_FOLDER).mkdir(parents=True, exist_ok=True)
    write_manifest(folder, {"schema": SCHEMA, "script": "big.py", "status": "finished"})
    num_bytes = 0
    pending: dict[str, list[Span]] = {}
    process_of: dict[str, Process] = {}
    for process, ended in played(spans, processes, **shape):
        name = f"{process.name}-{process.pid}"
        process_of[name] = process
        waiting = pending.setdefault(name, [])
        waiting += ended
        whole = len(waiting) - len(waiting) % spans_per_line
        num_bytes += _append(folder, name, process, waiting[:whole], spans_per_line)
        del waiting[:whole]
    for name, remaining in pending.items():
        num_bytes += _append(folder, name, process_of[name], remaining, spans_per_line)
    return num_bytes


def _append(folder: Path, name: str, process: Process, spans: list[Span], spans_per_line: int) -> int:
    lines = b"".join(
        otlp.encode(process, spans[at : at + spans_per_line], "0.1.0") for at in range(0, len(spans), spans_per_line)
    )
    with (folder / TRACE_FOLDER / f"{name}.jsonl").open("ab") as stream:
        return stream.write(lines)


class _Run:
    """The calls of the script's process, from start to end."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._long_calls: list[Span] = []

    def _begin_long(
        self, name: str, parent: Span | None, text: str = "", thread: str = "", engine: bool = False
    ) -> Span:
        """Begin a long call, with an open span."""
        at = self.machine.engine if engine else self.machine.main
        span = self.machine.begin(at, Call(name, "request", text), parent, 0, thread)
        at.ended.append(replace(span, attributes={**span.attributes, names.OPEN: True}))
        return span

    def _end(self, span: Span) -> None:
        machine = self.machine
        machine.end(machine.engine if span.process is machine.engine.process else machine.main, span)

    def _take_ended(self) -> Iterator[tuple[Process, list[Span]]]:
        for at in self.machine.recorders:
            if at.ended:
                yield at.process, at.take()

    def start(self) -> Iterator[tuple[Process, list[Span]]]:
        """Begin the script, and make an `LLM`."""
        machine = self.machine
        self.root = self._begin_long("big.py", None)
        llm = self._begin_long("LLM.__init__", self.root, "model=tiny")
        llm.attributes = {**llm.attributes, names.PHASE: "startup"}
        machine.play(machine.main, calls.STARTUP, llm)
        arguments = f"multiprocess_mode={machine.two}; asyncio_mode=False"
        client = self._begin_long("EngineCoreClient.make_client", llm, arguments)
        if machine.two:
            launch = self._begin_long("MPClient.launch_core_engines", client)
            self.core = self._begin_long("EngineCoreProc.run_engine_core", launch, "engine_index=0", engine=True)
            thread = "process_input_sockets"
            self.inputs = self._begin_long("EngineCoreProc.process_input_sockets", self.core, "", thread, engine=True)
            thread = "process_output_sockets"
            self.writes = self._begin_long("EngineCoreProc.process_output_sockets", self.core, "", thread, engine=True)
            machine.play(machine.engine, calls.ENGINE, self.core)
            self.loop = self._begin_long("EngineCoreProc.run_busy_loop", self.core, engine=True)
            thread = "EngineCoreOutputQueueThread"
            self.reads = self._begin_long("SyncMPClient.process_outputs_socket", client, "", thread)
            self._long_calls = [self.inputs, self.writes, self.loop, self.core, self.reads]
            self._end(launch)
        else:
            machine.play(machine.main, calls.ENGINE, client)
        self._end(client)
        self._end(llm)
        yield from self._take_ended()

    def generate(self, until: int) -> Iterator[tuple[Process, list[Span]]]:
        """Make one `LLM.generate` of the script: requests, and steps until they end or there are enough spans."""
        machine = self.machine
        generate = self._begin_long("LLM.generate", self.root, "prompts=list; sampling_params=SamplingParams")
        generate.attributes = {**generate.attributes, names.PHASE: "generation"}
        for _ in range(machine.batch * (_ROUND if machine.steps else 1)):  # a small trace has steps too
            machine.submit(generate)
        if machine.two:
            machine.receive(self.inputs, self.loop)
        runs = self._begin_long("LLM._run_engine", generate, "use_tqdm=False")
        while (machine.waiting or machine.running) and machine.count < until:
            self._step(runs)
            yield from self._take_ended()
        for request in (*machine.running, *machine.waiting):
            machine.end_request(request)
        machine.running, machine.waiting = [], []
        self._end(runs)
        self._end(generate)
        yield from self._take_ended()

    def _step(self, runs: Span) -> None:
        machine = self.machine
        step = machine.begin(machine.main, _STEP, runs)
        if machine.two:
            output = machine.begin(machine.main, _GET_OUTPUT_MP, step)
            inner = machine.begin(machine.engine, _ENGINE_STEP, self.loop)
            machine.step(inner)
            machine.end(machine.engine, inner)
            machine.outputs(self.writes, self.reads)
        else:
            output = machine.begin(machine.main, _GET_OUTPUT, step)
            machine.step(output)
        machine.end(machine.main, output)
        machine.play(machine.main, calls.OUTPUTS, step)
        machine.after_step()
        machine.end(machine.main, step)

    def finish(self) -> Iterator[tuple[Process, list[Span]]]:
        """End the script."""
        for span in (*self._long_calls, self.root):
            self._end(span)
        yield from self._take_ended()


_STEP = Call("LLMEngine.step", "step")
_GET_OUTPUT = Call("InprocClient.get_output", "step", "-> EngineCoreOutputs")
_GET_OUTPUT_MP = Call("SyncMPClient.get_output", "step", "-> EngineCoreOutputs")
_ENGINE_STEP = Call("EngineCoreProc._process_engine_step", "step", "-> True")

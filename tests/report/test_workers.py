"""Several workers: their parts of the model, and how their time is divided."""

import re
from typing import Any

import pytest

from tests.report.synthetic import a_run, a_run_folder
from tracellm.report.facts.workers.groups import KINDS, WorkerGroup, worker_groups
from tracellm.report.html import report_html
from tracellm.report.texts import LANGUAGES
from tracellm.report.wording.changes import changes
from tracellm.report.workers import workers_text
from tracellm.trace import names
from tracellm.trace.compare.times import run_times
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN, steps


class Run:
    """A run of 2 x 2 workers, built call by call; times are in milliseconds."""

    def __init__(self, *, hosts: tuple[str, ...] = ("here",) * 4, device: str = "cpu") -> None:
        self.spans: list[Span] = []
        self.main = Process(1, "main", {names.HOST_NAME: "here"})
        self.workers = [
            Process(10 + rank, f"Worker_PP{rank // 2}_TP{rank % 2}", {names.HOST_NAME: hosts[rank]})
            for rank in range(4)
        ]
        for rank, process in enumerate(self.workers):
            stage, index = divmod(rank, 2)
            facts = {
                names.WORKER_RANK: rank,
                names.WORKER_TP_RANKS: [2 * stage, 2 * stage + 1],
                names.WORKER_PP_RANKS: [index, index + 2],
            }
            self.call(process, "initialize_model_parallel", 0, 1, facts)
            weights = [f"model.layers.{2 * stage}-{2 * stage + 1}.mlp.down_proj.weight=float32[4, 8]"]
            partitions = [f"model.layers.{2 * stage}-{2 * stage + 1}.mlp.down_proj.weight: dim=1 {8 * index}+8/16"]
            loaded = {names.LOAD_WEIGHTS: weights, names.LOAD_PARTITIONS: partitions, names.LOAD_DEVICE: device}
            self.call(process, "DefaultModelLoader.load_weights", 1, 2, loaded)
            self.call(process, "GPUModelRunner.initialize_kv_cache", 2, 3, {names.WORKER_KV_BYTES: 1000 + rank})

    def call(
        self, process: Process, name: str, start: float, end: float, more: Any = None, parent: Span | None = None
    ) -> Span:
        """Add a call."""
        number = len(self.spans) + 1
        span = Span(
            name, "1" * 32, f"{number:016x}", parent.span_id if parent else None, round(start * 1e6), round(end * 1e6)
        )
        span.attributes, span.process = {**(more or {}), names.LEVEL: "step"}, process
        self.spans.append(span)
        return span

    def step(self, index: int, start: float, end: float) -> None:
        """Add a step of one request, and the call to each worker that it makes at its start."""
        facts = {
            names.STEP_INDEX: index,
            names.STEP_KIND: "decode",
            names.STEP_REQUESTS: ["0"],
            names.STEP_TOKENS: [1],
        }
        step = self.call(self.main, STEP_SPAN, start, end, facts)
        for rank, process in enumerate(self.workers):
            self.message("CALL", f"CALL {rank} {index}", (self.main, start, start), (process, start, start), step)

    def message(self, kind: str, id: str, send: Any, receive: Any, parent: Span | None = None) -> None:
        """Add a message; `send` and `receive` are process, start and end."""
        facts = {names.MESSAGE_TYPE: kind, names.MESSAGE_ID: id, names.MESSAGE_BYTES: 8}
        tensors = kind == "TENSORS"
        sending = "GroupCoordinator.send_tensor_dict" if tensors else "MessageQueue.enqueue"
        receiving = "GroupCoordinator.recv_tensors" if tensors else "MessageQueue.deserialize"
        self.call(send[0], sending, send[1], send[2], {**facts, names.MESSAGE_OPERATION: "send"}, parent)
        if tensors:
            parent = self.call(receive[0], "GroupCoordinator.recv_tensor_dict", receive[1], receive[2])
            receive = receive[0], receive[2] - 0.5, receive[2]
        self.call(
            receive[0],
            receiving,
            receive[1],
            receive[2],
            {**facts, names.MESSAGE_OPERATION: "receive"},
            parent if tensors else None,
        )

    def work(self, rank: int, start: float, end: float) -> None:
        """Add the computing of a step."""
        self.call(self.workers[rank], "Worker.execute_model", start, end)

    def all_reduce(self, number: int, times: dict[int, tuple[float, float]]) -> None:
        """Add a sum, with the start and the end of each rank's call."""
        for rank, (start, end) in times.items():
            facts = {names.COLLECTIVE_NUMBER: number, names.COLLECTIVE_RANKS: [*times], names.COLLECTIVE_BYTES: 8}
            self.call(self.workers[rank], "GroupCoordinator.all_reduce", start, end, facts)

    def trace(self) -> Trace:
        """Return the trace."""
        return Trace(self.spans, [self.main, *self.workers])


def one_step(**settings: Any) -> Trace:
    """Return a run with one step: rank 1 is late for the first sum, and stage 1 waits for stage 0."""
    run = Run(**settings)
    run.step(1, 10, 100)
    for rank in (0, 1):
        run.work(rank, 20, 60)
        run.message("TENSORS", f"T {rank}", (run.workers[rank], 50, 60), (run.workers[rank + 2], 12, 60))
        run.work(rank + 2, 11, 90)
    run.all_reduce(1, {0: (30, 42), 1: (40, 42)})
    run.all_reduce(1, {2: (70, 75), 3: (70, 75)})
    return run.trace()


def times(group: WorkerGroup) -> dict[int, dict[str, float]]:
    """Return the milliseconds of each kind, without those of zero, by rank."""
    return {
        one.rank: {kind: one.time(kind) / 1e6 for kind in KINDS if one.time(kind)} | {"idle": one.idle_ns / 1e6}
        for one in group.steps
    }


def test_time_of_an_operation_is_waiting_and_transfer():
    """A rank waits until the last one arrives; the rest is transfer, and all kinds add up to the time of its work."""
    (group,) = worker_groups(one_step())
    assert times(group) == {
        0: {"compute": 18, "ranks": 10, "transfer": 12, "idle": 10},
        1: {"compute": 28, "transfer": 12, "idle": 10},
        2: {"compute": 26, "before": 38, "transfer": 15, "idle": 1},
        3: {"compute": 26, "before": 38, "transfer": 15, "idle": 1},
    }
    assert {one.rank: dict(one.waits) for one in group.steps} == {0: {1: 10e6}, 1: {}, 2: {0: 38e6}, 3: {1: 38e6}}


def test_operations_are_matched_by_number_not_by_order():
    """If a rank's first operation was not recorded, its second one is still matched with that of its partner."""
    run = Run()
    run.step(1, 10, 100)
    for rank in range(4):
        run.work(rank, 20, 60)
    run.all_reduce(1, {0: (25, 30), 1: (29, 30)})
    run.all_reduce(2, {0: (40, 52), 1: (50, 52)})
    trace = run.trace()
    missing = next(span for span in trace.spans if span.name.endswith("all_reduce") and span.process is run.workers[1])
    (group,) = worker_groups(Trace([span for span in trace.spans if span is not missing], trace.processes))
    (operation,) = group.operations
    assert operation.waits == {0: 10e6, 1: 0}
    assert group.steps[0].time("ranks") == 10e6


def test_a_sender_waits_for_a_receiver_that_comes_later():
    """A stage that sends before the next one receives waits for it, unless the tensors were sent without waiting."""
    run = Run()
    run.step(1, 10, 100)
    run.work(0, 20, 60)
    run.message("TENSORS", "T 0", (run.workers[0], 30, 60), (run.workers[2], 50, 60))
    run.work(2, 45, 90)
    run.work(1, 20, 60)
    run.message("TENSORS", "T 1", (run.workers[1], 30, 31), (run.workers[3], 50, 60))
    run.work(3, 45, 90)
    (group,) = worker_groups(run.trace())
    assert times(group)[0] == {"compute": 10, "after": 20, "transfer": 10, "idle": 10}
    assert times(group)[1] == {"compute": 39, "transfer": 1, "idle": 10}


def test_idle_time_is_between_the_work_of_two_steps():
    """A rank's idle time before a step begins with the end of its previous work."""
    run = Run()
    for index, start in ((1, 10), (2, 40)):
        run.step(index, start, start + 20)
        for rank in range(4):
            run.work(rank, start + 5, start + 15)
        for first in (0, 2):
            run.all_reduce(index, {rank: (start + 6, start + 7) for rank in (first, first + 1)})
    (group,) = worker_groups(run.trace())
    assert [one.idle_ns / 1e6 for one in group.steps if one.rank == 0] == [5, 20]


@pytest.mark.parametrize(
    ("settings", "unknown", "words"),
    [
        ({"hosts": ("here", "here", "there", "there")}, "hosts", "several machines"),
        ({"device": "cuda:0"}, "device", "on GPUs"),
    ],
)
def test_unknown_times_are_not_guessed(settings: dict[str, Any], unknown: str, words: str):
    """With clocks of several machines, or calls that only launch, no time is divided, and the reason is given."""
    trace = one_step(**settings)
    (group,) = worker_groups(trace)
    assert (group.unknown, group.steps, group.operations) == (unknown, (), ())
    assert words in workers_text(trace)


def test_parts_of_weights():
    """Each rank has its layers, its part of each weight, and the bytes of both its memories."""
    (group,) = worker_groups(one_step())
    assert [(part.layers, part.weight_bytes, part.kv_cache_bytes) for part in group.parts] == [
        ("0-1", 256, 1000), ("0-1", 256, 1001), ("2-3", 256, 1002), ("2-3", 256, 1003)
    ]  # fmt: skip
    (weight,) = group.parts[1].weights
    assert (weight.shape, weight.whole, weight.dim, weight.ranges) == ((4, 8), (4, 16), 1, ((8, 8, 16),))


def test_the_text_has_parts_waits_and_steps():
    """The text has who holds what, who waits for whom, and the time of each step; no line is too wide."""
    for lang in LANGUAGES:
        shown = workers_text(one_step(), lang=lang, width=100)
        assert max(map(len, shown.splitlines())) <= 100
    shown = workers_text(one_step())
    assert "model.layers.0-1.mlp.down_proj  4×16   columns 0-7  columns 8-15" in shown
    assert re.search(r"^  3 .* 0 µs +38.0 ms  38.0 ms for rank 1$", shown, re.MULTILINE)
    assert "0 for 1: 10.0 ms" in shown


def test_the_page_has_a_timeline_of_each_rank():
    """The page draws the intervals of each rank with their times as titles."""
    trace = one_step()
    folder = a_run_folder([])
    page = report_html(RunFolder(folder.path, folder.manifest, trace, []))
    assert "<title>step 1, rank 0, wait: ranks, 10.0 ms</title>" in page
    assert 'href="#workers"' in page


def test_one_worker_has_no_section():
    """A run with one worker has no such part, neither on the page nor as text."""
    trace = Trace(a_run())
    assert worker_groups(trace) == ()
    assert "one worker" in workers_text(trace)
    assert 'id="workers"' not in report_html(a_run_folder(a_run()))


def test_calls_to_workers_are_the_time_in_which_none_works():
    """A comparison divides a step into the time in which a worker works, and the other time of calls to them."""
    run = Run()
    run.step(1, 10, 100)
    run.call(run.main, "MultiprocExecutor.execute_model", 10, 16)
    run.call(run.main, "Executor.result", 16, 95)
    run.work(0, 20, 60)
    run.work(1, 30, 65)
    trace = run.trace()
    found = run_times(trace, steps(trace))
    assert (found.work.median_ns, found.calls.median_ns) == (45e6, 40e6)


@pytest.mark.parametrize(("output_of", "is_in_flight"), [(1, True), (2, False), (0, False)])
def test_a_step_without_requests_names_the_one_under_way(output_of: int, is_in_flight: bool):
    """An empty step that brings the tokens of an earlier one has the running requests in that one."""
    run = Run()
    facts = {names.STEP_INDEX: 2, names.STEP_KIND: "empty", names.STEP_RUNNING: ["0"], names.STEP_OUTPUT_OF: output_of}
    run.call(run.main, STEP_SPAN, 1, 2, facts)
    (step,) = steps(run.trace())
    assert step.is_in_flight is is_in_flight
    assert ("request 0 still being computed in step 1" in changes(step, "en")) is is_in_flight

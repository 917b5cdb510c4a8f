"""The timers of `tracellm bench kernels`, on a CPU and on an imitated GPU."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from tests.cli.conftest import Command, command
from tests.engine.ops.implementations import need_triton
from tracellm.bench import kernels, machine
from tracellm.bench.figures import Spread
from tracellm.bench.kernels import OnCpu, OnGpu, Timer

__all__ = ["command"]


class Cuda:
    """An imitated GPU with calls of two microseconds, and launches that take the host eight."""

    def __init__(self) -> None:
        self.now = 0.0  # milliseconds, of the GPU
        self.calls: list[int] = []  # indexes of the copies, in call order
        self.captured: list[int] | None = None
        self.capturing = False

    def copies(self, count: int) -> list[Callable[[], object]]:
        """Return an operation on that many copies of its tensors."""

        def call(copy: int) -> None:
            self.calls.append(copy)
            self.now += 0.0 if self.capturing else 0.008

        return [lambda copy=copy: call(copy) for copy in range(count)]  # type: ignore[misc]

    def synchronize(self) -> None:
        """Do nothing."""

    def CUDAGraph(self) -> SimpleNamespace:
        """Advance the GPU's clock by the captured calls."""

        def replay() -> None:
            assert self.captured, "something must have been captured"
            self.now += 0.002 * len(self.captured)

        return SimpleNamespace(replay=replay)

    @contextmanager
    def graph(self, graph: object) -> Iterator[None]:
        """Capture the calls made in the block instead of running them."""
        begin, self.capturing = len(self.calls), True
        yield
        self.captured, self.capturing = self.calls[begin:], False

    def Event(self, enable_timing: bool) -> SimpleNamespace:
        """An event with its time, available after synchronize."""
        event = SimpleNamespace(at=0.0, is_done=False)

        def elapsed_time(later: SimpleNamespace) -> float:
            assert later.is_done, "nobody has waited for it"
            return float(later.at - event.at)

        event.record = lambda: setattr(event, "at", self.now)
        event.synchronize = lambda: setattr(event, "is_done", True)
        event.elapsed_time = elapsed_time
        return event


@pytest.mark.parametrize("copies", [1, 3, 64])
def test_a_gpu_is_timed_by_the_replay_of_a_graph(copies: int) -> None:
    """A graph holds whole rounds over the copies; a call's time is the GPU's, without the launch."""
    cuda = Cuda()
    turn = OnGpu(cuda.copies(copies), cuda)
    assert cuda.captured == [*range(copies)] * -(-1000 // copies)
    assert turn.seconds() == pytest.approx(2e-6)


def test_a_long_call_is_captured_once_for_each_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one round over the copies is long enough, the graph holds one round."""
    monkeypatch.setattr(kernels, "_TURN_SECONDS", 1e-6)
    cuda = Cuda()
    OnGpu(cuda.copies(5), cuda)
    assert cuda.captured == [0, 1, 2, 3, 4]


def test_what_asking_takes_is_told_apart() -> None:
    """The launch time is the host's on a GPU, and None on a CPU."""
    cuda = Cuda()
    turn = OnGpu(cuda.copies(2), cuda)
    before = len(cuda.calls)
    assert turn.launch_seconds() > 0
    assert len(cuda.calls) - before == 1000
    on_cpu: Timer = OnCpu(cuda.copies(2))
    assert on_cpu.launch_seconds() is None


@pytest.mark.parametrize(("lang", "head"), [("en", "launch µs"), ("zh", "启动 µs")])
def test_the_table_has_both_times(lang: str, head: str) -> None:
    """The launch column is the last, and only in tables of a GPU."""
    of_gpu = kernels.Row("rms_norm", 1, "triton", Spread.of([2.0]), 1.0, 0.0, 0.5, Spread.of([8.0]))
    of_cpu = kernels.Row("rms_norm", 1, "torch", Spread.of([2.0]), 1.0, 0.0, 0.5, None)
    table = kernels._table([of_gpu], lang).splitlines()  # type: ignore[arg-type]
    assert table[0].endswith(head)
    assert table[1].endswith("50%  8.00 (8.00 – 8.00)")
    assert head not in kernels._table([of_cpu], lang)  # type: ignore[arg-type]


@pytest.mark.gpu
def test_every_operation_on_a_gpu(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case can be captured in every implementation, and has both times."""
    need_triton("cuda")
    monkeypatch.setattr(machine, "_GPU_BYTES", 1 << 24)
    monkeypatch.setattr(machine, "_GPU_SIDES", (256,))
    monkeypatch.setattr(kernels, "_COLD_BYTES", 1 << 20)
    arguments = ["--tokens", "1,33", "--context", "600", "--repeats", "2", "--ops", "torch", "--ops", "triton"]
    rows = json.loads(command("bench", "kernels", *arguments, "--json").out)["rows"]
    assert {row["ops"] for row in rows} == {"torch", "triton"}
    assert all(row["microseconds"]["median"] > 0 for row in rows)
    assert all(row["launch_microseconds"]["median"] > 0 for row in rows)
    assert not torch.cuda.is_current_stream_capturing()

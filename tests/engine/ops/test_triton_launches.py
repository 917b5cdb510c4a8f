"""Tests of recorded launches of Triton kernels, and of their GPU times, which are read without waiting."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from triton import knobs

from tests.engine.ops.attention_batch import Batch
from tests.probes.tracing import record
from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.attention.ops.paged_attention_v1 import paged_attention_v1_kernel
from tracellm.probes.catalog.engine import triton_launches as launches
from tracellm.trace import names
from tracellm.trace.model import Span


def recorded(batch: Batch, folder: Path) -> list[Span]:
    """Record the launches of a batch's attention."""
    trace = record(folder, lambda: batch.attend("triton"), catalog=launches.ENTRIES)
    return [span for span in trace.spans if span.name.startswith(("paged_", "attention_"))]


def test_a_launch_is_told(device: str, tmp_path: Path) -> None:
    """A launch's span has its kernel's name and source line, grid, sizes, tensors, work, blocks and reason."""
    (span,) = recorded(Batch([(1, 9), (1, 30)], heads=(4, 2), block_size=4, device=device, seed=1), tmp_path)
    launch_attributes = span.attributes
    assert span.name == "paged_attention_v1_kernel"
    assert launch_attributes[names.CODE_FUNCTION].endswith("attention.ops.paged_attention_v1.paged_attention_v1_kernel")
    assert launch_attributes[names.CODE_FILE] == "tracellm/engine/attention/ops/paged_attention_v1.py"
    assert launch_attributes[names.LAUNCH_GRID] == [2, 2]
    assert {"GROUP=2", "HEAD_SIZE=16"} < set(launch_attributes[names.LAUNCH_CONSTANTS])
    assert any(constant.startswith("BLOCK_N=") for constant in launch_attributes[names.LAUNCH_CONSTANTS])
    assert launch_attributes[names.ARGUMENTS][:3] == [
        "output=float32[2, 4, 16]",
        "query=float32[2, 4, 16]",
        "key_cache=float32[15, 4, 2, 16]",
    ]
    assert launch_attributes[names.LAUNCH_BYTES_READ] == 2 * 39 * (2 * 16 * 4 + 4) + 2 * 4 * 16 * 4
    assert launch_attributes[names.LAUNCH_BYTES_WRITTEN] == 2 * 4 * 16 * 4
    assert launch_attributes[names.LAUNCH_FLOPS] == 4 * 4 * 16 * 39
    assert launch_attributes[names.RESULT] == "2 x 2 programs: 10,808 bytes read, 512 written, 9,984 operations"
    assert launch_attributes[names.LAUNCH_REASON] == "short_context"
    assert all(names.ATTRIBUTES[name] for name in launch_attributes)


def test_which_blocks_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording has the blocks read at each index of the grid, in token order; `*` stands for all indexes."""
    monkeypatch.setattr(triton_attn, "PARTITION", 8)
    batch = Batch([(1, 9), (3, 6)], heads=(2, 2), block_size=4)
    table = [[7, 8, 2], [5, 1]]
    for row, blocks in enumerate(table):
        batch.common.block_table_cpu[row, : len(blocks)] = (
            blocks  # as reported by the host; the kernels read the others
        )
    launch_attributes = [span.attributes.get(names.LAUNCH_BLOCKS) for span in recorded(batch, tmp_path)]
    assert launch_attributes == [["0,*,0: 7-8", "0,*,1: 2"], None, ["0,*: 5,1"]]


class Event:
    """Stand-in for an event in a GPU's queue: done when `now` is beyond it."""

    now = 0

    def __init__(self, at: int) -> None:
        self.at = at

    def query(self) -> bool:
        """Return whether the event is done."""
        return Event.now >= self.at

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds between two events."""
        assert end.query(), "only then is it known"
        return float(end.at - self.at)


def test_the_time_of_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch has a number, and its GPU time is reported once, when it is available, without waiting."""
    queue = iter(range(100))
    monkeypatch.setattr(launches, "_pending", type(launches._pending)(maxlen=100))
    monkeypatch.setattr(launches, "_new_event", lambda args: Event(next(queue) ** 2))
    batch = Batch([(1, 9), (3, 6)], heads=(1, 1), block_size=4)
    numbers = [span.attributes[names.LAUNCH_NUMBER] for span in recorded(batch, tmp_path)]
    all_numbers = [number for number, _, _ in launches._pending]
    assert all_numbers[-2:] == numbers
    assert all_numbers[1:] == [number + 1 for number in all_numbers[:-1]]
    monkeypatch.setattr(Event, "now", 0)
    assert launches.gpu_times() == ([], [])
    monkeypatch.setattr(Event, "now", 10)
    assert launches.gpu_times() == (all_numbers[:2], [1_000_000, 5_000_000])
    monkeypatch.setattr(Event, "now", 100)
    assert launches.gpu_times() == (all_numbers[2:], [9_000_000])


def test_the_hosts_time_is_not_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event before a kernel is recorded again only when Triton is about to launch it."""
    recorded: list[int] = []
    launches._install_hook()
    knobs.runtime.launch_enter_hook(None)  # this launch is not recorded
    monkeypatch.setattr(launches._current, "event", SimpleNamespace(record=lambda: recorded.append(1)), raising=False)
    knobs.runtime.launch_enter_hook(None)
    assert recorded == [1]


def test_compiling_is_not_the_gpus_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that compiled or tuned its kernel is marked and has no time, and the next one has one."""
    monkeypatch.setattr(launches, "_pending", type(launches._pending)())
    monkeypatch.setattr(launches, "_new_event", lambda args: Event(0))
    counts = iter([0, 3, 3, 3])  # before and after the first launch, before and after the second
    asked = {paged_attention_v1_kernel: counts.__next__}
    monkeypatch.setattr(launches, "_times_compiled", lambda kernel: asked.get(kernel, int)())
    batch = Batch([(1, 9)], heads=(1, 1), block_size=4)
    ((first,), (second,)) = (recorded(batch, tmp_path / name) for name in ("first", "second"))
    assert first.attributes[names.LAUNCH_COMPILED]
    assert names.LAUNCH_NUMBER not in first.attributes
    assert names.LAUNCH_COMPILED not in second.attributes
    assert second.attributes[names.LAUNCH_NUMBER] == launches.gpu_times()[0][-1]


def test_times_are_those_of_a_gpu(device: str, tmp_path: Path) -> None:
    """Compiled kernels have times greater than zero once the GPU is done, and launches on the CPU have none."""
    batch = Batch([(1, 20), (7, 18)], heads=(2, 1), block_size=16, device=device)
    recorded(batch, tmp_path / "compiled")
    numbers = [span.attributes.get(names.LAUNCH_NUMBER) for span in recorded(batch, tmp_path / "timed")]
    if device == "cpu":
        assert (numbers, launches.gpu_times()) == ([None, None], ([], []))
        return
    torch.cuda.synchronize()
    done, times = launches.gpu_times()
    assert set(numbers) <= set(done)
    assert all(time > 0 for time in times)

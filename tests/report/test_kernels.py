"""Facts about Triton kernels: launch time, GPU time and work, step by step."""

from tests.report.synthetic import Recorder
from tracellm.report.facts.kernels import KernelFacts, kernels
from tracellm.report.html.data import run_data
from tracellm.trace.model import Process, Span, Trace


def a_step(recorder: Recorder, first: int | None, times: list[int]) -> None:
    """Record two kernels with three launches; on a GPU they are numbered from `first`, with `times` if known."""
    for index, name in enumerate(["norm_kernel", "paged_kernel", "norm_kernel"]):
        work = {"LAUNCH_BYTES_READ": 2000, "LAUNCH_BYTES_WRITTEN": 1000, "LAUNCH_FLOPS": 6000 * (index + 1)}
        number = {} if first is None else {"LAUNCH_NUMBER": first + index}
        recorder.begin(name, "kernel", LAUNCH_GRID=[2], **work, **number)
        recorder.end()
    known = [] if first is None else [*range(first, first + len(times))]
    recorder.begin("GPUModelRunner._sample", "step", GPU_LAUNCHES=known, GPU_TIMES=times)
    recorder.end()


def a_trace(first: int | None, times: list[int], pid: int = 1) -> list[Span]:
    """Return the spans of one such step, in a process with this id."""
    recorder = Recorder()
    a_step(recorder, first, times)
    for span in recorder.spans:
        span.process = Process(pid, "main")
    return recorder.spans


def test_kernels_of_a_run():
    """Launches are counted per kernel with CPU and GPU time, in the order of the first launches."""
    found = kernels(Trace(a_trace(7, [10, 5000, 30])))
    assert [(one.name, one.launches, one.gpu_ns, one.timed, one.bytes, one.flops) for one in found] == [
        ("norm_kernel", 2, 40, 2, 6000, 24000),
        ("paged_kernel", 1, 5000, 1, 3000, 12000),
    ]
    assert all(one.launch_ns > 0 for one in found)


def test_launches_whose_time_is_not_known():
    """A launch without a GPU time does not count in the bandwidth."""
    norm = next(one for one in kernels(Trace(a_trace(1, [10, 5000]))) if one.name == "norm_kernel")
    assert (norm.launches, norm.timed, norm.gpu_ns, norm.bytes, norm.timed_bytes) == (2, 1, 10, 6000, 3000)
    assert (norm.flops, norm.timed_flops) == (24000, 6000)


def test_each_process_counts_its_own_launches():
    """Launches of two processes with the same number are kept apart."""
    spans = [*a_trace(1, [10, 20, 30], pid=1), *a_trace(1, [100, 200, 300], pid=2)]
    assert {one.name: one.gpu_ns for one in kernels(Trace(spans))} == {"norm_kernel": 440, "paged_kernel": 220}


def test_launches_belong_to_their_steps():
    """Launches in a step are apart from those outside, and the page's rows name engine and step by index."""
    recorder = Recorder()
    a_step(recorder, None, [])
    recorder.begin("EngineCore.step_fn", "step", STEP_INDEX=1, STEP_KIND="decode")
    a_step(recorder, None, [])
    step = recorder.end()
    trace = Trace(recorder.spans)
    assert [(one.name, one.step, one.launches) for one in kernels(trace)] == [
        (name, span_id, launches)
        for span_id in (None, step.span_id)
        for name, launches in (("norm_kernel", 2), ("paged_kernel", 1))
    ]
    assert [row[:4] for row in run_data(trace)["kernels"]] == [
        [engine, engine, name, launches]
        for engine in (-1, 0)
        for name, launches in (("norm_kernel", 2), ("paged_kernel", 1))
    ]


def test_nothing_was_launched():
    """A run without kernels has no row, and launches that lack their work still have one."""
    recorder = Recorder()
    recorder.begin("norm_kernel", "kernel", LAUNCH_GRID=[1])
    recorder.end()
    assert kernels(Trace([])) == []
    assert kernels(Trace(recorder.spans)) == [KernelFacts("norm_kernel", None, 1, recorder.spans[0].duration_ns)]

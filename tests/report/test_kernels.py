"""Reports on Triton kernels: launch time, GPU time and work."""

import re

import pytest

from tests.report.synthetic import Recorder, a_run_folder, shown_html
from tracellm.report.facts.kernels import KernelFacts, kernels
from tracellm.report.texts import LANGUAGES, text
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.run_folder import RunFolder


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
    """Launches are counted per kernel with CPU and GPU time, the longest GPU time first."""
    found = kernels(Trace(a_trace(7, [10, 5000, 30])))
    assert [(one.name, one.launches, one.gpu_ns, one.timed, one.bytes, one.flops) for one in found] == [
        ("paged_kernel", 1, 5000, 1, 3000, 12000),
        ("norm_kernel", 2, 40, 2, 6000, 24000),
    ]
    assert all(one.launch_ns > 0 for one in found)


def test_launches_whose_time_is_not_known():
    """A launch without a GPU time does not count in the bandwidth."""
    norm = next(one for one in kernels(Trace(a_trace(1, [10, 5000]))) if one.name == "norm_kernel")
    assert (norm.launches, norm.timed, norm.gpu_ns, norm.bytes, norm.timed_bytes) == (2, 1, 10, 6000, 3000)


def test_each_process_counts_its_own_launches():
    """Launches of two processes with the same number are kept apart."""
    spans = [*a_trace(1, [10, 20, 30], pid=1), *a_trace(1, [100, 200, 300], pid=2)]
    assert {one.name: one.gpu_ns for one in kernels(Trace(spans))} == {"norm_kernel": 440, "paged_kernel": 220}


def page(spans: list[Span], lang: str) -> str:
    """Return the text of the page's section on kernels, or an empty text."""
    folder = a_run_folder([])
    html = shown_html(RunFolder(folder.path, folder.manifest, Trace(spans), []), lang)  # type: ignore[arg-type]
    section = re.search(r'<section aria-labelledby="kernels">.*?</section>', html, re.DOTALL)
    return "" if section is None else re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", section[0]))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_shows_them(lang: str):
    """Each kernel has a row with both times, bytes, bandwidth, and operations per byte."""
    shown = page(a_trace(1, [10, 7000]), lang)
    assert "paged_kernel 1 5 µs 7 µs 3.0 kB" in shown
    assert text(lang, "html.kernels.timed", n=1) in shown
    assert text(lang, "html.kernels.rate", rate="300") in shown
    assert "12,000 4.00" in shown


def test_the_page_of_a_run_without_a_gpu():
    """The interpreter has no GPU time, and a run without kernels has no section."""
    assert text("en", "html.kernels.no_gpu") in page(a_trace(None, []), "en")
    assert page([], "en") == ""


def test_nothing_was_launched():
    """A run without kernels has no row, and launches that lack their work still have one."""
    recorder = Recorder()
    recorder.begin("norm_kernel", "kernel", LAUNCH_GRID=[1])
    recorder.end()
    assert kernels(Trace([])) == []
    assert kernels(Trace(recorder.spans)) == [KernelFacts("norm_kernel", 1, recorder.spans[0].duration_ns)]

"""Times of calls that overlap in one thread: a moment counts once, so that no time exceeds the run."""

from tracellm.report.calltree import calltree, folded_tree
from tracellm.report.tree.overlap import times_once
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace

PROCESS = Process(1, "main")
MS = 10**6


def call(name: str, number: int, parent: int | None, start: int, end: int, thread: str = "") -> Span:
    """Return a coroutine's span, in milliseconds."""
    attributes = {names.LIFELINE: name.partition(".")[0], names.LEVEL: "request", names.CALL_KIND: "coroutine"}
    if thread:
        attributes[names.THREAD_NAME] = thread
    above = None if parent is None else f"{parent:016x}"
    return Span(name, "1" * 32, f"{number:016x}", above, start * MS, end * MS, attributes, process=PROCESS)


def sixteen(thread: str = "") -> Trace:
    """Return a run of 1000 ms in which 16 coroutines of 900 ms each wait for one engine."""
    spans = [call("app.main", 1, None, 0, 1000)]
    for number in range(16):
        name = f"{thread}_{number}" if thread else ""
        spans.append(call("AsyncLLM.generate", 10 + number, 1, number, 900 + number, name))
        spans.append(call("AsyncLLM.add_request", 50 + number, 10 + number, 100 + number, 101 + number, name))
    return Trace(spans)


def test_waits_side_by_side_count_once() -> None:
    """Sixteen waits of 900 ms, each begun 1 ms after the one before, are 915 ms, and the call tree says so."""
    [root] = folded_tree(sixteen())
    [generate] = root.children
    assert (generate.count, generate.total_ns) == (16, 16 * 900 * MS)
    total, own = times_once(generate)
    assert (total, own) == (915 * MS, 915 * MS)  # while one is in its callee, others wait
    [row] = [line for line in calltree(sixteen()).splitlines() if "generate" in line]
    assert row.split() == ["└", "AsyncLLM.generate", "×16", "915", "ms", "915", "ms"]


def test_threads_and_calls_one_after_another_are_summed() -> None:
    """Work in several threads, and calls that do not overlap, have the sum of their times."""
    [root] = folded_tree(sixteen("pool"))
    [generate] = root.children
    assert times_once(generate) == (16 * 900 * MS, 16 * 899 * MS)
    spans = [call("app.main", 1, None, 0, 1000)]
    spans += [call("AsyncLLM.generate", 10 + n, 1, 100 * n, 100 * n + 50) for n in range(5)]
    [root] = folded_tree(Trace(spans))
    assert times_once(root.children[0]) == (250 * MS, 250 * MS)


def test_a_moment_is_own_if_one_of_the_calls_is_without_a_callee() -> None:
    """Own time leaves out the moments in which each of the calls under way is within a callee."""
    spans = [call("app.main", 1, None, 0, 100)]
    for number, (start, end) in enumerate([(0, 60), (40, 100)]):
        spans.append(call("AsyncLLM.generate", 10 + number, 1, start, end))
    spans.append(call("AsyncLLM.add_request", 20, 10, 10, 60))
    spans.append(call("AsyncLLM.add_request", 21, 11, 40, 90))
    [root] = folded_tree(Trace(spans))
    assert times_once(root.children[0]) == (100 * MS, 20 * MS)


def test_the_row_of_a_line() -> None:
    """The row of the user's line counts a moment of its calls once, too."""
    trace = sixteen()
    for span in trace.named("AsyncLLM.generate"):
        span.attributes |= {names.CALLER_FILE: "app.py", names.CALLER_LINE: 12}
    [row] = [line for line in calltree(Trace(trace.spans)).splitlines() if "app.py" in line]
    assert row.split() == ["└", "app.py:12", "×16", "915", "ms"]

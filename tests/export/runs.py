"""Handmade runs to export: a client and an engine core with requests' lives, and a server with tasks."""

from pathlib import Path

from tests.report.nasty import NASTY
from tests.report.processes import served, sync_run
from tests.report.synthetic import HOSTILE
from tracellm.trace import names
from tracellm.trace.model import Event, Link, Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

__all__ = ["folder_of", "run_of_tasks", "run_of_two"]

TEXTS = [
    f"{text}\\".encode("utf-8", "replace").decode()
    for text in ("".join(NASTY), "".join(HOSTILE), "Hello", "你好 ünïcödé")
]
"""Prompts; Perfetto has trouble with a backslash at the end."""

SUBMITS = {"LLMEngine.add_request", "AsyncLLM._add_request"}


def run_of_two(prompts: int = 2, tokens: int = 3) -> Trace:
    """Return a run of `LLM.generate` with an engine core in its own process."""
    return _with_lives(sync_run(prompts, tokens))


def run_of_tasks() -> Trace:
    """Return a run of a server with two concurrent chats: their calls overlap in one thread."""
    return _with_lives(served(2, 3))


def folder_of(trace: Trace) -> RunFolder:
    """Return a run folder in memory."""
    return RunFolder(Path("runs/one"), {"schema": 1, "tracellm": "0", "script": "hello.py"}, trace, [])


def _with_lives(trace: Trace) -> Trace:
    """Add a life to each request, from the submitting call to the end of its last step."""
    steps = trace.named(STEP_SPAN)
    ids = list(dict.fromkeys(id for step in steps for id in step.attributes[names.STEP_REQUESTS]))
    submits = [span for span in trace.spans if span.name in SUBMITS]
    lives = []
    for number, (id, submit) in enumerate(zip(ids, submits, strict=True)):
        serving = [step for step in steps if id in step.attributes[names.STEP_REQUESTS]]
        attributes = {names.REQUEST_ID: id, names.LIFELINE: "request", names.REQUEST_PROMPT: TEXTS[number]}
        links = [Link(submit.trace_id, submit.span_id)]
        life = Span("llm_request", f"{number + 0xA0:032x}", f"{number + 0xF000:016x}", None, submit.start_ns,
                    serving[-1].end_ns, attributes, links, process=submit.process)  # fmt: skip
        for step in serving:
            step.links = [*step.links, Link(life.trace_id, life.span_id, {names.REQUEST_ID: id})]
        lives.append(life)
    spans = [*trace.spans, *lives]
    steps[0].events = [Event("mark", steps[0].start_ns + 500, {"what": "here\\"})]
    for step in steps:
        step.attributes[names.STEP_KIND] = step.attributes[names.STEP_PHASES][0]
    for span in spans:
        for event in span.events:
            event.time_ns = _as_clocks_have_it(event.time_ns)
        span.start_ns, span.end_ns = _as_clocks_have_it(span.start_ns), _as_clocks_have_it(span.end_ns)
    return Trace(spans, trace.processes)


def _as_clocks_have_it(time: int) -> int:
    """Return whole microseconds as nanoseconds since 1970 that are no round number."""
    return 1_700_000_000_123_456_789 + time + time // 1000 * 13

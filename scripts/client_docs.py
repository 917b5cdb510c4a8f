"""Generated parts of docs/clients.md: three prompts through each of the three clients, recorded and compared.

`record` makes the runs for all languages; `blocks` returns the parts of them that the pages show. `make_docs.py` writes
them to the pages, and `tests/docs` compares the pages with them.
"""

import io
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tracellm.report.console.boxes import client_rows
from tracellm.report.console.terminal import Terminal, rows
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.diff import diff_text
from tracellm.report.diff.runs import process_names
from tracellm.report.diff.times import boundary_table, cost_of_a_step
from tracellm.report.facts.startup import client_choice
from tracellm.report.texts import text
from tracellm.report.wording.blocks import markdown
from tracellm.report.wording.quantities import byte_size
from tracellm.report.wording.titles import time
from tracellm.trace import names
from tracellm.trace.compare import Comparison, compare
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

__all__ = ["blocks", "record"]

ROOT = Path(__file__).parents[1]

SCRIPTS = {
    "three.py": """\
from tracellm import LLM, SamplingParams

prompts = ["The capital of France is", "The largest ocean is", "Hello, my name is"]
sampling_params = SamplingParams(temperature=0, max_tokens=8)

llm = LLM(dtype="float32")
for prompt in prompts:
    (output,) = llm.generate(prompt, sampling_params)
    print(output.outputs[0].text)
""",
    "three_async.py": """\
import asyncio

from tracellm import AsyncLLM, SamplingParams

prompts = ["The capital of France is", "The largest ocean is", "Hello, my name is"]
sampling_params = SamplingParams(temperature=0, max_tokens=8)


async def main():
    llm = AsyncLLM(dtype="float32")
    for number, prompt in enumerate(prompts):
        async for output in llm.generate(prompt, sampling_params, request_id=str(number)):
            print(output.outputs[0].text)
    llm.shutdown()


asyncio.run(main())
""",
    "killed.py": """\
import multiprocessing

from tracellm import LLM
from tracellm.engine.config.errors import EngineDeadError

llm = LLM(dtype="float32", multiprocess_mode=True)
(engine_core,) = multiprocessing.active_children()
print(engine_core.name)
engine_core.kill()
try:
    llm.generate("The capital of France is")
except EngineDeadError as error:
    print(f"EngineDeadError: {error}")
""",
}

EXPECTED = """\
sequenceDiagram
    LLM->>LLMEngine: step
    LLMEngine->>InprocClient: get_output
    InprocClient->>EngineCore: step_fn
    EngineCore->>Scheduler: schedule
"""
"""An example of a hand-drawn diagram of the in-process client."""

RUNS = {"in-process": ("three.py", "0"), "two-processes": ("three.py", "1"), "asyncio": ("three_async.py", "0")}
"""Explained runs by folder: the script, and VLLM_ENABLE_V1_MULTIPROCESSING."""


# -- making the runs --------------------------------------------------------------------------------------------------


def record(folder: Path) -> dict[str, str]:
    """Run the scripts in `folder`, the explained ones into folders there; return the output of each."""
    for name, source in SCRIPTS.items():
        (folder / name).write_text(source, encoding="utf-8")
    (folder / "in-process.mmd").write_text(EXPECTED, encoding="utf-8")
    explained = ["-m", "tracellm", "run", "--explain", "--quiet", "--out"]
    said = {
        run: _python(folder, *explained, run, script, VLLM_ENABLE_V1_MULTIPROCESSING=switch)
        for run, (script, switch) in RUNS.items()
    }
    return said | {"killed": _python(folder, "killed.py")}


def _python(folder: Path, *arguments: str, may_fail: bool = False, **environment: str) -> str:
    """Return Python's stdout. A script that `may_fail` prints the error itself."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
    )
    if done.returncode and not (may_fail and done.stdout):
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


# -- the generated parts ----------------------------------------------------------------------------------------------


def blocks(lang: str, folder: Path, said: dict[str, str]) -> dict[str, str]:
    """Return the generated parts for the runs in `folder`, by name, in Markdown."""
    runs = {name: RunFolder.open(folder / name) for name in RUNS}
    for name, run in runs.items():
        run.path = Path(name)
    one, two, three = runs.values()
    made = {
        "clients-script": _code("python", SCRIPTS["three.py"]),
        "clients-script-async": _code("python", SCRIPTS["three_async.py"]),
        "clients-stdout-async": _code("text", said["asyncio"]),
        "clients-box": _code("text", _box(two, lang)),
        "clients-table": _table(lang, one, two, three),
        "clients-messages": markdown([boundary_table(compare(two.trace, three.trace).boundaries[0], lang)]),
        "clients-diff": _code("text", diff_text(one, two, lang=lang)),
        "clients-killed-script": _code("python", SCRIPTS["killed.py"]),
        "clients-killed": _code("text", said["killed"]),
        "clients-expected": _code("mermaid", EXPECTED),
    }
    for name in ("in-process", "two-processes"):
        check = ["-m", "tracellm", "check", name, "--expect", "in-process.mmd", "--lang", lang]
        made[f"clients-check-{name}"] = _code("text", _python(folder, *check, may_fail=True))
    for name, run in runs.items():
        made[f"clients-diagram-{name}"] = _code("mermaid", sequence_diagram(_in_short(run.trace), lang=lang))
    return made


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def _box(run: RunFolder, lang: str) -> str:
    """Return the box about the client in the console log of the run."""
    choice = client_choice(run.trace.spans)
    assert choice is not None
    paper = io.StringIO()
    Terminal(paper, quiet=False).box(text(lang, "client.title", choice=choice.choice), rows(client_rows(choice, lang)))
    return paper.getvalue()


_SHORT = {
    "LLM": ("__init__", "generate"),
    "AsyncLLM": ("__init__", "generate", "add_request", "output_handler"),
    "LLMEngine": ("add_request", "step"),
    "InprocClient": ("__init__", "add_request", "get_output"),
    "SyncMPClient": ("__init__", "add_request", "get_output", "process_outputs_socket"),
    "AsyncMPClient": ("__init__", "add_request_async", "get_output_async", "process_outputs_socket"),
    "EngineCore": ("__init__", "add_request", "step_fn"),
    "EngineCoreProc": (
        "run_engine_core", "process_input_sockets", "process_output_sockets", "run_busy_loop",
        "_handle_client_request", "_process_engine_step", "add_request", "step_fn",
    ),
    "Scheduler": ("schedule", "update_from_output"),
    "UniProcExecutor": ("execute_model",),
    "OutputProcessor": ("process_outputs",),
}  # fmt: skip
"""Methods in the short diagram, by class; the first message of each type is drawn, too."""

_OF_A_STEP = {"_process_engine_step", "step_fn", "schedule", "execute_model", "update_from_output"}
"""Methods of which only the calls of the first step are drawn: the next step may begin before its outputs arrive."""


def _in_short(trace: Trace) -> Trace:
    """Return the start, the request's path into the engine core, its first step, and the outputs' path back.

    The caller of a call is the nearest one that is drawn.
    """
    step = min(span.end_ns for span in trace.spans if span.name == STEP_SPAN)
    end = min(span.end_ns for span in trace.spans if span.name == "OutputProcessor.process_outputs")
    kept = {
        span.span_id
        for span in trace.spans
        if span.start_ns <= (step if span.method in _OF_A_STEP else end) and _is_kept(span)
    }
    for first in {
        message.send.attributes.get(names.MESSAGE_TYPE): message for message in trace.messages[::-1]
    }.values():
        kept |= {span.span_id for span in (first.send, first.receive) if span is not None}
    short = []
    for span in trace.spans:
        if span.span_id in kept:
            above = trace.parent(span)
            while above is not None and above.span_id not in kept:
                above = trace.parent(above)
            short.append(_under(span, above))
    return Trace(short, trace.processes)


def _is_kept(span: Span) -> bool:
    if span.method == "__init__" and not str(span.attributes.get(names.CODE_FUNCTION)).endswith(f".{span.name}"):
        return False  # a base class's constructor
    return span.lifeline == span.name or span.method in _SHORT.get(span.lifeline, ())


def _under(span: Span, parent: Span | None) -> Span:
    copy = Span(span.name, span.trace_id, span.span_id, parent.span_id if parent else None, span.start_ns, span.end_ns)
    copy.attributes, copy.links, copy.error, copy.process = dict(span.attributes), span.links, span.error, span.process
    return copy


# -- the table that compares the clients ------------------------------------------------------------------------------

LABELS = {
    "en": {
        "client": "client", "core": "the engine core", "processes": "processes", "threads": "other threads",
        "request": "path of a request to the scheduler", "step": "caller of `step_fn`", "wait": "path of the outputs",
        "messages": "messages for the three requests", "cost": "time for messages, per step", "startup": "start-up",
        "between": "between two steps", "tokens": "tokens of each request", "no": "none", "a": "{name}, in {process}",
        "in": "{chain}, in {process}", "count": "{n}, {bytes}: {types}", "return": "`{name}` returns them",
        "queue": "`{name}` takes them out of a queue", "same": "{tokens}, the same",
    },
    "zh": {
        "client": "客户端", "core": "引擎核心", "processes": "进程", "threads": "主线程以外的线程",
        "request": "请求到达调度器的途径", "step": "`step_fn` 的调用者", "wait": "输出的途径",
        "messages": "三个请求的消息", "cost": "消息花费的时间，每步", "startup": "启动", "between": "两步之间",
        "tokens": "每个请求的 token 数", "no": "没有", "a": "{name}，在 {process} 里", "in": "{chain}，在 {process} 里",
        "count": "{n} 条，{bytes}：{types}", "return": "`{name}` 返回", "queue": "`{name}` 从队列中取出",
        "same": "{tokens}，相同",
    },
}  # fmt: skip


def _table(lang: str, *runs: RunFolder) -> str:
    """Return a table that compares the clients."""
    say = LABELS[lang]
    heads, columns = [""], []
    for run in runs:
        choice = client_choice(run.trace.spans)
        assert choice is not None
        heads.append(f"`{choice.choice}`")
        columns.append(_differences(run, compare(runs[0].trace, run.trace), say))
    table = [heads, ["---"] * len(heads), *([say[name], *(column[name] for column in columns)] for name in columns[0])]
    return "".join(f"| {' | '.join(row)} |\n" for row in table)


def _differences(run: RunFolder, beside: Comparison, say: dict[str, str]) -> dict[str, str]:
    trace = run.trace
    step = trace.named(STEP_SPAN)[0]
    core = step.lifeline
    waits = next(span for span in trace.spans if span.method in ("get_output", "get_output_async"))
    boundary, times = beside.boundaries[1], beside.times[1]
    types = ", ".join(f"{tally.count} {tally.type}" for tally in boundary.types)
    cost = cost_of_a_step(boundary, times, beside.num_steps[1]) if boundary.types else None
    assert beside.requests
    assert all(pair.same_output for pair in beside.requests)
    tokens = ", ".join(str(pair.b.num_tokens) for pair in beside.requests if pair.b)
    return {
        "core": say["a"].format(name=f"`{core}`", process=_process(step)),
        "processes": f"{len(process_names(run))}: {', '.join(process_names(run))}",
        "threads": ", ".join(_threads(trace)) or say["no"],
        "request": _way(trace, say),
        "step": say["in"].format(chain=_chain(_above(trace, step), step), process=_process(step)),
        "wait": say["queue" if boundary.types else "return"].format(name=waits.name),
        "messages": say["count"].format(n=boundary.all.count, bytes=byte_size(boundary.all.bytes), types=types)
        if boundary.types
        else say["no"],
        "cost": f"{cost[0]} ({cost[1]})" if cost else say["no"],
        "between": time(times.between.median_ns),
        "startup": time(times.startup_ns),
        "tokens": say["same"].format(tokens=tokens),
    }


def _process(span: Span) -> str:
    return span.process.name if span.process else "main"


def _threads(trace: Trace) -> Iterable[str]:
    return sorted({f"{thread} ({_process(span)})" for span in trace.spans if (thread := span.thread[2])})


_FIRST = ("LLMEngine", "AsyncLLM", "EngineCoreProc")
"""First calls of a path; their callers are start-up code."""


def _above(trace: Trace, span: Span) -> list[Span]:
    """Return the calls from the nearest of _FIRST to `span`, in the span's process and thread."""
    found: list[Span] = []
    above = trace.parent(span)
    while above is not None and above.thread == span.thread:
        if above.method in ("run_engine_core", "_run_engine"):
            break
        found.insert(0, above)
        if above.lifeline in _FIRST and above.method in ("step", "add_request", "run_busy_loop"):
            break
        above = trace.parent(above)
    return found


def _chain(above: list[Span], last: Span) -> str:
    return " → ".join(f"`{span.lifeline}.{span.method}`" for span in (*above, last))


def _way(trace: Trace, say: dict[str, str]) -> str:
    """Return the path from the front half to `Scheduler.add_request`, through the ADD message if there is one."""
    arrives = trace.named("Scheduler.add_request")[0]
    there = _chain(_above(trace, arrives), arrives)
    for message in trace.messages:
        if message.send.attributes.get(names.MESSAGE_TYPE) == "ADD":
            above = [span for span in _above(trace, message.send) if not span.method.startswith("_")]
            return f"{_chain(above[:-1], above[-1])} ⇢ ADD ⇢ {there}"
    return there

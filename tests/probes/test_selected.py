"""Selections in a recording: unselected functions stay unwrapped in every process; missing facts stay unknown."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.probes.spawned_work import chosen, multiplies_often
from tests.probes.test_processes import launches
from tests.probes.tracing import outline, record
from tracellm import LLM, SamplingParams
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.clock import Ids
from tracellm.probes.install.selection import Selection
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

BASE = """
class Base:
    def shared(self): return 1
    def own(self): return 2
class Other:
    def own(self): return self.deep()
    def deep(self): return 3
def helper(): return 4
"""
LATE = """
from chosen.base import Base
class Late(Base):
    def further(self): return self.shared()
"""
CATALOG = [
    Entry("chosen.base:Base.shared", "step"),
    Entry("chosen.base:Base.own", "step"),
    Entry("chosen.base:Other.own", "step"),
    Entry("chosen.base:Other.deep", "layer"),
    Entry("chosen.base:helper", "request"),
    Entry("chosen.late:Late.further", "request"),
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The imported module `chosen.base`; `chosen.late`, with a subclass, is not imported yet."""
    (tmp_path / "chosen").mkdir()
    for name, source in (("__init__", ""), ("base", BASE), ("late", LATE)):
        (tmp_path / "chosen" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("chosen.base")
    for name in ("chosen", "chosen.base", "chosen.late"):
        sys.modules.pop(name, None)


ALL = {"Base.shared", "Base.own", "Other.own", "Other.deep", "helper", "Late.further"}


@pytest.mark.parametrize(
    ("selection", "wrapped"),
    [
        (Selection(), ALL),
        (Selection("request"), {"helper", "Late.further"}),
        (Selection("step"), ALL - {"Other.deep"}),
        (Selection("request", focus=("Other",)), {"helper", "Late.further", "Other.own", "Other.deep"}),
        (Selection(only=("Other",)), {"Other.own", "Other.deep"}),
        (Selection("step", only=("Other",)), {"Other.own"}),
        (Selection(only=("own",)), {"Base.own", "Other.own"}),
        (Selection(only=("Late",)), {"Base.shared", "Base.own", "Late.further"}),
        (Selection("request", focus=("Late",)), {"Base.shared", "Base.own", "Late.further", "helper"}),
        (Selection(skip=("Base",)), ALL - {"Base.shared", "Base.own"}),
        (Selection(skip=("Late",)), ALL - {"Late.further"}),
        (Selection(only=("*.own", "base.py"), skip=("Other",)), {"Base.own", "helper"}),
        (Selection(only=("chosen.late",)), {"Late.further"}),
        (Selection(skip=("chosen",)), set()),
    ],
)
def test_what_is_not_chosen_is_not_touched(package: Any, tmp_path: Path, selection: Selection, wrapped: set[str]):
    """Exactly the selected functions are replaced, including those inherited by a class imported later."""
    before = functions(package)
    with Recording(tmp_path / "run", catalog=CATALOG, selection=selection) as recording:
        late = importlib.import_module("chosen.late")
        during = functions(package) | {"Late.further": vars(late.Late)["further"]}
    after = functions(package) | {"Late.further": vars(late.Late)["further"]}
    assert {name for name, one in during.items() if one is not after[name]} == wrapped
    assert {name: after[name] for name in before} == before
    assert recording.stats["installed"] == len(wrapped)
    assert recording.stats["missing"] == []


def functions(module: Any) -> dict[str, Any]:
    """Return the functions of `chosen.base`, by name."""
    return {
        "Base.shared": vars(module.Base)["shared"],
        "Base.own": vars(module.Base)["own"],
        "Other.own": vars(module.Other)["own"],
        "Other.deep": vars(module.Other)["deep"],
        "helper": module.helper,
    }


def test_what_is_not_chosen_is_not_missed(package: Any, tmp_path: Path):
    """A missing function is reported only if it was selected."""
    catalog = [Entry("chosen.base:Base.gone", "step"), Entry("chosen.base:Other.gone", "step")]
    with Recording(tmp_path / "run", catalog=catalog, selection=Selection(only=("Other", "Base.own"))) as recording:
        pass
    assert recording.stats["missing"] == ["chosen.base:Other.gone"]


def test_facts_wait_for_nobody(package: Any, tmp_path: Path):
    """Facts for an unrecorded call are not created."""
    given: list[Any] = []
    catalog = [
        Entry("chosen.base:Other.own", "step"),
        Entry(
            "chosen.base:Other.deep",
            "layer",
            capture=lambda args, kwargs, result: result,
            gives=lambda facts: given.append(facts) or {},  # type: ignore[func-returns-value]
            gives_to="Other.own",
        ),
    ]
    for selection, calls in ((Selection(skip=("Other.own",)), 0), (Selection(), 1)):
        trace = record(tmp_path / str(calls), lambda: package.Other().own(), catalog, selection=selection)
        assert len(given) == calls
        assert "Other.deep" in outline(trace)


# -- the engine -------------------------------------------------------------------------------------------------------


def generate(folder: Path, checkpoint: Path, **options: Any) -> tuple[Trace, dict[str, Any]]:
    """Return the trace of two requests, and the messages of the probes."""
    with Recording(folder, selection=Selection(**options), script="script.py") as recording:
        llm = LLM(str(checkpoint), dtype="float32", num_gpu_blocks_override=32)
        params = [SamplingParams(max_tokens=number, ignore_eos=True) for number in (2, 4)]
        llm.generate(["One", "Two"], params, use_tqdm=False)
    assert recording.stats["problems"] == []
    return RunFolder.open(folder).trace, recording.stats


def test_requests_alone(qwen2_checkpoint: Path, tmp_path: Path):
    """At the level of requests each has its whole life, and facts of steps are reported as not recorded."""
    trace, stats = generate(tmp_path, qwen2_checkpoint, detail="request")
    lives = trace.named(names.REQUEST_SPAN)
    assert [life.attributes[names.GEN_AI_OUTPUT_TOKENS] for life in lives] == [2, 4]
    assert [life.attributes[names.GEN_AI_FINISH_REASONS] for life in lives] == [["length"], ["length"]]
    assert not any(life.open for life in lives)
    assert {span.level for span in trace.spans} == {"request"}
    assert stats["left_out"].keys() == {"steps", "schedules", "endings", "samples", "messages"}
    assert stats["left_out"]["steps"] == ["EngineCore.step_fn"]


def test_steps_without_their_schedules(qwen2_checkpoint: Path, tmp_path: Path):
    """A step without its scheduling has no kind and no requests; no unending request is recorded."""
    trace, stats = generate(tmp_path, qwen2_checkpoint, only=("EngineCore", "LLMEngine"))
    actual = steps(trace)
    assert [step.kind for step in actual[:3]] == ["unknown"] * 3
    assert not any(step.span.links or step.requests or step.aborted for step in actual)
    assert trace.named(names.REQUEST_SPAN) == []
    assert {span.name.partition(".")[0] for span in trace.spans} == {"script", "EngineCore", "LLMEngine"}
    assert stats["left_out"]["requests"][1:] == [
        "OutputProcessor.process_outputs",
        "OutputProcessor.abort_requests",
        "OutputProcessor.propagate_error",
        "RequestOutputCollector.put",
    ]


def test_steps_whose_endings_are_not_recorded(qwen2_checkpoint: Path, tmp_path: Path):
    """A finished request is not recorded as aborted if its end was not recorded."""
    trace, stats = generate(tmp_path, qwen2_checkpoint, skip=("Scheduler.update_from_output",))
    assert [step.kind for step in steps(trace)[:3]] == ["prefill", "decode", "decode"]
    assert [step.released for step in steps(trace)][2] == ("0",)
    assert not any(step.aborted for step in steps(trace))
    assert stats["left_out"] == {"endings": ["Scheduler.update_from_output"]}


def test_a_ledger_without_requests():
    """If requests cannot be recorded whole, no request facts are kept."""
    tracker = RequestTracker(Ids.counting(), left_out={"requests"})
    step = Span("EngineCore.step_fn", "1" * 32, "2" * 16, None, 0, 1)
    for number in range(3):
        request = str(number)
        tracker.submitted(request, "3" * 32, "4" * 16, None, 0)
        tracker.request(request, 0, step)
        tracker.add_child(request, 0, f"{request}-0")
        tracker.link_remote(request, "3" * 32, "4" * 16)
        tracker.link_step([request], step)
        tracker.generated(request, "text", 1, 2)
        assert not tracker.is_open(request)
        assert tracker.request_of(request, 0) == request
        tracker.ended(request, 3, "stop")
    tracker.close(4)
    assert (tracker.take_ended(), list(tracker.unfinished()), step.links) == ([], [], [])


def test_requests_of_another_process_are_not_kept_where_no_step_is_told():
    """A process that computes requests without recording steps does not collect the requests."""
    step = Span("EngineCore.step_fn", "1" * 32, "2" * 16, None, 0, 1)
    for left_out, links in (((), 1), (("steps",), 0), (("endings",), 0)):
        tracker = RequestTracker(Ids.counting(), left_out=left_out)
        tracker.link_remote("a", "3" * 32, "4" * 16)
        before = len(step.links)
        tracker.link_step(["a"], step)
        assert [link.span_id for link in step.links[before:]].count("4" * 16) == links


# -- other processes --------------------------------------------------------------------------------------------------


def test_children_record_what_their_parent_does(tmp_path: Path):
    """A child process wraps the same selection, and has a ring of the same size."""
    selection = Selection(only=("ParentRequest",))
    with Recording(tmp_path, catalog=(), selection=selection, ring=4, script="script.py") as recording:
        first = launches("Worker_0", chosen)
        first.join()
        second = launches("Worker_1", multiplies_often, 9)
        second.join()
    assert (first.exitcode, second.exitcode) == (1, 0)
    kept = [
        span.name for span in RunFolder.open(tmp_path).trace.spans if span.process and span.process.pid == second.pid
    ]
    assert sorted(kept) == ["multiplies"] * (len(kept) - 1) + ["multiplies_often"]
    assert 4 <= len(kept) <= 8
    assert recording.stats["let_go"] == 10 - len(kept)

"""Facts derived from the objects of a vLLM's step, tested without a vLLM."""

import pickle
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

import tracellm
from tests.probes.tracing import record
from tracellm.probes.catalog.engine.step import complete_step
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.vllm import CATALOG
from tracellm.probes.catalog.vllm.processes import attach_call_context
from tracellm.probes.catalog.vllm.runner import acts_on_logits
from tracellm.probes.catalog.vllm.step import _in_order, give_schedule
from tracellm.probes.context.clock import Ids
from tracellm.probes.recording import Recording
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

FACTS: dict[str, Any] = {
    "tokens": {},
    "new": [],
    "cached": ((), (), (), (), ()),
    "resumed": [],
    "preempted": [],
    "refused": [],
    "short": [],
    "running": [],
    "waiting": [],
    "blocked": [],
    "wanted": {},
    "limit": 4,
    "in_order": True,
    "threshold": 0,
    "budget": 16,
}
"""Facts of a step without any events."""


def held(**facts: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the reason for each held request, with its numbers."""
    actual = give_schedule({**FACTS, **facts})["scheduled"]["held"]
    return {request_id: (code, numbers) for request_id, code, numbers in actual}


def test_nobody_is_held():
    """No request is held if each gets its tokens."""
    assert held(tokens={"a": 5, "b": 1}, running=["a", "b"]) == {}


def test_a_prompt_that_is_cut_at_the_budget():
    """A prompt takes the rest of the budget, and those behind it wait for tokens."""
    actual = held(
        tokens={"a": 1, "b": 15},
        running=["a", "b"],
        short=[("b", 9)],
        waiting=["c", "d"],
        wanted={"c": 7},
    )
    assert actual == {
        "b": ("token_budget", {"budget": 16, "left": 15, "wanted": 24, "given": 15}),
        "c": ("token_budget", {"budget": 16, "left": 0, "wanted": 7, "given": 0}),
        "d": ("behind", {"request": "c", "cause": "token_budget"}),
    }


def test_a_prompt_that_is_cut_at_the_threshold():
    """A long prompt gets one chunk though tokens are left."""
    actual = held(tokens={"a": 4}, running=["a"], short=[("a", 6)], threshold=4)
    assert actual == {"a": ("chunk_threshold", {"threshold": 4, "wanted": 10, "given": 4})}


def test_a_running_request_without_tokens():
    """A running request without tokens lacks budget, unless its last token is pending."""
    actual = held(tokens={"a": 16}, running=["a", "b", "c"], wanted={"b": 1, "c": 0})
    assert actual == {"b": ("token_budget", {"budget": 16, "left": 0, "wanted": 1, "given": 0})}


def test_too_few_places():
    """With tokens left, all waiting requests are held by the limit."""
    actual = held(tokens={"a": 1}, running=["a"], limit=1, waiting=["b", "c"], wanted={"b": 3})
    assert set(actual) == {"b", "c"}
    assert actual["c"] == ("max_num_seqs", {"limit": 1, "running": 1})


def test_too_few_blocks():
    """A refusal of blocks holds the refused request and those behind it."""
    actual = held(tokens={"a": 1}, running=["a"], waiting=["b", "c"], refused=[("b", 3, 2)], wanted={"b": 3})
    assert actual == {
        "b": ("no_free_blocks", {"needed": 3, "free": 2}),
        "c": ("behind", {"request": "b", "cause": "no_free_blocks"}),
    }


def test_preemptions():
    """Each refusal preempts one request, and the rest wait behind the last of these."""
    actual = held(
        tokens={"a": 1},
        running=["a"],
        preempted=["c", "b"],
        refused=[("a", 1, 0), ("b", 1, 0)],
        waiting=["b", "c", "d"],
    )
    assert actual == {
        "c": ("preempted", {"by": "a", "needed": 1, "free": 0}),
        "b": ("preempted", {"by": "b", "needed": 1, "free": 0}),
        "d": ("behind", {"request": "b", "cause": "preempted"}),
    }


def test_preemptions_of_which_the_cause_is_not_known():
    """By priority, or without refusals, preemptions are recorded without a cause."""
    facts = {"preempted": ["c", "b"], "waiting": ["b", "c"]}
    by_priority = held(**facts, refused=[("a", 1, 0), ("x", 1, 0)], in_order=False)
    assert by_priority == {"c": ("preempted", {}), "b": ("preempted", {})} == held(**facts)


def test_states_that_requests_wait_in():
    """Blocked states have their reason, and unknown ones their name."""
    blocked = [("a", "WAITING_FOR_FSM"), ("b", "WAITING_FOR_REMOTE_KVS"), ("c", "WAITING_FOR_GODOT")]
    actual = held(blocked=blocked, waiting=["a", "b", "c", "d"])
    assert {request: code for request, (code, _) in actual.items()} == {
        "a": "grammar",
        "b": "remote_kvs",
        "c": "waiting_for_godot",
    }


def test_a_queue_by_priority_is_read_in_its_order():
    """Reading a priority queue visits only a part of the heap and leaves it unchanged."""

    class Queue:
        def __init__(self, heap: list[Any]) -> None:
            self._heap = heap

        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("taken off one by one")

    ranks = [(0, 2.0, "c"), (1, 1.0, "a"), (0, 3.0, "b")]
    requests = [SimpleNamespace(priority=rank, arrival_time=at, request_id=name) for rank, at, name in ranks]
    as_in_0_11 = [(one.priority, one.arrival_time, one) for one in requests]
    for heap in (requests, as_in_0_11):
        assert [one.request_id for one in _in_order(Queue([*heap]))] == ["c", "b", "a"]
    assert list(_in_order(deque(requests))) == requests


def test_processors_that_nobody_asked_for():
    """Unused built-in processors do not count as acting on logits; a user's always do."""

    class MinTokensLogitsProcessor:
        def __init__(self, rows: dict[int, Any]) -> None:
            self.min_toks = rows

    class Users:
        pass

    def acts(*processors: Any, greedy: bool = True) -> bool:
        metadata = SimpleNamespace(
            all_greedy=greedy,
            allowed_token_ids_mask=None,
            bad_words_token_ids={},
            no_penalties=True,
            logitsprocs=SimpleNamespace(non_argmax_invariant=[*processors]),
        )
        return acts_on_logits(metadata)

    assert not acts(MinTokensLogitsProcessor({}))
    assert acts(MinTokensLogitsProcessor({0: (5, [], set())}))
    assert acts(MinTokensLogitsProcessor({}), Users())
    assert acts(greedy=False)


def test_requests_that_come_back_as_new():
    """Requests that come back as new ones are recorded as resumed."""
    facts = give_schedule({**FACTS, "tokens": {"a": 1, "b": 2}, "new": [("a", 0, []), ("b", 4, [])], "resumed": ["b"]})
    assert [one[0] for one in facts["scheduled"]["new"]] == ["a"]
    assert facts["scheduled"]["cached"] == [("b", 4, [], False)]


# -- workers in processes of their own --------------------------------------------------------------------------------


def test_what_a_worker_does_belongs_to_the_call_that_asked(tmp_path: Path):
    """A worker reads a plain method name, and its calls belong to the executor's call."""

    @tracellm.probe
    def execute_model() -> None: ...

    @tracellm.probe(name="step")
    def step(method: str) -> None:
        (_, asked), _ = attach_call_context((EXECUTOR, method), {}) or ((), {})
        sent.append(pickle.dumps(asked))

    def worker() -> None:
        for message in sent:
            method = pickle.loads(message)
            assert (type(method), method) == (str, "execute_model")
            execute_model()

    def run() -> None:
        step("execute_model")
        step("execute_model")
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()

    sent: list[bytes] = []
    trace = record(tmp_path / "run", run, CATALOG)
    asking = [span.span_id for span in trace.spans if span.name == "step"]
    done = [span for span in trace.spans if span.name.endswith("execute_model")]
    assert [span.parent_span_id for span in done] == asking
    assert len(asking) == 2


def test_workers_on_other_machines_are_told_nothing(tmp_path: Path):
    """Calls to workers on other machines, and functions, are passed on unchanged."""

    def run() -> None:
        executor = SimpleNamespace(parallel_config=SimpleNamespace(nnodes=2))
        assert attach_call_context((executor, "execute_model"), {}) is None
        assert attach_call_context((EXECUTOR, len), {}) is None
        [actual] = (attach_call_context((EXECUTOR,), {"method": "execute_model"}) or ((), {}))[1].values()
        assert actual == "execute_model"

    record(tmp_path / "run", run, CATALOG)


EXECUTOR = SimpleNamespace(parallel_config=SimpleNamespace())

# -- compiled models --------------------------------------------------------------------------------------------------

MODULES = {
    "vllm": "",
    "vllm.v1": "",
    "vllm.v1.worker": "",
    "vllm.v1.worker.worker_base": """
        class WorkerBase:
            def __init__(self, vllm_config, rank=0):
                self.vllm_config = vllm_config
        """,
    "vllm.model_executor": "",
    "vllm.model_executor.models": "",
    "vllm.model_executor.models.small": """
        class SmallLayer:
            def forward(self):
                return 1

        class SmallModel:
            def forward(self):
                return SmallLayer().forward()

        class SmallForCausalLM:
            def forward(self):
                return SmallModel().forward()
        """,
}


@pytest.mark.parametrize(("executed", "kind"), [(True, None), (False, "empty"), (None, "empty")])
def test_a_step_that_computed_is_not_called_empty(executed: bool | None, kind: str | None):
    """Without the probe of `schedule`, the kind of a step that ran is unknown."""
    span = Span("EngineCore.step_fn", "", "", None, 0, 0)
    complete_step(RequestTracker(Ids.counting()), span, (None, executed), {"ended": []})
    assert span.attributes.get(names.STEP_KIND) == kind


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package `vllm` with a worker and a model, run by `small(mode)`."""
    packages = {name for name in MODULES if any(other.startswith(f"{name}.") for other in MODULES)}
    for name, source in MODULES.items():
        file = tmp_path / "installed" / name.replace(".", "/")
        file = file / "__init__.py" if name in packages else file.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source))
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))

    def run(mode: int) -> Any:
        from vllm.model_executor.models import small
        from vllm.v1.worker.worker_base import WorkerBase

        WorkerBase(SimpleNamespace(compilation_config=SimpleNamespace(mode=mode)))
        assert small.SmallForCausalLM().forward() == 1
        return small

    yield run
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def names_in(trace: Trace) -> list[str]:
    """The spans of the model."""
    return [span.name for span in trace.spans if span.name.startswith("Small")]


def test_an_eager_model_is_recorded_to_its_layers(small: Any, tmp_path: Path):
    """Without compilation the model and its layers are recorded."""
    trace = record(tmp_path / "run", lambda: small(0), CATALOG)
    assert sorted(names_in(trace)) == ["SmallForCausalLM.forward", "SmallLayer.forward", "SmallModel.forward"]


def test_a_compiled_model_is_left_to_the_compiler(small: Any, tmp_path: Path):
    """Inside a compiled model nothing is wrapped; the whole forward pass is recorded."""
    with Recording(tmp_path / "run", catalog=CATALOG) as recording:
        module = small(3)
        assert not hasattr(module.SmallLayer.forward, "__wrapped__")
        assert not hasattr(module.SmallModel.forward, "__wrapped__")
        assert hasattr(module.SmallForCausalLM.forward, "__wrapped__")
        small(3)
    said = recording.stats["problems"]
    assert len(said) == 1
    assert "enforce_eager=True" in said[0]


def test_a_model_that_is_compiled_as_a_whole(small: Any, tmp_path: Path):
    """A model compiled as a whole is not wrapped either."""
    with Recording(tmp_path / "run", catalog=CATALOG):
        assert not hasattr(small(1).SmallForCausalLM.forward, "__wrapped__")

"""The depth limit of long recordings without a chosen depth: requests and steps are recorded to the end."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.faults.processes import wait_until
from tracellm import LLM, SamplingParams
from tracellm.engine.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner
from tracellm.probes.context.call_context import DEPTH_LIMITED, state
from tracellm.probes.install.installation import DepthLimit, Installation
from tracellm.probes.install.selection import DEPTH_LIMIT, Selection
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

LIKELY = (names.STEP_SAMPLED_PROBS, names.STEP_CANDIDATES)
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


class Listener:
    """Listener for the note of a reduced depth."""

    names: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.noted: list[tuple[int, int]] = []

    def __call__(self, span: Span) -> None:
        """Ignore spans."""

    def depth_limited(self, steps: int, size: int) -> None:
        """Note the steps and bytes recorded at the limit."""
        self.noted.append((steps, size))


def recorded(folder: Path, selection: Selection) -> tuple[Trace, Recording, list[list[int]], Listener]:
    """Record a generation of 12 steps; return its trace, recording, tokens and listener."""
    listener = Listener()
    with Recording(folder, selection=selection, listener=listener) as recording:
        llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
        outputs = llm.generate(["Once upon a time"], GREEDY, use_tqdm=False)
        if selection.depth_limit:
            wait_until(lambda: listener.noted, "the note, in the recorder's next round")
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    return RunFolder.open(folder).trace, recording, tokens, listener


def calls_of_layers(trace: Trace) -> list[int]:
    """Return the number of layer calls in each step, in order."""
    parents = {span.span_id: span.parent_span_id for span in trace.spans}

    def step_of(span_id: str | None) -> str | None:
        while span_id is not None and span_id not in steps:
            span_id = parents.get(span_id)
        return span_id

    steps = {span.span_id for span in trace.named(STEP_SPAN)}
    found = Counter(step_of(span.span_id) for span in trace.spans if span.name == "RMSNorm.forward")
    return [found[span.span_id] for span in trace.named(STEP_SPAN)]


def test_layers_are_left_out_between_two_steps(tmp_path: Path):
    """After the limit in bytes no step has layers, earlier steps have all, and every step is recorded."""
    originals = RMSNorm.forward, GPUModelRunner.execute_model
    whole, unlimited, same, listener = recorded(tmp_path / "whole", Selection())
    size = unlimited.stats["writer"]["bytes"]
    limit = replace(Selection(), depth_limit=size - 30_000)
    trace, recording, tokens, limited_listener = recorded(tmp_path / "limited", limit)
    found = calls_of_layers(trace)
    deep = recording.stats["deep_steps"]
    assert 0 < deep < len(found) == 12
    assert found == [found[0]] * deep + [0] * (12 - deep)
    assert (RMSNorm.forward, GPUModelRunner.execute_model) == originals
    assert calls_of_layers(whole) == [found[0]] * 12
    assert (unlimited.stats["deep_steps"], listener.noted) == (None, [])
    [(steps, noted_size)] = limited_listener.noted
    assert steps >= deep
    assert noted_size >= size - 30_000
    assert recording.stats["installed"] == unlimited.stats["installed"]
    assert tokens == same
    attributes = [
        {name: value for name, value in span.attributes.items() if number < deep or name not in LIKELY}
        for number, span in enumerate(whole.named(STEP_SPAN))
    ]
    assert [span.attributes for span in trace.named(STEP_SPAN)] == attributes


def test_a_process_without_steps_is_limited_too(tmp_path: Path):
    """The recorder's thread applies the limit in a process without steps, such as a server's first process."""
    with Recording(tmp_path, selection=replace(Selection(), depth_limit=1)) as recording:
        RMSNorm(8, 1e-6)(torch.ones(1, 8))
        wait_until(lambda: recording._depth_limit._max_bytes is None, "what has been recorded to be enough")
        assert not hasattr(RMSNorm.forward, "__wrapped__")
    assert recording.stats["deep_steps"] == 0


@pytest.mark.parametrize(
    ("selection", "limit"),
    [
        (Selection.of(), DEPTH_LIMIT),
        (Selection.of(skip=["BlockPool"]), DEPTH_LIMIT),
        (Selection.of("kernel"), None),
        (Selection.of(focus=["Scheduler"]), None),
        (Selection.of(only=["Scheduler.*"]), None),
    ],
)
def test_who_asks_for_a_depth_gets_all_of_it(selection: Selection, limit: int | None):
    """A recording with a chosen depth has no limit."""
    assert selection.depth_limit == limit
    assert Selection.from_dict(selection.as_dict()) == selection


def test_an_interrupt_only_puts_it_off(monkeypatch: pytest.MonkeyPatch):
    """If Ctrl-C interrupts the removal of probes, the next step removes the rest, and the limit is recorded once."""
    kinds: tuple[Any, ...] = (RMSNorm, GemmaRMSNorm)
    originals = [kind.forward for kind in kinds]
    records: list[Any] = []
    monkeypatch.setattr(state, "depth_limited", False)
    monkeypatch.setattr(state, "append", records.append)
    home = "tracellm.engine.model_executor.layers.layernorm"
    installation = Installation([Entry(f"{home}:{kind.__name__}.forward", "layer") for kind in kinds], Selection(), [])
    recorder: Any = SimpleNamespace(bytes=1, steps=0, step_ended=lambda parent: None)
    limit = DepthLimit(1, recorder, installation, lambda steps: None)
    taken: list[Any] = []

    def interrupted(*place: Any) -> None:
        taken.append(place)
        if len(taken) == 2:
            raise KeyboardInterrupt
        setattr(*place)

    installation.start()
    try:
        with monkeypatch.context() as context:
            context.setattr("tracellm.probes.install.installation.setattr", interrupted, raising=False)
            with pytest.raises(KeyboardInterrupt):
                limit.step_ended(0)
        assert records == []
        for _ in range(2):
            limit.step_ended(0)
        assert [kind.forward for kind in kinds] == originals
        assert installation.installed == len(kinds)
    finally:
        installation.stop()
    assert [record[0] for record in records] == [DEPTH_LIMITED]

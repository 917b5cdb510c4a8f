"""A long recording goes less deep where nobody said how deep it is to go: requests and steps are told of to the end."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.faults.processes import wait_until
from tracellm import LLM, SamplingParams
from tracellm.engine.layers.layernorm import GemmaRMSNorm, RMSNorm
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner
from tracellm.probes.clock import Ids
from tracellm.probes.install import Installation
from tracellm.probes.ledger import Ledger
from tracellm.probes.selection import DEEP_CALLS, Selection
from tracellm.probes.session import Recording
from tracellm.probes.spec import Entry
from tracellm.probes.state import state
from tracellm.probes.thinning import Thinning
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

LIKELY = (names.STEP_SAMPLED_PROBS, names.STEP_CANDIDATES)
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def recorded(folder: Path, selection: Selection, apart: bool) -> tuple[Trace, Recording, list[list[int]]]:
    """A generation of 12 steps, and its tokens."""
    with Recording(folder, selection=selection, apart=apart) as recording:
        llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
        outputs = llm.generate(["Once upon a time"], GREEDY, use_tqdm=False)
    return RunFolder.open(folder).trace, recording, [list(output.outputs[0].token_ids) for output in outputs]


def deep_calls(trace: Trace) -> list[int]:
    """How many calls of layers each step has in it, in their order."""
    parents = {span.span_id: span.parent_span_id for span in trace.spans}

    def step_of(span_id: str | None) -> str | None:
        while span_id is not None and span_id not in steps:
            span_id = parents.get(span_id)
        return span_id

    steps = {span.span_id for span in trace.named(STEP_SPAN)}
    found = Counter(step_of(span.span_id) for span in trace.spans if span.name == "RMSNorm.forward")
    return [found[span.span_id] for span in trace.named(STEP_SPAN)]


@pytest.mark.parametrize("apart", [True, False])
def test_layers_are_left_out_between_two_steps(tmp_path: Path, apart: bool):
    """After so many calls no step has layers any more, each before has all of its own, and every step is told of."""
    originals = RMSNorm.forward, GPUModelRunner.execute_model
    enough = replace(Selection(), deep_calls=400)
    trace, recording, tokens = recorded(tmp_path / "thinned", enough, apart)
    found = deep_calls(trace)
    deep = recording.stats["deep_steps"]
    assert 0 < deep < len(found) == 12
    assert found == [found[0]] * deep + [0] * (12 - deep)
    assert (RMSNorm.forward, GPUModelRunner.execute_model) == originals
    whole, unthinned, same = recorded(tmp_path / "whole", Selection(), apart)
    assert deep_calls(whole) == [found[0]] * 12
    assert unthinned.stats["deep_steps"] is None
    assert recording.stats["installed"] == unthinned.stats["installed"]
    assert tokens == same
    assert [span.attributes for span in trace.named(STEP_SPAN)] == [
        {name: value for name, value in span.attributes.items() if number < deep or name not in LIKELY}
        for number, span in enumerate(whole.named(STEP_SPAN))
    ]


def test_a_process_without_steps_is_thinned_too(tmp_path: Path):
    """Where nobody's step ends, as in a server's first process, the writer looks whether it is enough."""
    with Recording(tmp_path, selection=replace(Selection(), deep_calls=1)) as recording:
        RMSNorm(8, 1e-6)(torch.ones(1, 8))
        wait_until(lambda: recording._thinning._calls is None, "what has been recorded to be enough")
        assert not hasattr(RMSNorm.forward, "__wrapped__")
    assert recording.stats["deep_steps"] == 0


@pytest.mark.parametrize(
    ("selection", "calls"),
    [
        (Selection.of(), DEEP_CALLS),
        (Selection.of(skip=["BlockPool"]), DEEP_CALLS),
        (Selection.of("kernel"), None),
        (Selection.of(focus=["Scheduler"]), None),
        (Selection.of(only=["Scheduler.*"]), None),
    ],
)
def test_who_says_how_deep_gets_all_of_it(selection: Selection, calls: int | None):
    """Only a recording of which nobody said how deep it is to go goes less deep after a while."""
    assert selection.deep_calls == calls
    assert Selection.from_dict(selection.as_dict()) == selection


def test_an_interrupt_only_puts_it_off(monkeypatch: pytest.MonkeyPatch):
    """Where Ctrl-C strikes while probes are taken off, the next step takes off the rest; it is told once."""
    kinds: tuple[Any, ...] = (RMSNorm, GemmaRMSNorm)
    originals = [kind.forward for kind in kinds]
    notes: list[Any] = []
    monkeypatch.setattr(state, "thinned", False)
    monkeypatch.setattr(state, "append", notes.append)
    home = "tracellm.engine.layers.layernorm"
    installation = Installation([Entry(f"{home}:{kind.__name__}.forward", "layer") for kind in kinds], Selection(), [])
    writer: Any = SimpleNamespace(handed_over=1, buffer=[], wait_until_handed_over=lambda: None)
    thinning = Thinning(1, writer, installation)
    taken: list[Any] = []

    def interrupted(*place: Any) -> None:
        taken.append(place)
        if len(taken) == 2:
            raise KeyboardInterrupt
        setattr(*place)

    installation.start()
    try:
        with monkeypatch.context() as context:
            context.setattr("tracellm.probes.install.setattr", interrupted, raising=False)
            with pytest.raises(KeyboardInterrupt):
                thinning.step_ended()
        assert notes == []
        for _ in range(2):
            thinning.step_ended()
        assert [kind.forward for kind in kinds] == originals
        assert installation.installed == len(kinds)
    finally:
        installation.stop()
    [note] = notes
    ledger = Ledger(Ids.counting())
    for steps in (3, 9):  # two threads may come to it at once: what was told first counts
        ledger.steps = steps
        note.tell(ledger, note.facts)
    assert ledger.deep_steps == 3

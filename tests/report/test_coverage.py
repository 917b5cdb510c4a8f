"""What reports say of a recording itself: what was asked for, what it cannot tell, what was let go, what it cost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracellm.report.facts.coverage import (
    asked_for,
    cost,
    deeper_than_recorded,
    is_recorded,
    notes,
    unheard,
    why_untold,
)
from tracellm.report.html.run_view import probes_sentence
from tracellm.report.texts import LANGUAGES

PROBES: dict[str, Any] = {
    "calls": 1204,
    "seconds": 0.012,
    "share": 0.0035,
    "let_go": 0,
    "left_out": {},
    "writer": {"spans": 1204, "seconds": 0.003, "us_per_span": 2.5, "worst_pause_ms": 1.25, "held_up_s": 0.0},
}


def manifest(probes: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """A run.json of so much."""
    whole: dict[str, Any] = {"detail": "kernel", "focus": [], "only": [], "skip": [], "ring": None}
    return {"options": whole | options, "probes": PROBES | (probes or {})}


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({}, ""),
        ({"detail": "step"}, "--detail step"),
        ({"detail": "step", "focus": ["Scheduler"]}, "--focus Scheduler"),
        ({"detail": "kernel", "focus": ["Scheduler"]}, "--detail kernel --focus Scheduler"),
        ({"detail": "layer", "only": ["a", "b"], "skip": ["c*"]}, "--detail layer --only a --only b --skip 'c*'"),
        ({"detail": None, "focus": None, "only": 7}, ""),
    ],
)
def test_what_was_asked_for(options: dict[str, Any], typed: str):
    """The options as they are typed, so that they can be typed again; nothing where all was recorded."""
    assert asked_for(manifest(**options)) == typed


def test_a_whole_recording_needs_no_note():
    """Where nothing was left out or let go, nothing is said."""
    assert notes(manifest(), "en") == []
    assert unheard(manifest(), "en") == []


def test_what_cannot_be_told():
    """It is named, what goes without saying apart; and why, with the functions that it takes."""
    left_out = {"messages": ["A.b"], "steps": ["EngineCore.step_fn"], "schedules": ["Scheduler.schedule"]}
    run = manifest({"left_out": left_out}, only=["Sampler"])
    assert notes(run, "en") == [
        "Recorded with --only Sampler: calls that this leaves out are not in the recording. It does not tell of "
        "messages between processes, the engine's steps."
    ]
    assert why_untold(run, "en", "requests", "steps", "schedules") == [
        "Of the engine's steps nothing is recorded: that takes EngineCore.step_fn, which --only Sampler leaves out."
    ]
    assert not is_recorded(run, "steps")
    assert is_recorded(run, "requests")
    partly = manifest({"left_out": {"requests": list("abcdef")}}, skip=["x"])
    assert "that takes a, b, c, …, which --skip x" in why_untold(partly, "en", "requests")[0]


def test_what_a_version_lacks():
    """How many probes found nothing, of how many, in which engine; the first of them by name. Of no engine, nothing."""
    engine = {"name": "vllm", "version": "0.99", "probes": 58}
    targets = [f"vllm.v1.module:Class.{name}" for name in "abcdef"]
    [told] = notes(manifest({"engine": engine, "missing": targets}), "en")
    assert told.startswith("6 of 58 probes found no target in vLLM 0.99: Class.a, Class.b, Class.c, ….")
    [told] = notes(manifest({"engine": engine, "missing": targets[:1]}), "zh")
    assert told.startswith("58 个探针中有 1 个在 vLLM 0.99 里没有找到对象：Class.a。")
    assert notes(manifest({"engine": engine, "missing": []}), "en") == []
    assert notes(manifest({"engine": None, "missing": targets}), "en") == []


def test_what_was_let_go():
    """How many spans, and by which option."""
    [told] = notes(manifest({"let_go": 1234}, ring=100), "en")
    assert told == "Only the last 100 spans of each process were kept (--ring): 1,234 earlier ones were let go."
    killed = {"options": {"ring": 100}, "probes": {"left_out": {}}}
    [told] = notes(killed, "en")
    assert told.startswith("Only the last 100 spans of each process, or a few more, were kept")
    [missed] = unheard(manifest({"unheard": 1}), "en")
    assert missed.startswith("1 span of another process was")


def test_what_it_cost():
    """Calls, time in probes and of the writer, their share of the run, the longest pause; and what was waited for."""
    apart = manifest({"writer": {**PROBES["writer"], "seconds_within": 0.002}})
    assert cost(manifest(), "en") == [
        "Recording: 1,204 calls, 12.0 ms in probes, 3.00 ms to hand them on, 0.4% of the run; longest pause 1.25 ms."
    ]
    slow = manifest({"writer": PROBES["writer"] | {"held_up_s": 0.5}})
    assert cost(apart, "en") == [
        "Recording: 1,204 calls, 12.0 ms in probes, 2.00 ms to hand them on, 0.4% of the run; longest pause 1.25 ms.",
        "Written beside it, by a process of the lowest priority, in 3.00 ms.",
    ]
    assert cost(slow, "en")[1:] == ["Calls came faster than they could be written, and waited 500 ms for it in all."]


def test_not_so_deep():
    """A level that was not recorded is known as such."""
    assert deeper_than_recorded(manifest(detail="step"), "layer") == "step"
    assert deeper_than_recorded(manifest(detail="step"), "step") is None
    assert deeper_than_recorded(manifest(), "kernel") is None
    assert deeper_than_recorded({}, "kernel") is None
    assert deeper_than_recorded(manifest(detail="step", focus=["Scheduler"]), "kernel") is None, "some of it is there"


anything = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["detail", "only", "left_out", "let_go", "writer", "seconds", "steps"]), inner
        )
    ),
    max_leaves=8,
)


numbers = st.integers() | st.floats() | st.just(10**400)
writers = st.fixed_dictionaries(
    {key: numbers for key in PROBES["writer"]}, optional={"seconds_within": numbers | st.none()}
)
figures = st.fixed_dictionaries(
    {"calls": numbers, "seconds": numbers, "share": numbers},
    optional={"writer": writers, "installed": anything | numbers, "per_call_us": numbers},
)


DEEP = [
    ({"deep_steps": 61}, 20_000, "up to step 61, after 20,000 calls"),
    ({"deep_steps": 0}, 20_000, "Of each process the first 20,000 calls"),
    ({"deep_steps": None}, 20_000, None),
    ({"deep_steps": None}, None, None),
]


@pytest.mark.parametrize(("probes", "calls", "told"), DEEP)
def test_how_far_a_long_run_is_recorded_deeply(probes: dict[str, Any], calls: int | None, told: str | None):
    """Who looks for a layer of a late step is told that it was not recorded any more, and how it would be."""
    said = notes(manifest(probes, deep_calls=calls), "en")
    assert len(said) == (told is not None)
    assert told is None or (told in said[0] and "--detail kernel" in said[0])


def test_a_run_that_was_killed_may_have_been_long():
    """Of a run that could not say how it ended it is told that only so many of its calls tell of layers."""
    [said] = notes({"options": {"deep_calls": 20_000}, "probes": {}}, "en")
    assert "the first 20,000 calls" in said


@given(anything, anything | figures, st.sampled_from(LANGUAGES))
def test_any_run_json_will_do(options: Any, probes: Any, lang: str):
    """A manifest of another version, or a damaged one, tells what it can, and is no error."""
    run = {"options": options, "probes": probes}
    for told in (notes(run, lang), cost(run, lang), unheard(run, lang), why_untold(run, lang, "steps", "client")):
        assert all(isinstance(one, str) for one in told)
    assert isinstance(asked_for(run), str)
    assert isinstance(probes_sentence(run, lang), str)
    assert is_recorded(run, "client") in (True, False)

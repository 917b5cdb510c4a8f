"""Notes of reports on the recording: its options, gaps, dropped spans and cost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.synthetic import a_run
from tracellm.report.facts.coverage import (
    cost,
    deeper_than_recorded,
    is_recorded,
    notes,
    recording_options,
    skipped_calls,
    why_missing,
)
from tracellm.report.html.run_view import probes_sentence
from tracellm.report.texts import LANGUAGES
from tracellm.trace.model import Trace

PROBES: dict[str, Any] = {
    "calls": 1204,
    "seconds": 0.012,
    "share": 0.0035,
    "let_go": 0,
    "left_out": {},
    "writer": {
        "spans": 1300,
        "calls": 1204,
        "seconds": 0.003,
        "us_per_call": 2.5,
        "longest_ms": 1.25,
        "bytes": 51_200,
        "lost": 0,
    },
    "conversion": {"seconds": 0.25, "us_per_span": 20.0},
}


def manifest(probes: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return a run.json with these entries."""
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
    """The options are printed as on the command line, or not at all for a complete recording."""
    assert recording_options(manifest(**options)) == typed


def test_a_whole_recording_needs_no_note():
    """A complete recording has no note."""
    assert notes(manifest(), "en") == []
    assert skipped_calls(manifest(), "en") == []


def test_what_cannot_be_told():
    """A note names what is missing, the reason, and the functions to record."""
    left_out = {"messages": ["A.b"], "steps": ["EngineCore.step_fn"], "schedules": ["Scheduler.schedule"]}
    run = manifest({"left_out": left_out}, only=["Sampler"])
    assert notes(run, "en") == [
        "Recorded with --only Sampler; other calls are missing. Also missing: messages between processes, steps."
    ]
    assert why_missing(run, "en", "requests", "steps", "schedules") == [
        "Not recorded: steps. This needs EngineCore.step_fn, which --only Sampler excludes."
    ]
    assert not is_recorded(run, "steps")
    assert is_recorded(run, "requests")
    partly = manifest({"left_out": {"requests": list("abcdef")}}, skip=["x"])
    assert "This needs a, b, c, …, which --skip x" in why_missing(partly, "en", "requests")[0]


def test_what_a_version_lacks():
    """Missing probes are counted, with the engine's name and the first of them; without an engine there is no note."""
    engine = {"name": "vllm", "version": "0.99", "probes": 58}
    targets = [f"vllm.v1.module:Class.{name}" for name in "abcdef"]
    [note] = notes(manifest({"engine": engine, "missing": targets}), "en")
    assert note.startswith("6 of 58 probes found no target in vLLM 0.99: Class.a, Class.b, Class.c, ….")
    [note] = notes(manifest({"engine": engine, "missing": targets[:1]}), "zh")
    assert note.startswith("58 个探针中有 1 个在 vLLM 0.99 中没有找到目标：Class.a。")
    assert notes(manifest({"engine": engine, "missing": []}), "en") == []
    assert notes(manifest({"engine": None, "missing": targets}), "en") == []


def test_what_was_let_go():
    """Dropped spans are counted, with the option that dropped them."""
    [note] = notes(manifest({"let_go": 1234}, ring=100), "en")
    assert note.startswith("At least the last 100 calls of each process were kept (--ring); 1,234 ")
    assert note.endswith(" earlier calls were dropped.")
    killed = {"options": {"ring": 100}, "probes": {"left_out": {}}}
    [note] = notes(killed, "en")
    assert note.startswith("At least the last 100 calls of each process were kept")
    [missed] = skipped_calls(manifest({"unheard": 1}), "en")
    assert missed.startswith("The log fell behind and skipped 1 call")


def test_what_it_cost():
    """The cost has calls, time, bytes, shares, the longest write, and the conversion."""
    assert cost(manifest(), "en", 0.0461) == [
        "Cost of recording: 1,204 calls, 12.0 ms in probes, 3.00 ms to write 51.2 kB, 0.4% of the run, "
        "4.6% of generation, longest write 1.25 ms.",
        "Converting the records to spans took 250 ms.",
    ]
    assert "0.4% of the run, longest write" in cost(manifest(), "en")[0]
    assert "占整个运行的 0.4%、占生成阶段的 4.6%" in cost(manifest(), "zh", 0.0461)[0]
    lost = manifest({"writer": PROBES["writer"] | {"lost": 7}})
    assert cost(lost, "en")[1] == "7 calls were lost: the disk was too slow or full."


def test_the_cost_of_an_older_recording():
    """A run.json of an older version shows the numbers that it has."""
    older = {"spans": 1204, "seconds": 0.003, "seconds_within": 0.002, "worst_pause_ms": 5.0, "held_up_s": 0.5}
    probes = {"calls": 1204, "seconds": 0.012, "share": 0.0035, "writer": older}
    assert cost({"probes": probes}, "en") == [
        "Cost of recording: 1,204 calls, 12.0 ms in probes, 3.00 ms to write them, 0.4% of the run."
    ]
    assert cost({"probes": {"calls": 3, "seconds": 0.5}}, "en") == ["Cost of recording: 3 calls, 500 ms in probes."]
    assert cost({"probes": {"share": 0.5}}, "en") == []


def test_not_so_deep():
    """An unrecorded level is reported as such."""
    assert deeper_than_recorded(manifest(detail="step"), "layer") == "step"
    assert deeper_than_recorded(manifest(detail="step"), "step") is None
    assert deeper_than_recorded(manifest(), "kernel") is None
    assert deeper_than_recorded({}, "kernel") is None
    assert deeper_than_recorded(manifest(detail="step", focus=["Scheduler"]), "kernel") is None, "some of it is there"


A_TRACE = Trace(a_run())

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
writers = st.fixed_dictionaries({}, optional=dict.fromkeys(PROBES["writer"], numbers | st.none()))
figures = st.fixed_dictionaries(
    {"calls": numbers, "seconds": numbers, "share": numbers},
    optional={
        "writer": writers,
        "conversion": anything,
        "installed": anything | numbers,
        "per_call_us": numbers,
    },
)


DEEP = [
    ({"deep_steps": 61}, 16_000_000, "up to step 61, where the records reached 16.0 MB"),
    ({"deep_steps": 0}, 16_000_000, "until its records reach 16.0 MB"),
    ({"deep_steps": None}, 16_000_000, None),
    ({"deep_steps": None}, None, None),
]


@pytest.mark.parametrize(("probes", "limit", "note"), DEEP)
def test_how_far_a_long_run_is_recorded_deeply(probes: dict[str, Any], limit: int | None, note: str | None):
    """After the depth limit, a note on layers names the limit and the option to raise it."""
    said = notes(manifest(probes, depth_limit=limit), "en")
    assert len(said) == (note is not None)
    assert note is None or (note in said[0] and "--detail kernel" in said[0])


def test_a_run_that_was_killed_may_have_been_long():
    """A killed run has no final counts, so the note gives the depth limit."""
    [said] = notes({"options": {"depth_limit": 16_000_000}, "probes": {}}, "en")
    assert "until its records reach 16.0 MB" in said


@given(anything, anything | figures, st.sampled_from(LANGUAGES))
def test_any_run_json_will_do(options: Any, probes: Any, lang: str):
    """A manifest of another version, or a damaged one, is shown as far as possible."""
    run = {"options": options, "probes": probes}
    for lines in (
        notes(run, lang),
        cost(run, lang),
        skipped_calls(run, lang),
        why_missing(run, lang, "steps", "client"),
    ):
        assert all(isinstance(line, str) for line in lines)
    assert isinstance(recording_options(run), str)
    assert isinstance(probes_sentence(run, A_TRACE, lang), str)
    assert is_recorded(run, "client") in (True, False)

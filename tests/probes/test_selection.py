"""Selections by level, class, function and module, and the errors for unknown names."""

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracellm.engine
from tracellm.probes.catalog import CATALOG, EVERY_ENGINE
from tracellm.probes.catalog.report_needs import SUBJECTS, lacking
from tracellm.probes.install.installation import Installation
from tracellm.probes.install.selection import (
    DEPTH_LIMIT,
    Function,
    Selection,
    choices,
    chosen_targets,
    file_of,
    unmatched_patterns,
)
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.names import LEVELS

STEP = Function("tracellm.engine.core.core", ("EngineCore",), "step_fn", ("EngineCoreProc",))
CHECK = Function("tracellm.engine.core.sched.utils", ("sched/utils.py",), "check_stop")
FUNCTIONS = [choice.function for choice in choices(CATALOG)]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("EngineCore", True),
        ("EngineCore.step_fn", True),
        ("step_fn", True),
        ("EngineCore.*", True),
        ("*Core*", True),
        ("EngineCoreProc", True),
        ("EngineCoreProc.step_fn", True),
        ("tracellm.engine.core.core", True),
        ("core", True),
        ("tracellm.engine", True),
        ("enginecore", False),
        ("EngineCore.step", False),
        ("EngineCor", False),
        ("Core", False),
        ("core_client", False),
        ("tracellm.engine.cor", False),
    ],
)
def test_what_a_pattern_names(pattern: str, matches: bool):
    """A pattern names a whole class (also a subclass), a method, a module or a package."""
    assert STEP.matches(pattern) is matches
    assert Selection(only=(pattern,)).chooses("step", STEP) is matches


def test_what_no_class_has_goes_by_its_file():
    """A module-level function is named by its file, its module or a package."""
    for pattern in ("check_stop", "sched/utils.py", "*utils.py", "sched.utils", "sched", "sched/utils.py.check_stop"):
        assert CHECK.matches(pattern), pattern
    assert Selection("step", focus=("sched/utils.py",)).chooses("layer", CHECK)
    assert file_of("tracellm.engine.core.sched.utils") == "sched/utils.py"


def test_skipping_takes_out_what_the_class_defines():
    """Skipping a subclass does not skip methods that others inherit from the base class."""
    assert not Selection(skip=("EngineCore",)).chooses("step", STEP)
    assert Selection(skip=("EngineCoreProc",)).chooses("step", STEP)


def test_what_users_ask_for():
    """Without a level everything is recorded, or only steps around a focus; a given level wins."""
    assert Selection.of() == Selection("kernel", depth_limit=DEPTH_LIMIT)
    assert Selection.of(focus=["Scheduler"]) == Selection("step", ("Scheduler",))
    assert Selection.of("layer", ["Scheduler"]) == Selection("layer", ("Scheduler",))
    focused = Selection.of(focus=["EngineCore"])
    assert focused.chooses("kernel", STEP)
    assert not focused.chooses("layer", CHECK)
    assert focused.chooses("step", CHECK)


names = st.sampled_from(["Scheduler", "Qwen2*", "EngineCoreProc", "*", "sched", "step_fn", "ops", "forward", "nothing"])
patterns = st.lists(names, max_size=3).map(tuple)
selections = st.builds(Selection, st.sampled_from(LEVELS), patterns, patterns, patterns)


@given(selections, names, st.sampled_from(FUNCTIONS), st.sampled_from(LEVELS))
def test_selections(selection: Selection, name: str, function: Function, level: Any):
    """A selection survives JSON; more skips never add, more focus never removes, and the level is a limit."""
    actual = selection.as_dict()
    assert Selection.from_dict(actual) == selection
    assert all(value is None or type(value) in (str, list) for value in actual.values())
    chosen = selection.chooses(level, function)
    skips = Selection(selection.detail, selection.focus, selection.only, (*selection.skip, name))
    focuses = Selection(selection.detail, (*selection.focus, name), selection.only, selection.skip)
    assert skips.chooses(level, function) <= chosen <= focuses.chooses(level, function)
    assert chosen <= selection.reaches(level)
    assert not (chosen and any(function.matches(one, subclasses=False) for one in selection.skip))


def test_all_that_is_wrapped_can_be_named():
    """The names read from the engine's source are exactly the functions that an installation wraps."""
    for module in pkgutil.walk_packages(tracellm.engine.__path__, "tracellm.engine."):
        importlib.import_module(module.name)
    importlib.import_module("fastapi.applications")
    installation = Installation(CATALOG, Selection(), [])
    installation.start()
    wrapped = list(installation._installed)
    installation.stop()
    assert {(one.module, one.owners[0], one.name) for one in FUNCTIONS} == {
        (owner.__module__, owner.__name__, name)
        if isinstance(owner, type)
        else (vars(owner)[name].__module__, file_of(vars(owner)[name].__module__), name)
        for owner, name in wrapped
    }


def test_names_that_nothing_has():
    """Each unknown name is reported with its option and the most similar names, ignoring case."""
    found = unmatched_patterns(Selection("kernel", ("enginecore",), ("Schedular", "Scheduler"), ("zzzz",)), CATALOG)
    assert [(one.option, one.pattern, one.why) for one in found] == [
        ("focus", "enginecore", "unknown"),
        ("only", "Schedular", "unknown"),
        ("skip", "zzzz", "unknown"),
    ]
    assert found[0].names[0] == "EngineCore"
    assert found[1].names[0] == "Scheduler"
    assert found[2].names == ()
    assert unmatched_patterns(Selection("request"), CATALOG) == []


def test_names_that_do_nothing():
    """Skipping inherited methods, or selecting skipped ones, is reported as without effect."""
    [inherited] = unmatched_patterns(Selection(skip=("LlamaAttention",)), CATALOG)
    assert (inherited.why, inherited.names) == ("inherited", ("Qwen2Attention",))
    [too_deep] = unmatched_patterns(Selection("step", only=("Qwen2MLP", "Scheduler")), CATALOG)
    assert (too_deep.why, too_deep.pattern) == ("left_out", "Qwen2MLP")
    [skipped] = unmatched_patterns(Selection(only=("Scheduler.schedule",), skip=("Scheduler",)), CATALOG)
    assert (skipped.why, skipped.pattern) == ("left_out", "Scheduler.schedule")


def test_subjects_are_of_the_catalog():
    """The subjects of reports are in the catalog by name, and requests are recorded at every level."""
    known = {entry.target for entry in EVERY_ENGINE}
    assert {target for targets in SUBJECTS.values() for target in targets} <= known
    assert chosen_targets(Selection("request"), EVERY_ENGINE) >= set(SUBJECTS["requests"])
    assert Installation(EVERY_ENGINE, Selection("step"), []).left_out == {}


def test_what_a_selection_lacks_of_either_engine():
    """Both engines count until the engine is known, unless one is left out wholly; then its names are reported."""
    for only in ("vllm", "tracellm.engine"):
        assert Installation(EVERY_ENGINE, Selection(only=(only,)), []).left_out == {}
    skipping = Selection(skip=("OutputProcessor.add_request", "EngineCore.step*"))
    assert Installation(EVERY_ENGINE, skipping, []).left_out == {
        "requests": ["OutputProcessor.add_request"],
        "steps": ["EngineCore.step_fn", "EngineCore.step", "EngineCore.step_with_batch_queue"],
    }
    chosen = chosen_targets(skipping, EVERY_ENGINE)
    unchosen = {entry.target for entry in EVERY_ENGINE} - chosen
    assert lacking(chosen, unchosen, "tracellm")["steps"] == ["EngineCore.step_fn"]
    assert lacking(chosen, unchosen, "vllm")["steps"] == ["EngineCore.step", "EngineCore.step_with_batch_queue"]
    assert lacking(chosen, unchosen, "tracellm")["requests"] == ["OutputProcessor.add_request"]


def test_a_function_is_chosen_by_any_of_its_names():
    """A function can be selected by its name in any vLLM version."""
    entry = Entry("nowhere.old:Processor.run", "step", other_targets=("nowhere.new:InputProcessor.run",))
    for pattern in ("Processor.run", "InputProcessor", "nowhere.new"):
        only = Selection(only=(pattern,))
        assert unmatched_patterns(only, [entry]) == []
        assert chosen_targets(only, [entry]) == {entry.target}
    assert chosen_targets(Selection(only=("nowhere.other",)), [entry]) == set()


def test_what_cannot_be_read_is_believed():
    """An entry of a missing or sourceless package can be named as written."""
    entries = [Entry("nowhere.at_all:Class.method", "step"), Entry("builtins:print", "step")]
    assert [choice.function.owners[0] for choice in choices(entries)] == ["Class", "builtins.py"]
    assert chosen_targets(Selection(only=("Class",)), entries) == {"nowhere.at_all:Class.method"}

"""Installation of probes: only requested functions are wrapped, once, and all are restored."""

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from tests.probes.tracing import outline, record
from tracellm.probes.install.patcher import ImportHook, Patcher
from tracellm.probes.install.selection import Selection, file_of
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Entry, Mistake
from tracellm.trace.run_folder import RunFolder

SOURCE = """
class Base:
    def inherited(self): return helper(1)
    def overridden(self): return "base"
    def __init__(self): pass

class Thing(Base):
    def overridden(self): return super().overridden()
    @staticmethod
    def static(x): return x
    @classmethod
    def of_class(cls): return cls
    @property
    def value(self): return 1
    constant = 5

class Other:
    def overridden(self): return "other"

def helper(x): return x
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An imported package `thing` with the module `thing.parts`."""
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "__init__.py").write_text("")
    (tmp_path / "thing" / "parts.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("thing.parts")
    for name in [one for one in sys.modules if one.partition(".")[0] == "thing"]:
        del sys.modules[name]


def entry(path: str, level: Any = "request", **options: Any) -> Entry:
    """Return a catalog entry for a function of the module."""
    return Entry(f"thing.parts:{path}", level, **options)


def snapshot(module: Any) -> dict[str, dict[str, Any]]:
    """Return every object of the module and its classes."""
    return {name: dict(vars(one)) for name, one in vars(module).items() if isinstance(one, type)} | {
        "": dict(vars(module))
    }


def test_everything_is_put_back(module: Any, tmp_path: Path):
    """After a recording all classes and the module hold the same objects as before."""
    before = snapshot(module)
    names = (
        "Base.inherited",
        "Thing.overridden",
        "Thing.static",
        "Thing.of_class",
        "Base.__init__",
        "helper",
        "*.overridden",
    )
    recording = Recording(tmp_path / "run", catalog=[entry(name) for name in names])
    recording.start()
    during = snapshot(module)
    assert recording.stats["installed"] == 8
    recording.stop()
    assert snapshot(module) == before
    assert during["Thing"]["overridden"] is not before["Thing"]["overridden"]
    assert during["Thing"]["static"].__func__ is not before["Thing"]["static"].__func__


def test_an_import_that_outlasts_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module still being imported at the end of the recording stays as its source defines it."""
    (tmp_path / "lasting.py").write_text(
        "import sys\nsys.modules['lasting_recording'].stop()\ndef helper(): return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recording = Recording(tmp_path / "run", catalog=[Entry("lasting:helper", "request")])
    monkeypatch.setitem(sys.modules, "lasting_recording", recording)
    with recording:
        lasting = importlib.import_module("lasting")
    del sys.modules["lasting"]
    assert not hasattr(lasting.helper, "__wrapped__")
    assert recording.stats["installed"] == 0


def test_only_the_chosen_detail_is_wrapped(module: Any, tmp_path: Path):
    """Functions deeper than the chosen detail are not replaced."""
    before = snapshot(module)
    recording = Recording(
        tmp_path / "run",
        selection=Selection("step"),
        catalog=[entry("helper", "layer"), entry("Thing.overridden", "step")],
    )
    with recording:
        assert module.helper is before[""]["helper"]
        assert module.Thing.overridden is not before["Thing"]["overridden"]


def test_classes_and_inheritance(module: Any, tmp_path: Path):
    """A method is wrapped where it is defined, even for a subclass's entry, and named by the receiver's class."""

    def run() -> None:
        thing = module.Thing()
        thing.inherited()
        thing.overridden()
        thing.static(3)
        thing.of_class()
        module.Other().overridden()

    catalog = [entry(name) for name in ("Thing.inherited", "*.overridden", "Thing.static", "Thing.of_class", "helper")]
    assert outline(record(tmp_path / "run", run, catalog)) == (
        "script.py\n  Thing.inherited\n    helper\n  Thing.overridden\n    Thing.overridden\n"
        "  Thing.static\n  Thing.of_class\n  Other.overridden"
    )


def test_functions_of_modules_go_by_their_file(module: Any, tmp_path: Path):
    """A module-level function is named by its file; for uninformative file names the folder is added."""
    trace = record(tmp_path, lambda: module.helper(1), [entry("helper")])
    assert [span.lifeline for span in trace.named("helper")] == ["parts.py"]
    assert file_of("tracellm.engine.core.sched.utils") == "sched/utils.py"
    assert file_of("tracellm.engine.core.kv_cache.kv_cache_utils") == "kv_cache_utils.py"
    assert file_of("utils") == "utils.py"


def test_a_method_whose_object_is_given_by_name(module: Any, tmp_path: Path):
    """`Class.method(self=object)` is recorded like any other call."""
    trace = record(tmp_path, lambda: module.Other.overridden(self=module.Other()), [entry("Other.overridden")])
    [span] = [span for span in trace.spans if span.method == "overridden"]
    assert span.error is None


def test_what_is_missing_is_listed(module: Any, tmp_path: Path):
    """Missing targets, non-functions and methods of `object` alone are listed as missing."""
    targets = (
        "Thing.gone",
        "Gone.method",
        "gone",
        "Thing.value",
        "Thing.constant",
        "Other.__init__",
        "Thing.overridden",
    )
    with Recording(tmp_path / "run", catalog=[entry(name) for name in targets]) as recording:
        module.Thing().overridden()
    assert recording.stats["missing"] == [f"thing.parts:{name}" for name in targets[:-1]]
    assert recording.stats["installed"] == 1


def test_modules_are_wrapped_when_they_are_imported(module: Any, tmp_path: Path):
    """A module imported during the recording is wrapped at import, and not missing before."""
    for name in ("thing", "thing.parts"):
        del sys.modules[name]
    finders = list(sys.meta_path)

    def run() -> None:
        assert "thing.parts" not in sys.modules
        importlib.import_module("thing.parts").helper(1)

    assert outline(record(tmp_path / "run", run, [entry("helper")])) == "script.py\n  helper"
    assert sys.meta_path == finders
    assert not hasattr(sys.modules["thing.parts"].helper, "__wrapped__")


@pytest.mark.parametrize("thins", [True, False])
def test_what_a_user_has_patched_meanwhile_stays(module: Any, tmp_path: Path, thins: bool):
    """A user's replacement of a probe stays when probes are removed; other probes go."""
    original = module.Thing.overridden
    with Recording(
        tmp_path / "run", catalog=[entry("helper", "layer"), entry("Thing.overridden", "layer")]
    ) as recording:
        wrapped, module.helper = module.helper, lambda x: -wrapped(x)
        patched = module.helper
        if thins:
            recording._installation.limit_depth()
            assert (module.helper, module.Thing.overridden) == (patched, original)
        assert recording.stats["installed"] == 2
    assert (module.helper, module.Thing.overridden) == (patched, original)
    assert module.helper(3) == -3


def test_a_patch_that_is_undone_after_thinning(module: Any, tmp_path: Path):
    """If a user removes a patch after the depth was reduced, the end of the recording restores the original."""
    original = module.helper
    with Recording(tmp_path / "run", catalog=[entry("helper", "layer")]) as recording:
        wrapped, module.helper = module.helper, None
        recording._installation.limit_depth()
        module.helper = wrapped
    assert module.helper is original


def test_an_entry_that_cannot_be_installed(module: Any, tmp_path: Path):
    """An entry that fails to install is reported with its target and error; the import and other entries succeed."""
    for name in ("thing", "thing.parts"):
        del sys.modules[name]
    catalog = [entry("Thing.overridden", begins_trace=lambda args, kwargs: ""), entry("helper")]
    recording = Recording(tmp_path / "run", catalog=catalog)
    with recording:
        again = importlib.import_module("thing.parts")
        assert again.Thing().overridden() == "base"
        assert again.helper(1) == 1
    assert recording.stats["problems"] == [
        "thing.parts:Thing.overridden is not recorded: installing its probe raised TypeError: "
        "overridden cannot begin a trace: it is no coroutine"
    ]
    assert (recording.stats["missing"], recording.stats["installed"], recording.stats["calls"]) == ([], 1, 2)


def test_a_library_function_that_cannot_be_replaced(module: Any):
    """A failed patch of a library function is reported and skipped; the module's other patches succeed."""
    original = module.Other.overridden
    problems: list[Mistake] = []

    def fails(old: Any) -> Any:
        raise AttributeError("not in this version")

    patches = Patcher(
        {"thing.parts:Other.overridden": fails, "thing.parts:helper": lambda old: lambda x: -old(x)}, problems
    )
    patches.start()
    assert (module.helper(1), module.Other.overridden) == (-1, original)
    patches.stop()
    assert module.helper(1) == 1
    assert [one.describe(True) for one in problems] == [
        "thing.parts:Other.overridden is not followed: replacing it raised AttributeError: not in this version"
    ]


class OldFinder:
    """A finder in the style before Python 3.4, ignored by later versions."""


class FixedLoader:
    """A loader that allows no attributes."""

    __slots__ = ()

    def create_module(self, spec: Any) -> None: ...

    def exec_module(self, module: Any) -> None:
        module.loaded = True


class FixedFinder:
    """A finder of `fixed`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        loader: Any = FixedLoader()
        return ModuleSpec(name, loader) if name == "fixed" else None


def test_what_the_hook_cannot_do_breaks_no_import(monkeypatch: pytest.MonkeyPatch):
    """Finders without `find_spec` and read-only loaders are skipped, and imports succeed."""
    monkeypatch.setattr(sys, "meta_path", [OldFinder(), FixedFinder(), *sys.meta_path])
    hook = ImportHook({"fixed", "zipfile"}.__contains__, lambda module: None)
    hook.start()
    try:
        assert importlib.import_module("fixed").loaded
        monkeypatch.delitem(sys.modules, "zipfile")
        importlib.import_module("zipfile")
    finally:
        hook.stop()
        del sys.modules["fixed"]


@pytest.mark.parametrize("thins", [True, False])
def test_a_function_that_others_have_imported(module: Any, tmp_path: Path, thins: bool):
    """A function imported from a module where it is wrapped is restored when it is too deep, and at the end."""
    Path(module.__file__).with_name("importer.py").write_text("from thing.parts import helper\n")
    importlib.invalidate_caches()
    original = module.helper
    with Recording(tmp_path / "run", catalog=[Entry("thing.*:helper", "layer")]) as recording:
        importer = importlib.import_module("thing.importer")
        assert importer.helper is module.helper is not original
        if thins:
            recording._installation.limit_depth()
            assert importer.helper is module.helper is original
    assert importer.helper is module.helper is original


def test_a_module_whose_import_fails(module: Any, tmp_path: Path):
    """A failing import fails as without probes, and may succeed later."""
    source = Path(module.__file__)
    for name in ("thing", "thing.parts"):
        del sys.modules[name]
    source.write_text("raise ValueError('at import')")

    def run() -> None:
        with pytest.raises(ValueError, match="at import"):
            importlib.import_module("thing.parts")
        source.write_text(SOURCE + "# now longer\n")
        importlib.import_module("thing.parts").helper(1)

    assert outline(record(tmp_path / "run", run, [entry("helper")])) == "script.py\n  helper"


def test_functions_kept_from_a_recording(module: Any, tmp_path: Path):
    """A wrapped function kept after the recording only calls the original."""
    kept = []
    record(tmp_path / "run", lambda: kept.append(module.helper), [entry("helper")])
    assert kept[0](5) == 5


def test_a_capture_that_fails(module: Any, tmp_path: Path):
    """A failing capture is reported once and disabled; nothing else changes."""

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("oops")

    catalog = [
        entry("helper", capture=broken, attributes=dict),
        entry(
            "Thing.overridden",
            capture=lambda *args: 1,
            attributes=broken,
            gives=broken,
            gives_to="helper",
            observe=broken,
        ),
    ]
    recording = Recording(tmp_path / "run", catalog=catalog)
    with recording:
        for _ in range(2):
            assert module.helper(1) == 1
            assert module.Thing().overridden() == "base"
    assert recording.stats["problems"] == [
        "the probe of thing.parts.helper stopped: its capture raised ZeroDivisionError: oops",
        "the probe of thing.parts.Thing.overridden stopped: its gives raised ZeroDivisionError: oops",
        "the probe of thing.parts.Thing.overridden stopped: its attributes raised ZeroDivisionError: oops",
        "the probe of thing.parts.Thing.overridden stopped: its observe raised ZeroDivisionError: oops",
    ]
    assert recording.stats["calls"] == 5


def test_facts_reach_the_enclosing_call(module: Any, tmp_path: Path):
    """A fact reaches only the nearest enclosing call of the named function, through calls between."""
    seen: list[Any] = []
    catalog = [
        entry(
            "helper", capture=lambda args, kwargs, result: args[0], gives=lambda x: {"x": x}, gives_to="Base.inherited"
        ),
        entry("Base.inherited", observe=lambda tracker, span, facts, given: seen.append(given)),
        entry("Other.overridden"),
    ]

    def run() -> None:
        module.helper(7)  # no enclosing call to receive it
        module.Thing().inherited()
        module.Base().inherited()

    record(tmp_path / "run", run, catalog)
    assert seen == [{"x": 1}, {"x": 1}]


def test_several_hooks_may_wait_for_a_module(module: Any):
    """All hooks that wait for a module are called after its import, and its loader is restored."""
    heard: list[str] = []
    hooks = [ImportHook("thing.parts".__eq__, partial(_hear, heard, one)) for one in "ab"]
    del sys.modules["thing.parts"]
    for hook in hooks:
        hook.start()
    try:
        again = importlib.import_module("thing.parts")
    finally:
        for hook in hooks:
            hook.stop()
    assert sorted(heard) == ["a", "b"]
    assert again.helper(1) == 1
    assert again.__spec__ is not None
    assert "exec_module" not in vars(again.__spec__.loader)


def _hear(heard: list[str], one: str, module: Any) -> None:
    heard.append(one)


def test_a_function_may_have_another_name_in_another_version(module: Any, tmp_path: Path):
    """The first existing name of an entry is wrapped; the entry is missing only if no name exists."""
    entries = [
        entry("Thing.renamed", other_targets=("thing.parts:Other.overridden", "thing.parts:Base.overridden")),
        entry("gone", other_targets=("thing.nowhere:gone", "thing.parts:Gone.gone")),
        Entry("thing.nowhere:helper", "request", other_targets=("thing.parts:helper",)),
        Entry("thing.nowhere:Gone.gone", "request"),
        entry("gone_elsewhere", other_targets=("thing.later:gone",)),  # its module is not imported yet
        Entry("nothing.parts:helper", "request"),
    ]
    Path(module.__file__).with_name("later.py").touch()
    importlib.invalidate_caches()
    recording = Recording(tmp_path / "run", catalog=entries)
    with recording:
        module.Other().overridden()
        module.Base().overridden()
        module.helper(1)
    trace = RunFolder.open(tmp_path / "run").trace
    assert outline(trace) == "python\n  Other.overridden\n  helper"
    assert recording.stats["missing"] == ["thing.parts:gone", "thing.nowhere:Gone.gone"]

"""Tables of docs/vllm.md, from recordings: clients, paths, classes, and changes between two versions.

A call has the name of its span (`Scheduler.schedule`), a class that of the code that ran. A class with a counterpart in
tracellm's engine is a link to it: the class of the same name, or the one in `COUNTERPARTS`.
"""

import ast
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import TypeVar

from scripts.server_tables import table
from tracellm.report.facts.startup import client_choice
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

__all__ = ["Say", "changes_table", "classes_table", "clients_table", "home_of", "path_table", "way_table"]

ROOT = Path(__file__).parents[1]

Say = dict[str, str]
_One = TypeVar("_One")
_Key = TypeVar("_Key")

COUNTERPARTS = {
    "InputProcessor": "Processor",
    "BaseRenderer": "InputPreprocessor",
    "HfRenderer": "InputPreprocessor",
    "OnlineRenderer": "OpenAIServing",
    "OfflineInferenceMixin": "LLM",
    "CPUWorker": "Worker",
    "CPUModelRunner": "GPUModelRunner",
    "BaseModelLoader": "DefaultModelLoader",
    "CPUAttentionBackendImpl": "CPUAttentionBackendImpl",
    "_custom_ops.py": "TorchOps",
    "CustomOp": "RMSNorm",
    "engine/utils.py": "launch.py",
    "model_loader/utils.py": "DefaultModelLoader",
    "registry.py": "tokenizer.py",
    "LogitsProcessor": "ParallelLMHead",
    "BaseIncrementalDetokenizer": "IncrementalDetokenizer",
}
"""Counterparts with another name."""


# -- counterparts ------------------------------------------------------------------------------------------------------


@cache
def _classes() -> dict[str, Path]:
    """Return the file of every class of tracellm's engine; files nearer to the top first."""
    found: dict[str, Path] = {}
    for file in sorted((ROOT / "tracellm" / "engine").rglob("*.py"), key=lambda file: (len(file.parts), file)):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, file)
    return found


def home_of(name: str) -> Path | None:
    """Return the file with the counterpart of vLLM's class or file, or None."""
    known = COUNTERPARTS.get(name, name)
    if known.endswith(".py"):
        return next((ROOT / "tracellm" / "engine").rglob(known), None)
    return _classes().get(known)


def _linked(name: str, page: Path, *, shown: str = "") -> str:
    """Return a class's name as code, with a link to its counterpart if there is one; `shown` replaces the text."""
    home = home_of(name)
    said = f"`{shown or name}`"
    return said if home is None else f"[{said}]({os.path.relpath(home, page.parent)})"


# -- clients -----------------------------------------------------------------------------------------------------------


def clients_table(runs: Iterable[tuple[str, str, RunFolder]], say: Say, page: Path) -> str:
    """Return the table of clients: what each run started, and the client it got."""
    heads = [say[head] for head in ("engine", "started", "client", "rule", "core", "process")]
    rows = []
    for engine, started, run in runs:
        choice = client_choice(run.trace.spans)
        assert choice is not None, run.path
        rule = next(str(span.attributes[names.CLIENT_RULE]) for span in _with(run.trace, names.CLIENT_RULE))
        step = run.trace.named(STEP_SPAN)[0]
        core = _linked(step.lifeline, page)
        rows.append([engine, started, _linked(choice.choice, page), f"`{rule}`", core, _process(step)])
    return table(heads, rows)


def _with(trace: Trace, attribute: str) -> Iterator[Span]:
    return (span for span in trace.spans if attribute in span.attributes)


def _process(span: Span) -> str:
    return f"`{span.process.name if span.process else 'main'}`"


# -- paths -------------------------------------------------------------------------------------------------------------

_KERNELS = ("cpu_attention_with_kv_cache", "CPUAttentionBackendImpl.paged_attention")
_OUTERMOST = ("LLM.generate", "EngineCoreProc.run_busy_loop")


def path_table(runs: dict[str, Trace], say: Say, page: Path) -> str:
    """Return the table of calls from the outermost to the attention of the first step, a column for each engine.

    A cell has the file and line of vLLM's function, or for tracellm a mark, since its file is linked.
    """
    paths = {engine: _to_kernel(trace) for engine, trace in runs.items()}
    return _side_by_side(paths, say, page)


def way_table(runs: dict[str, Trace], found: Collection[str], say: Say, page: Path) -> str:
    """Return the table of calls that lead to the first of these, in its process, a column for each engine."""
    return _side_by_side({engine: _above(trace, trace.named(*found)[0]) for engine, trace in runs.items()}, say, page)


def _side_by_side(paths: dict[str, list[Span]], say: Say, page: Path) -> str:
    merged: list[str] = []
    for path in paths.values():
        merged = _merged(merged, [_key(span) for span in path])
    rows = []
    for key in merged:
        found = {engine: span for engine, path in paths.items() for span in path if _key(span) == key}
        first = next(iter(found.values()))
        cells = [_place(found[engine], say) if engine in found else "–" for engine in paths]
        rows.append([_linked(_owner(first), page, shown=say["kernel"] if key == "kernel" else key), *cells])
    return table([say["call"], *paths], rows)


def _to_kernel(trace: Trace) -> list[Span]:
    for span in trace.named(*_KERNELS):
        above = _above(trace, span)
        if any(one.name == STEP_SPAN for one in above):  # not a warm-up
            return above
    raise AssertionError("no attention in any step")


def _above(trace: Trace, span: Span) -> list[Span]:
    """Return the calls from the first relevant one to this one."""
    found = [span]
    while found[0].name not in _OUTERMOST and (above := trace.parent(found[0])) is not None:
        found.insert(0, above)
    return found


def _key(span: Span) -> str:
    """Return a call's name in a row; the kernels of all engines share a row."""
    return "kernel" if span.name in _KERNELS else span.name


def _place(span: Span, say: Say) -> str:
    if str(span.attributes[names.CODE_FUNCTION]).startswith("tracellm."):
        return f"`{span.method}`" if span.name in _KERNELS else say["here"]
    name = _function(span)
    other = f"`{name}`, " if name != span.method or span.name in _KERNELS else ""
    return f"{other}`{_file(span)}:{span.attributes[names.CODE_LINE]}`"


def _function(span: Span) -> str:
    """Return the function's own name, or the decorated name if a decorator replaced it."""
    path = str(span.attributes[names.CODE_FUNCTION])
    return span.method if "<locals>" in path else path.rpartition(".")[2]


def _file(span: Span) -> str:
    return str(span.attributes[names.CODE_FILE]).removeprefix("vllm/")


def _owner(span: Span) -> str:
    """Return the class whose code ran, or a function's file; of a class that a decorator changed, its own name."""
    owner = str(span.attributes[names.CODE_FUNCTION]).rpartition(".")[0].rpartition(".")[2]
    return owner if owner[:1].isupper() else span.lifeline


def _merged(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return all names of both, in their common order."""
    found: list[str] = []
    for _, start, end, start_other, end_other in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        found += [*one[start:end], *other[start_other:end_other]]
    return list(dict.fromkeys(found))


# -- classes -----------------------------------------------------------------------------------------------------------


def classes_table(versions: dict[str, list[Trace]], say: Say, page: Path) -> str:
    """Return the table of all classes and files with calls: their files in each version, and their counterparts."""
    files = {version: _homes(traces) for version, traces in versions.items()}
    rows = []
    for name in sorted({name for found in files.values() for name in found}, key=str.lower):
        home = home_of(name)
        here = say["none"]
        if home is not None:
            here = f"[`{COUNTERPARTS.get(name, name)}`]({os.path.relpath(home, page.parent)})"
        rows.append([f"`{name}`", *(_shown(found.get(name)) for found in files.values()), here])
    return table([say["class"], *versions, say["counterpart"]], rows)


def _shown(file: str | None) -> str:
    return f"`{file}`" if file else "–"


def _homes(traces: Iterable[Trace]) -> dict[str, str]:
    """Return the file of each class with calls; for functions the file alone."""
    found: dict[str, str] = {}
    for span in _calls(traces):
        found.setdefault(_owner(span), _file(span))
    return found


def _calls(traces: Iterable[Trace]) -> Iterator[Span]:
    for trace in traces:
        for span in trace.spans:
            if str(span.attributes.get(names.CODE_FUNCTION, "")).startswith("vllm."):
                yield span


# -- changes -----------------------------------------------------------------------------------------------------------


def changes_table(versions: dict[str, list[Trace]], say: Say, page: Path) -> str:
    """Return the table of what only one version calls, or has elsewhere: other classes, other files, gone, new.

    Two methods of the same name in classes with the same counterpart count as one method that has moved.
    """
    (old, new) = (_methods(traces) for traces in versions.values())
    gone, came = _without(old, new), _without(new, old)
    rows = []
    pairs = dict(_same_method(gone, came))
    for (was, now), others in _grouped(pairs.items(), lambda pair: (_class(pair[0]), _class(pair[1]))).items():
        listed = _listed(_method(one) for one, _ in others)
        rows.append([say["renamed"], f"`{was}`", _linked(now, page), listed])
    moved = [(name, old[name], new[name]) for name in old if name in new and old[name] != new[name]]
    for (was, now), those in _grouped(moved, lambda one: one[1:]).items():
        rows.append([say["moved"], f"`{was}`", f"`{now}`", _listed(_qualified(name) for name, *_ in those)])
    left = [name for name in gone if name not in pairs]
    came_alone = [name for name in came if name not in pairs.values()]
    before, after = (say["only"].format(version=version) for version in versions)
    for owner, of_class in _grouped(left, _class).items():
        rows.append([before, _linked(owner, page), "–", _listed(map(_method, of_class))])
    for owner, of_class in _grouped(came_alone, _class).items():
        rows.append([after, "–", _linked(owner, page), _listed(map(_method, of_class))])
    return table([say["what"], *versions, say["calls"]], rows)


def _listed(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in found)


def _methods(traces: Iterable[Trace]) -> dict[str, str]:
    """Return the file of each method with calls, by class and name, in the order of the first calls."""
    found: dict[str, str] = {}
    for span in _calls(traces):
        found.setdefault(f"{_owner(span)}:{_function(span)}", _file(span))
    return found


def _without(these: Iterable[str], those: dict[str, str]) -> list[str]:
    return [name for name in these if name not in those]


def _class(name: str) -> str:
    return name.partition(":")[0]


def _method(name: str) -> str:
    return name.partition(":")[2]


def _qualified(name: str) -> str:
    """Return `Class.method`, or a function's file and name."""
    return _method(name) if _class(name).endswith(".py") else name.replace(":", ".")


def _same_method(gone: Iterable[str], came: Iterable[str]) -> Iterator[tuple[str, str]]:
    left = list(came)
    for name in gone:
        home = home_of(_class(name))
        alike = [other for other in left if _method(other) == _method(name) and home_of(_class(other)) == home]
        if alike and home is not None:
            left.remove(alike[0])
            yield name, alike[0]


def _grouped(found: Iterable[_One], key: Callable[[_One], _Key]) -> dict[_Key, list[_One]]:
    groups: dict[_Key, list[_One]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return groups

"""Facts of two runs: the rows in which they differ, and the names of those that are the same."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tracellm.report.facts.http_requests import HttpRequest, refused
from tracellm.report.facts.startup import client_choice, engine_config, model_load
from tracellm.report.texts import text, texts
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

__all__ = ["process_names", "refusals", "runs_alike", "runs_part"]

_LONGEST = 300
_MOST_THREADS = 12
_MOST_REFUSALS = 12

_Cell = list[str]


def runs_part(a: RunFolder, b: RunFolder, lang: str) -> list[Block]:
    """Return the part about facts of the two runs, with its heading."""
    none = [text(lang, "diff.runs.none")]
    always = {"run", "client", "rule", "processes", "threads"}
    rows: list[tuple[Sequence[str], ...]] = []
    same: list[str] = []
    for name, cell_of in _ROWS.items():
        ours, theirs = cell_of(a, lang), cell_of(b, lang)
        label = text(lang, f"diff.runs.{name}")
        if (name in always and (ours or theirs)) or ours != theirs:
            rows.append(([label], ours or none, theirs or none))
        elif ours and name not in ("run", "status", "text"):
            same.append(label)
    for name, values_of in _MAPS.items():
        all_ours, all_theirs = values_of(a), values_of(b)
        differing = [key for key in {**all_ours, **all_theirs} if all_ours.get(key) != all_theirs.get(key)]
        for key in differing:
            label = visible(key) if name == "config" else text(lang, "diff.runs.version", name=visible(key))
            rows.append(
                ([label], *([_shown(found[key])] if key in found else none for found in (all_ours, all_theirs)))
            )
        if all_ours and not differing:
            same.append(text(lang, f"diff.runs.{name}", n=len(all_ours)))
    blocks: list[Block] = [Heading(text(lang, "diff.runs")), Table((Column(""), Column("A"), Column("B")), tuple(rows))]
    if same:
        blocks.append(Paragraph(text(lang, "diff.runs.same", names=text(lang, "step.comma").join(same))))
    return blocks


def runs_alike(a: RunFolder, b: RunFolder) -> bool:
    """Return whether all facts of both runs are the same, except their folders."""
    return all(cell_of(a, "en") == cell_of(b, "en") for name, cell_of in _ROWS.items() if name != "run") and all(
        values_of(a) == values_of(b) for values_of in _MAPS.values()
    )


def process_names(run: RunFolder) -> list[str]:
    """Return the names of its processes, the script's first."""
    found = dict.fromkeys(process.name for process in run.trace.processes)
    return sorted(found, key=lambda name: name != "main")


def refusals(run: RunFolder) -> list[HttpRequest]:
    """Return the HTTP requests that the server refused, without those whose client left."""
    return [http for http in refused(run.trace) if not http.client_left]


def _shown(value: Any) -> str:
    return shorten(visible(str(value)), _LONGEST)


def _manifest(name: str) -> Callable[[RunFolder, str], _Cell]:
    def cell_of(run: RunFolder, lang: str) -> _Cell:
        value = run.manifest.get(name)
        return [_shown(value)] if value else []

    return cell_of


def _arguments(run: RunFolder, lang: str) -> _Cell:
    argv = run.manifest.get("argv")
    return [_shown(" ".join(map(str, argv[1:])))] if isinstance(argv, list) and len(argv) > 1 else []


def _status(run: RunFolder, lang: str) -> _Cell:
    status = run.manifest.get("status") or "unknown"
    key = f"common.status.{status}"
    lines = [text(lang, key) if key in texts(lang) else _shown(status)]
    error = run.manifest.get("error")
    if isinstance(error, dict):
        lines.append(_shown(f"{error.get('type', '')}: {error.get('message', '')}".strip(": ")))
    return lines


def _client(run: RunFolder, lang: str) -> _Cell:
    choice = client_choice(run.trace.spans)
    return [_shown(choice.choice)] if choice else []


def _rule(run: RunFolder, lang: str) -> _Cell:
    choice = client_choice(run.trace.spans)
    if choice is None:
        return []
    key = f"client.rule.{choice.choice}"
    return [text(lang, key)] if key in texts(lang) else []


def _processes(run: RunFolder, lang: str) -> _Cell:
    return [_shown(text(lang, "step.comma").join(process_names(run)))] if run.trace.processes else []


def _threads(run: RunFolder, lang: str) -> _Cell:
    """Return the threads besides each process's main one."""
    found: dict[str, dict[str, None]] = {}
    for span in run.trace.spans:
        if thread := span.attributes.get(names.THREAD_NAME):
            found.setdefault(span.process.name if span.process else "main", {}).setdefault(str(thread))
    return [
        _shown(f"{name}: {text(lang, 'step.comma').join(list(threads)[:_MOST_THREADS])}")
        for name, threads in sorted(found.items())
    ]


def _model(run: RunFolder, lang: str) -> _Cell:
    load = model_load(run.trace.spans)
    return [_shown(f"{load.architecture or '?'}, {load.dtype or '?'}, {load.device or '?'}")] if load else []


def _host(run: RunFolder, lang: str) -> _Cell:
    host = run.manifest.get("host")
    if not isinstance(host, dict):
        return []
    parts = [host.get("name"), host.get("machine"), *(host.get("gpus") or ())]
    return [_shown(text(lang, "step.comma").join(str(part) for part in parts if part))]


def _text(run: RunFolder, lang: str) -> _Cell:
    options = run.manifest.get("options")
    recorded = not isinstance(options, dict) or options.get("text") is not False
    return [text(lang, "diff.runs.text_yes" if recorded else "diff.runs.text_no")]


def _refused(run: RunFolder, lang: str) -> _Cell:
    """Return the number of refused HTTP requests by path and answer, the most frequent first."""
    counts = Counter((http.title, http.answer) for http in refusals(run))
    ordered = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
    shown, more = clip(ordered, _MOST_REFUSALS)
    lines = [
        _shown(text(lang, "diff.runs.refusals", n=count, request=title, answer=answer))
        for (title, answer), count in shown
    ]
    return [*lines, "…"] if more else lines


def _config(run: RunFolder) -> dict[str, str]:
    return {setting.name: setting.value for setting in engine_config(run.trace.spans)}


def _versions(run: RunFolder) -> dict[str, Any]:
    versions = run.manifest.get("versions")
    found = {str(name): value for name, value in versions.items()} if isinstance(versions, dict) else {}
    return {"tracellm": run.manifest.get("tracellm"), **found}


_ROWS: dict[str, Callable[[RunFolder, str], _Cell]] = {
    "run": lambda run, lang: [visible(str(run.path))],
    "status": _status,
    "script": _manifest("script"),
    "argv": _arguments,
    "client": _client,
    "rule": _rule,
    "processes": _processes,
    "threads": _threads,
    "model": _model,
    "host": _host,
    "text": _text,
    "refused": _refused,
}
"""Facts of a run, by their names in the texts; empty if not recorded."""

_MAPS: dict[str, Callable[[RunFolder], dict[str, Any]]] = {"config": _config, "versions": _versions}
"""Facts with many named values, of which only those that differ are shown."""

"""The page's part about the run as a whole: outcome, client, model, settings, and the recording itself."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tracellm.report.console.boxes import client_inputs, clients, kv_rows, load_rows, real_vllm, ways_to_clients
from tracellm.report.facts.counterparts import VLLM_VERSIONS, files_of
from tracellm.report.facts.coverage import cost, dropped_calls, is_recorded, numbers_in
from tracellm.report.facts.http_requests import refused
from tracellm.report.facts.recording_time import recording_by_step, share_of_generation
from tracellm.report.facts.requests import requests
from tracellm.report.facts.startup import ClientChoice, KVCache, ModelLoad, Setting, model_load, startup_spans
from tracellm.report.texts import text, texts
from tracellm.report.texts.client import VLLM_CLASSES
from tracellm.report.wording.problems import problem_text, recording_problems
from tracellm.report.wording.quantities import byte_size, duration
from tracellm.report.wording.safe_text import visible
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

__all__ = [
    "about_view",
    "cache_view",
    "client_view",
    "config_view",
    "load_view",
    "probes_sentence",
    "problems_view",
    "run_view",
]


_LIBRARY = re.compile(r".*[/\\](?:(?:site|dist)-packages|lib[/\\]python[\d.]+)[/\\]")
_IN_TRACEBACK = re.compile(r'(?<=File ")[^"\n]+(?=")')


def short_path(path: str, cwd: str) -> str:
    """Return a path without the part specific to the machine; `cwd` is the folder in which the run was started."""
    if found := _LIBRARY.match(path):
        return "…/" + path[found.end() :]
    for separator in "/\\":
        if cwd and path.startswith(cwd.rstrip(separator) + separator):
            return path[len(cwd.rstrip(separator)) + 1 :]
    if not re.match(r"[/\\~]|[A-Za-z]:", path):
        return path
    return "/".join(["…", *re.split(r"[/\\]", path.rstrip("/\\"))[1:][-2:]])


def short_paths(traceback: str, cwd: str) -> str:
    """Return a traceback with short paths."""
    return _IN_TRACEBACK.sub(lambda found: short_path(found[0], cwd), traceback)


_View = dict[str, Any]


def run_view(run_folder: RunFolder, lang: str) -> _View:
    """Return the headline: script, status, error if any, and the figures that sum up the run."""
    manifest, trace = run_folder.manifest, run_folder.trace
    status = str(manifest.get("status"))
    argv = manifest.get("argv")
    script = str(manifest.get("script") or run_folder.path.name)
    command = shlex.join(map(str, argv)) if isinstance(argv, list) and argv else ""
    return {
        "title": visible(script.rpartition("/")[2] or script),
        "command": visible(command) if command != script else "",
        "started": _started(manifest.get("started_at")),
        "folder": visible(run_folder.path.name),
        "status": status if f"html.status.{status}" in texts("en") else "unknown",
        "error": _error(manifest.get("error"), str(manifest.get("cwd") or "")),
        "figures": _figures(manifest, trace, lang),
    }


def _started(value: Any) -> str:
    try:
        return datetime.fromisoformat(str(value)).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""


def _error(error: Any, cwd: str) -> _View | None:
    if not isinstance(error, Mapping):
        return None
    file = error.get("file")
    path = [] if file is None else [short_path(str(file), cwd)]
    where = ":".join([*path, *([str(error["line"])] if error.get("line") is not None else [])])
    function = error.get("function")
    return {
        "what": visible(f"{str(error.get('type')).rpartition('.')[2]}: {error.get('message')}", keep="\n"),
        "where": visible(f"{where}, {function}" if where and function else where),
        "source": visible(str(error.get("source") or ""), keep="\n"),
        "traceback": visible(short_paths(str(error.get("traceback") or ""), cwd), keep="\n\t"),
    }


def _figures(manifest: Mapping[str, Any], trace: Trace, lang: str) -> list[_View]:
    recorded_requests = requests(trace.spans)
    load = model_load(startup_spans(trace))
    served_name = next(
        (s.attributes[names.GEN_AI_MODEL] for s in trace.spans if names.GEN_AI_MODEL in s.attributes), None
    )
    model = served_name or (load and load.source and load.source.rstrip("/").rpartition("/")[2])
    steps = trace.named(STEP_SPAN)
    seconds = manifest.get("duration_s")
    prompt = sum(request.input_tokens or 0 for request in recorded_requests)
    output = sum(request.output_tokens or 0 for request in recorded_requests)
    spent = sum(step.duration_ns for step in steps) / 1e9
    not_recorded = text(lang, "recorded.not")
    kept = text(lang, "recorded.kept") if dropped_calls(manifest) else ""
    num_refused = len(refused(trace))
    also = text(lang, "html.figure.requests.refused", n=num_refused) if num_refused else ""
    architecture = visible(load.architecture or "") if load else "" if is_recorded(manifest, "load") else not_recorded
    figures = [
        ("model", visible(str(model)) if model else "?", architecture),
        *(
            (
                ("requests", f"{len(recorded_requests):,}", kept or also),
                ("tokens", f"{output:,}", text(lang, "html.figure.tokens.more", prompt=prompt)),
            )
            if is_recorded(manifest, "requests")
            else (("requests", "?", not_recorded), ("tokens", "?", not_recorded))
        ),
        (
            "steps",
            f"{len(steps):,}",
            kept or (_spent(spent, sum(recording_by_step(trace).values()) / 1e9, lang) if steps else ""),
        )
        if is_recorded(manifest, "steps")
        else ("steps", "?", not_recorded),
        ("time", duration(float(seconds)) if isinstance(seconds, int | float) else "?", ""),
    ]
    return [{"name": text(lang, f"html.figure.{key}"), "value": value, "more": more} for key, value, more in figures]


def _spent(seconds: float, recording: float, lang: str) -> str:
    """Return the time of all steps, and the recording's part of it."""
    key = "html.figure.steps.recording" if recording else "html.figure.steps.more"
    return text(lang, key, time=duration(seconds), recording=duration(recording))


def client_view(choice: ClientChoice | None, lang: str) -> _View | None:
    """Return why this client was chosen."""
    if choice is None:
        return None
    means = f"client.means.{choice.choice}"
    code, command = ways_to_clients(choice)
    return {
        "choice": visible(choice.choice),
        "means": text(lang, means) if means in texts(lang) else "",
        "inputs": [
            {"name": name, "value": value, "origin": origin} for name, value, origin in client_inputs(choice, lang)
        ],
        "clients": [
            {
                "name": client,
                "chosen": client == choice.choice,
                "rule": text(lang, f"client.rule.{client}"),
                "purpose": text(lang, f"client.for.{client}"),
                "code": "\n".join(code[client]),
                "command": command[client],
            }
            for client in reversed(clients(choice))
        ],
        "real": real_vllm(choice, lang),
        "files": [
            (file, ", ".join(classes))
            for file, classes in files_of(VLLM_CLASSES.get(choice.choice, ()), VLLM_VERSIONS[0]).items()
        ],
    }


def load_view(load: ModelLoad | None, manifest: Mapping[str, Any], lang: str) -> _View | None:
    """Return the stages of loading the model."""
    if load is None:
        return None
    if load.source is not None:
        load = replace(load, source=short_path(load.source, str(manifest.get("cwd") or "")))
    name = visible(load.architecture or load.source or "?")
    return {"title": text(lang, "console.load", name=name), "rows": load_rows(load, lang)}


def cache_view(cache: KVCache | None, lang: str) -> _View | None:
    """Return the KV cache that was set up."""
    return {"title": text(lang, "console.kv"), "rows": kv_rows(cache, lang)} if cache else None


def config_view(settings: Iterable[Setting], lang: str) -> list[tuple[str, str, str]]:
    """Return name, value and origin of each setting; the origin is empty if not recorded."""
    return [
        (
            visible(setting.name),
            visible(setting.value),
            text(lang, f"html.config.{setting.origin}") if setting.origin else "",
        )
        for setting in settings
    ]


def probes_sentence(manifest: Mapping[str, Any], trace: Trace, lang: str) -> str:
    """Return sentences about the cost of the recording itself."""
    probes = manifest.get("probes")
    if not isinstance(probes, Mapping):
        return ""
    installed = [text(lang, "html.probes.installed", n=n) for n in numbers_in(probes, "installed").values()]
    costs = cost(manifest, lang, share_of_generation(trace, manifest))
    return ("" if lang == "zh" else " ").join([*installed, *costs]) if costs else ""


def problems_view(run_folder: RunFolder, lang: str) -> list[str]:
    """Return problems in reading the folder, and those of the probes."""
    found = [visible(problem_text(problem, lang)) for problem in run_folder.problems]
    return [*found, *recording_problems(run_folder.manifest, lang)]


def about_view(manifest: Mapping[str, Any], lang: str) -> _View:
    """Return versions, host and options, as recorded."""
    tables = []
    for key in ("versions", "host", "options"):
        found = manifest.get(key)
        if isinstance(found, Mapping) and found:
            items = [item for item in found.items() if (key, item[0]) != ("host", "name")]  # it may identify its owner
            rows = [(str(name).removesuffix("_bytes"), _plain(name, value)) for name, value in items]
            shown = [(visible(name), visible(value)) for name, value in rows]
            tables.append({"title": text(lang, f"html.about.{key}"), "rows": shown})
    probes = manifest.get("probes")
    missing = probes.get("missing") if isinstance(probes, Mapping) else None
    return {"about": tables, "missing": [visible(str(name)) for name in missing] if isinstance(missing, list) else []}


def _plain(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_plain(name, item) for item in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(key, inner)}" for key, inner in value.items()) or "-"
    if name.endswith("_bytes") and isinstance(value, int):
        return byte_size(value)
    return "-" if value is None or value == "" else str(value)

"""A recorded run in the formats of other tools: `tracellm export RUN --to FORMAT`.

Each format is a module here. It writes its file piece by piece from the chosen spans (`chosen.py`), in linear time and
memory. `timeline.py` lays out tracks, arrows and requests for chrome, perfetto and speedscope.

vLLM has no counterpart: it sends OTLP to a collector, and torch.profiler writes Chrome traces of its own.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from tracellm.report.export.chosen import Chosen
from tracellm.trace.names import Level
from tracellm.trace.run_folder import RunFolder

__all__ = ["FORMATS", "NEEDED", "export", "file_name"]

FORMATS = {
    "chrome": ".chrome.json",
    "perfetto": ".perfetto-trace",
    "otlp": ".otlp.json",
    "speedscope": ".speedscope.json",
    "csv": ".csv",
    "mermaid": ".mmd",
    "dot": ".dot",
}
"""Every format, with the default suffix of its file."""

NEEDED = {"perfetto": "tracellm[perfetto]", "opentelemetry": "tracellm[otel]"}
"""Packages that a format needs beyond tracellm's own, with what to install."""


def file_name(format: str) -> str:
    """Return the name of an export in a run folder."""
    return f"export{FORMATS[format]}"


def export(
    run: RunFolder,
    format: str,
    *,
    name: str = "",
    detail: Level | None = None,
    focus: Collection[str] = (),
    lang: str = "en",
) -> Iterator[bytes]:
    """Yield a run in another format, piece by piece.

    Args:
        run: the recorded run.
        format: one of FORMATS.
        name: the file's name; for otlp, `.jsonl` and `.pb` select those forms.
        detail: only calls down to this level.
        focus: only calls into or out of these classes, and those that lead there.
        lang: language of the texts in mermaid and dot.

    Raises:
        ModuleNotFoundError: a package of NEEDED is not installed.
        ValueError: `detail` is no level, or `focus` names a class that is not in the run (mermaid only).
    """
    if format == "mermaid":
        from tracellm.report.diagram.sequence import sequence_diagram

        return iter([sequence_diagram(run.trace, detail=detail, focus=focus, lang=lang).encode("utf-8", "replace")])
    return _of_spans(Chosen(run.trace, detail=detail, focus=focus), run, format, name, lang)


def _of_spans(chosen: Chosen, run: RunFolder, format: str, name: str, lang: str) -> Iterator[bytes]:
    match format, Path(name).suffix:
        case "chrome", _:
            from tracellm.report.export.chrome import chrome

            return chrome(chosen)
        case "perfetto", _:
            from tracellm.report.export.perfetto import perfetto

            return perfetto(chosen)
        case "otlp", suffix:
            from tracellm.report.export.otlp import as_document, as_lines, as_protobuf

            return {".jsonl": as_lines, ".pb": as_protobuf}.get(suffix, as_document)(chosen)
        case "speedscope", _:
            from tracellm.report.export.speedscope import speedscope

            return speedscope(chosen, str(run.manifest.get("script", run.path.name)))
        case "csv", _:
            from tracellm.report.export.table import table

            return table(chosen)
        case "dot", _:
            from tracellm.report.export.dot import dot

            return dot(chosen, lang)
        case _:
            raise ValueError(f"no format {format!r}: choose one of {', '.join(FORMATS)}")

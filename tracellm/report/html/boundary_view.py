"""The page's part about several processes, and the messages between them."""

from typing import Any

from tracellm.report.facts.process_messages import Crossing, ProcessFacts, crossings, processes
from tracellm.report.texts import text, texts
from tracellm.report.wording.quantities import byte_size, clip
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import time
from tracellm.trace.model import Trace

__all__ = ["boundary_view"]

_MOST_THREADS = 20


def boundary_view(trace: Trace, lang: str) -> dict[str, Any] | None:
    """Return the processes and the messages between them; None for a run of one process without messages."""
    found, crossed = processes(trace), crossings(trace)
    if len(found) < 2 and not crossed:
        return None
    return {
        "processes": [_process(one, lang) for one in found],
        "messages": [_crossing(one, lang) for one in crossed],
        "total": text(
            lang,
            "html.boundary.total",
            n=sum(one.count for one in crossed),
            bytes=byte_size(sum(one.bytes for one in crossed)),
        ),
    }


def _process(one: ProcessFacts, lang: str) -> dict[str, str]:
    shown, more = clip(one.threads, _MOST_THREADS)
    threads = [text(lang, "html.boundary.main_thread"), *map(visible, shown)]
    if more:
        threads.append(text(lang, "html.more", n=more))
    return {
        "name": visible(one.name),
        "pid": str(one.pid),
        "role": text(lang, f"html.boundary.role.{_role(one)}"),
        "threads": text(lang, "step.comma").join(threads),
        "calls": f"{one.calls:,}",
    }


def _role(one: ProcessFacts) -> str:
    """Return the process's role in the engine, found by its steps, or by its name if it has none."""
    if one.steps or one.name.startswith("EngineCore"):
        return "engine"
    return "worker" if one.name.startswith(("VllmWorker", "Worker")) else "client"


def _crossing(one: Crossing, lang: str) -> dict[str, str]:
    key = f"html.boundary.what.{one.type}"
    target = text(lang, "diagram.not_recorded") if one.target is None else visible(one.target)
    return {
        "type": visible(one.type),
        "what": text(lang, key) if key in texts(lang) else "",
        "way": f"{visible(one.source)} → {target}",
        "count": f"{one.count:,}",
        "lost": text(lang, "html.boundary.lost", n=one.lost) if one.lost and one.target else "",
        "bytes": byte_size(one.bytes),
        "each": text(lang, "html.boundary.each", bytes=byte_size(one.bytes // one.count)) if one.count > 1 else "",
        "time": "" if one.seconds is None else time(round(one.seconds * 1e9)),
    }

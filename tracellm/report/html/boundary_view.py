"""The page's part about several processes, and the messages between them."""

from typing import Any

from tracellm.report.facts.process_messages import Crossing, ProcessFacts, crossings, processes
from tracellm.report.texts import text, texts
from tracellm.report.wording.quantities import byte_size, clip
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import time
from tracellm.trace.model import Trace

__all__ = ["boundary_view", "process_view"]

_MOST_THREADS = 20


def boundary_view(trace: Trace, lang: str) -> dict[str, Any] | None:
    """Return the processes and the messages between them; None for a run of one process without messages."""
    found, crossed = processes(trace), crossings(trace)
    if len(found) < 2 and not crossed:
        return None
    return {
        "processes": [process_view(process, lang) for process in found],
        "messages": [_crossing(crossing, lang) for crossing in crossed],
        "total": text(
            lang,
            "html.boundary.total",
            n=sum(crossing.count for crossing in crossed),
            bytes=byte_size(sum(crossing.bytes for crossing in crossed)),
        ),
        "sockets": any(crossing.type == "ADD" for crossing in crossed),
    }


def process_view(process: ProcessFacts, lang: str) -> dict[str, str]:
    """Return one process: name, id, role, threads, and number of calls."""
    shown, more = clip(process.threads, _MOST_THREADS)
    threads = [text(lang, "html.boundary.main_thread"), *map(visible, shown)]
    if more:
        threads.append(text(lang, "html.more", n=more))
    return {
        "name": visible(process.name),
        "pid": str(process.pid),
        "role": text(lang, f"html.boundary.role.{_role(process)}"),
        "threads": text(lang, "step.comma").join(threads),
        "calls": f"{process.calls:,}",
    }


def _role(process: ProcessFacts) -> str:
    """Return the process's role in the engine, found by its steps, or by its name if it has none."""
    if process.steps or process.name.startswith("EngineCore"):
        return "engine"
    if process.name == "DP_Coordinator":
        return "coordinator"
    return "worker" if process.name.startswith(("VllmWorker", "Worker")) else "client"


def _crossing(crossing: Crossing, lang: str) -> dict[str, str]:
    key = f"html.boundary.what.{crossing.type}"
    target = text(lang, "diagram.not_recorded") if crossing.target is None else visible(crossing.target)
    return {
        "type": visible(crossing.type),
        "what": text(lang, key) if key in texts(lang) else "",
        "way": f"{visible(crossing.source)} → {target}",
        "count": f"{crossing.count:,}",
        "lost": text(lang, "html.boundary.lost", n=crossing.lost) if crossing.lost and crossing.target else "",
        "bytes": byte_size(crossing.bytes),
        "each": text(lang, "html.boundary.each", bytes=byte_size(crossing.bytes // crossing.count))
        if crossing.count > 1
        else "",
        "time": "" if crossing.seconds is None else time(round(crossing.seconds * 1e9)),
    }

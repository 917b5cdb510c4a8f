"""Recordings to send, made of a few spans, and the sending of one that has ended."""

import os
from pathlib import Path
from typing import Any

from tracellm.probes.otel.follow import Files

from tracellm.probes.otel.sender import Sender
from tracellm.probes.otel.settings import settings
from tracellm.trace import otlp
from tracellm.trace.model import Process, Span

__all__ = ["TRACE", "send", "spans", "write"]

TRACE = "0123456789abcdef" * 2


def spans(count: int, **options: Any) -> list[Span]:
    """Spans named by their numbers."""
    return [Span(str(n), TRACE, f"{n + 1:016x}", None, n, n + 1, **options) for n in range(count)]


def write(folder: Path, *lines: list[Span], process: Process | None = None) -> Files:
    """A recording with these lines."""
    with (folder / "main-1.jsonl").open("ab") as file:
        for line in lines:
            file.write(otlp.encode(process or Process(1, "main"), line))
    return Files(folder)


def send(files: Files) -> tuple[int, int, list[str]]:
    """Send a recording that has ended, with what the environment says; its account."""
    wanted = settings(os.environ)
    assert wanted is not None
    one = Sender(files, wanted)
    one.wait_from_now()
    one.run()
    return one.account()

"""Handmade recordings of several processes on several machines, with their clock readings."""

from collections.abc import Sequence
from typing import Any

from tracellm.trace import names
from tracellm.trace.model import Process, Span

__all__ = ["Recorder", "process"]

SECOND = 10**9
START = 1_700_000_000 * SECOND


class Recorder:
    """One process, which turns true nanoseconds into spans by its own clocks.

    `skew` is the error of its machine's wall clock when it read the pair, `boot` the time of the machine's start.
    """

    def __init__(
        self,
        pid: int,
        name: str | None = None,
        host: str = "here",
        *,
        skew: int = 0,
        boot: int = 1000 * SECOND,
        read_at: int = 0,
        parent: int | None = None,
    ) -> None:
        name = name or ("main" if pid == 1 else f"EngineCore_{pid - 2}")
        self.boot = boot
        self.wall, self.monotonic = START + read_at + skew, boot + read_at
        actual: dict[str, Any] = {
            names.PROCESS_PID: pid,
            names.PROCESS_NAME: name,
            names.HOST_NAME: host,
            names.CLOCK_WALL: self.wall,
            names.CLOCK_MONOTONIC: self.monotonic,
        }
        if parent is not None:
            actual[names.PROCESS_PARENT_PID] = parent
        self.process = Process(pid, name, actual)
        self.spans: list[Span] = []

    def at(self, true: int) -> int:
        """Return the time that this process records for an event at `true`."""
        return self.wall + self.boot + true - self.monotonic

    def call(
        self, name: str, start: int, end: int, parent: Span | None = None, thread: str = "", **attributes: Any
    ) -> Span:
        """Record a call from one true time to another."""
        actual = {names.LIFELINE: name.rpartition(".")[0], **attributes}
        if thread:
            actual[names.THREAD_NAME] = thread
        span = Span(
            name,
            "1" * 32,
            f"{self.process.pid:08x}{len(self.spans) + 1:08x}",
            parent.span_id if parent else None,
            self.at(start),
            self.at(end),
            actual,
            process=self.process,
        )
        self.spans.append(span)
        return span

    def send(self, message: str, start: int, end: int, parent: Span | None = None, thread: str = "") -> Span:
        """Encode a message."""
        return self.call("MsgpackEncoder.encode", start, end, parent, thread, **_message(message, "send"))

    def receive(self, message: str, start: int, end: int, parent: Span | None = None, thread: str = "") -> Span:
        """Decode a message."""
        return self.call("MsgpackDecoder.decode", start, end, parent, thread, **_message(message, "receive"))


def _message(message: str, operation: str) -> dict[str, Any]:
    return {
        names.MESSAGE_OPERATION: operation,
        names.MESSAGE_ID: message,
        names.MESSAGE_TYPE: message.partition(" ")[0],
        names.MESSAGE_BYTES: 100,
    }


def process(recorders: Sequence[Recorder]) -> tuple[list[Process], list[Span]]:
    """Return the processes and spans of a run folder with these recorders."""
    return [one.process for one in recorders], [span for one in recorders for span in one.spans]

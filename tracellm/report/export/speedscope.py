"""speedscope's own format: a flame graph for each thread, at https://www.speedscope.app or with `npx speedscope FILE`.

Each track (`timeline.py`) is an evented profile: a call opens a frame and closes it again. Times are whole nanoseconds
from the start of the run. A frame has the file and line of the function, so that calls of one function are summed. The
format: https://www.speedscope.app/file-format-schema.json.
"""

from collections.abc import Iterator
from typing import Any

from tracellm import __version__
from tracellm.report.export.chosen import Chosen
from tracellm.report.export.timeline import ProcessTracks, Track, tracks
from tracellm.report.export.values import as_json
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["speedscope"]

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(chosen: Chosen, name: str = "") -> Iterator[bytes]:
    """Yield the file, piece by piece; `name` is its title in the viewer."""
    frames = _Frames()
    header = {"$schema": _SCHEMA, "exporter": f"tracellm@{__version__}", "name": name}
    yield f'{as_json(header)[:-1]},"profiles":['.encode()
    separator = ""
    for process in tracks(chosen):
        for track in process.tracks:
            yield separator.encode()
            yield from _profile(process, track, chosen.begin_ns, frames)
            separator = ",\n"
    yield f'],"shared":{{"frames":{as_json(frames.known)}}}}}\n'.encode()


def _profile(process: ProcessTracks, track: Track, begin: int, frames: "_Frames") -> Iterator[bytes]:
    first = track.calls[0][1].start_ns - begin
    last = max(span.end_ns for _, span in track.calls) - begin
    name = as_json(f"{process.name} · {track.name}")
    yield f'{{"type":"evented","name":{name},"unit":"nanoseconds","startValue":{first},"endValue":{last},'.encode()
    separator = '"events":['
    for kind, span in track.events():
        letter, time = ("O", span.start_ns) if kind == "begin" else ("C", span.end_ns)
        yield f'{separator}{{"type":"{letter}","frame":{frames.number(span)},"at":{time - begin}}}'.encode()
        separator = ","
    yield b"]}"


class _Frames:
    """Every called function, once."""

    def __init__(self) -> None:
        self.known: list[dict[str, Any]] = []
        self._numbers: dict[tuple[Any, ...], int] = {}

    def number(self, span: Span) -> int:
        file, line = span.attributes.get(names.CODE_FILE), span.attributes.get(names.CODE_LINE)
        frame: dict[str, Any] = {"name": span.name}
        if isinstance(file, str):
            frame["file"] = file
        if isinstance(line, int) and not isinstance(line, bool):
            frame["line"] = line
        number = self._numbers.setdefault(tuple(frame.values()), len(self.known))
        if number == len(self.known):
            self.known.append(frame)
        return number

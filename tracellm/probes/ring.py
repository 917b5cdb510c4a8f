"""A file of which only the last spans are kept: `--ring N`, for a run that is too long to be recorded whole.

The last N spans are there at any moment, also when the process is killed. So the file is written until it has N, then
it is set aside and a new one begun, and what was set aside before is gone. When the recording ends the two are made
one, of N spans exactly. A call ends after those within it: whatever encloses a call that is kept is kept as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tracellm.probes.trace_file import Line, TraceFile

__all__ = ["RingFile", "set_aside"]


@dataclass(slots=True)
class _Lines:
    """What one of the files holds: of each line its bytes and how many spans of calls that ended; and these in all.

    Before them it may have `begin` bytes of an earlier recording, or of a process that was killed.
    """

    begin: int = 0
    kept: list[tuple[int, int]] = field(default_factory=list)
    spans: int = 0


class RingFile(TraceFile):
    """Keeps the last `most` spans; those of calls that have not ended are not counted.

    `begun_anew` is called when a new file is begun, which holds nothing of the calls under way yet.
    """

    def __init__(self, path: Path, most: int, begun_anew: Callable[[], None]) -> None:
        super().__init__(path)
        self._most = most
        self._begun_anew = begun_anew
        self._set_aside = set_aside(path)
        self._aside, self._own = _Lines(), _Lines(path.stat().st_size if path.exists() else 0)
        self._settled = False

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines, and begin a new file whenever this one has spans enough.

        Raises:
            OSError: the file cannot be written.
        """
        begin = 0
        for number, line in enumerate(lines):
            if self._own.spans >= self._most and not self._settled:
                super().write(lines[begin:number])
                self._begin_anew()
                begin = number
            self._own.kept.append((len(line.content), line.spans))
            self._own.spans += line.spans
        super().write(lines[begin:])

    def settle(self) -> None:
        """Let go of all spans but the last, and make one file of the two.

        Raises:
            OSError: the file cannot be written.
        """
        self.close()
        self._settled = True
        surplus = self._aside.spans + self._own.spans - self._most
        if surplus <= 0 and not self._aside.kept:
            return
        half = self.path.with_name(f"{self.path.name}.part")
        with half.open("wb") as stream:
            stream.writelines(self._without_first(max(surplus, 0)))
        half.replace(self.path)
        self._set_aside.unlink(missing_ok=True)
        self.let_go += max(surplus, 0)
        self._aside, self._own = _Lines(), _Lines()
        self._begun_anew()

    def _begin_anew(self) -> None:
        self.close()
        self.let_go += self._aside.spans
        self._aside, self._own = self._own, _Lines()
        self.path.replace(self._set_aside)
        self._begun_anew()

    def _without_first(self, surplus: int) -> Iterator[bytes]:
        """The lines of both files without so many spans, and without those of calls that had not ended then."""
        for file, lines in ((self._set_aside, self._aside), (self.path, self._own)):
            if not lines.kept:
                continue
            with file.open("rb") as stream:
                stream.seek(lines.begin)
                for size, spans in lines.kept:
                    line = stream.read(size)
                    if spans > surplus:
                        yield _without_first(line, surplus) if surplus else line
                    surplus -= min(spans, surplus)


def set_aside(path: Path) -> Path:
    """Where the spans before those in this file are."""
    return path.with_name(f"{path.stem}.before{path.suffix}")


def _without_first(line: bytes, surplus: int) -> bytes:
    """A line without its first spans."""
    document = msgspec.json.decode(line)
    del document["resourceSpans"][0]["scopeSpans"][0]["spans"][:surplus]
    return msgspec.json.encode(document) + b"\n"

"""The helper process that sends a recording to a collector, as the recorded process sees it: its start and its end.

Nothing is imported for it here, and no probed call waits for it: a collector that is slow, down, or wrong costs one
line at the end of the run.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracellm.probes.export.settings import Settings, settings

__all__ = ["SenderProcess", "start_sender"]

_CODE = """
import json, sys
own, others = json.loads(sys.stdin.readline())
sys.path[:0] = [own]
sys.path += [one for one in others if one not in sys.path]
from tracellm.probes.export.sender import main
main()
"""
_GRACE_SECONDS = 15.0  # to start, where a run was short, and to count what is left


def start_sender(traces: Path, earlier: Collection[str], environment: Mapping[str, str]) -> "SenderProcess | None":
    """Begin to send what is recorded in the folder `traces`, if the standard variables ask for that.

    `earlier` are the names of files there that are of another recording.
    """
    wanted = settings(environment)
    if wanted is None:
        return None
    return SenderProcess(traces.absolute(), earlier, environment, wanted)


class SenderProcess:
    """The helper process, from its start to its end."""

    def __init__(
        self, traces: Path, earlier: Collection[str], environment: Mapping[str, str], wanted: Settings
    ) -> None:
        self._wanted = wanted
        self._measured = traces / f".measured-{os.getpid()}"
        self._problem: str | None = None
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                # Isolated: what is set up to watch the user's program must not watch this one.
                [sys.executable, "-I", "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**environment},
                start_new_session=True,  # Ctrl-C is meant for the run, which then ends this
            )
        except OSError as error:
            self._problem = f"the process that sends spans cannot be started: {error.strerror}"
        own = str(Path(__file__).parents[3])  # where this package is; the script's own folder comes last
        self._write([own, [one for one in reversed(sys.path) if os.path.isabs(one)]])
        self._write({"traces": str(traces), "earlier": sorted(earlier), "measured": str(self._measured)})

    def leave_metrics(self) -> int:
        """Leave requests of this process that end from now on to the program's own metrics; return the time."""
        now = time.time_ns()
        with suppress(OSError):
            part = self._measured.with_suffix(".part")
            part.write_text(str(now), encoding="ascii")
            part.replace(self._measured)
        return now

    def end(self) -> dict[str, Any]:
        """Have the rest sent, as everything is written now; wait for that, but not forever.

        Returns:
            `probes.export` of run.json: `endpoint`, the spans `sent` and `lost`, or null where that is not known, and
            `errors`, the reasons.
        """
        self._write({"end": True})
        answer: dict[str, Any] = {}
        if self._process is not None:
            try:
                answer = self._answer(self._process, self._wanted.patience_s + _GRACE_SECONDS)
            except KeyboardInterrupt:  # whoever does not want to wait need not
                self._problem = "it was interrupted while it sent the last spans"
                with self._process as ended:
                    ended.kill()
        with suppress(OSError):
            self._measured.unlink(missing_ok=True)
        return {
            "endpoint": self._wanted.traces or self._wanted.metrics,
            "sent": answer.get("sent"),
            "lost": answer.get("lost"),
            "errors": [*answer.get("errors", ()), *([self._problem] if self._problem is not None else ())],
        }

    def forget(self) -> None:
        """Leave the helper process alone: this is a fork of the process that started it, which is to end it."""
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this one
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _answer(self, process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        except (OSError, ValueError):
            text = ""
        try:
            answer = json.loads(text)
        except ValueError:
            self._problem = f"the process that sends spans ended without its count (exit status {process.returncode})"
            return {}
        return answer if isinstance(answer, dict) else {}

    def _write(self, message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended; its missing answer shows that
                self._process.stdin.write(json.dumps(message) + "\n")
                self._process.stdin.flush()

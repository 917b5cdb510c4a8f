"""Sending a recording to a collector, as the recorded process sees it: whoever does so is started, and ended.

Nothing is imported for it here, and nothing that a probed call or the writer does depends on it: a collector that is
slow, down, or wrong costs what is told at the end in one line.
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

from tracellm.probes.otel.settings import Settings, settings
from tracellm.probes.spans.tail import MEASURED

__all__ = ["Export", "begin_export"]

_CODE = """
import json, sys
own, others = json.loads(sys.stdin.readline())
sys.path[:0] = [own]
sys.path += [one for one in others if one not in sys.path]
from tracellm.probes.otel.sender import main
main()
"""
_GRACE_SECONDS = 15.0  # for it to start, where a run was short, and to say what it has done


def begin_export(
    traces: Path, earlier: Collection[str], ring: int | None, environment: Mapping[str, str]
) -> "Export | None":
    """Begin to send what is recorded in the folder `traces`, if the standard variables ask for that.

    `earlier` are the names of files there that are of another recording; `ring` is how many spans of each process are
    kept, where not all are.
    """
    wanted = settings(environment)
    if wanted is None:
        return None
    return Export({"traces": str(traces.absolute()), "earlier": sorted(earlier), "ring": ring}, environment, wanted)


class Export:
    """The process that sends spans, from its start to its end; `files` is what it is to read."""

    def __init__(self, files: dict[str, Any], environment: Mapping[str, str], wanted: Settings) -> None:
        self._wanted = wanted
        self._measured = Path(files["traces"], f"{MEASURED}{os.getpid()}")
        self._problem: str | None = None
        self._process: subprocess.Popen[str] | None = None
        apart: dict[str, Any] = (  # Ctrl-C is meant for the run, which then ends this
            {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
            if sys.platform == "win32"
            else {"start_new_session": True}
        )
        try:
            self._process = subprocess.Popen(
                # Isolated: what is set up to watch the user's program must not watch this one.
                [sys.executable, "-I", "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**environment},
                **apart,
            )
        except OSError as error:
            self._problem = f"the process that sends spans cannot be started: {error.strerror}"
        own = str(Path(__file__).parents[3])  # where this package is; the script's own folder comes last
        self._tell([own, [one for one in reversed(sys.path) if os.path.isabs(one)]])
        self._tell(files)

    def users_metrics(self) -> int:
        """From now on the program itself measures the lives of this process; returns since when."""
        now = time.time_ns()
        with suppress(OSError):
            half = self._measured.with_suffix(".part")
            half.write_text(str(now), encoding="ascii")
            half.replace(self._measured)
        return now

    def end(self, spans: int) -> dict[str, Any]:
        """Everything is written, so many spans: have the rest sent, wait for that, but not forever.

        Returns:
            What run.json says of it: `endpoint`, the spans `sent` and `lost`, or null where that is not known, and
            `errors`, why.
        """
        self._tell({"end": spans})
        answer: dict[str, Any] = {}
        if self._process is not None:
            try:
                answer = self._answer(self._wanted.patience_s + _GRACE_SECONDS)
            except KeyboardInterrupt:  # whoever does not want to wait need not
                self._problem = "it was interrupted while it sent the last spans"
                with self._process as ended:
                    ended.kill()
        with suppress(OSError):
            self._measured.unlink(missing_ok=True)
        errors = [*answer.get("errors", ()), *([self._problem] if self._problem is not None else ())]
        return {
            "endpoint": self._wanted.traces or self._wanted.metrics,
            "sent": answer.get("sent"),
            "lost": answer.get("lost"),
            "errors": errors,
        }

    def forget(self) -> None:
        """This process is a fork of the one that started it, which is the one to end it."""
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this one
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        try:
            text, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            text, _ = self._process.communicate()
        except (OSError, ValueError):
            text = ""
        try:
            answer = json.loads(text)
        except ValueError:
            status = self._process.returncode
            self._problem = f"the process that sends spans ended before it had said how many (exit status {status})"
            return {}
        return answer if isinstance(answer, dict) else {}

    def _tell(self, message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended; that is told at the end
                self._process.stdin.write(json.dumps(message) + "\n")
                self._process.stdin.flush()

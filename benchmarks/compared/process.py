"""The benchmark's side of an engine in its own process, which answers lines of JSON (protocol.py)."""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tracellm.bench.workload import Workload

__all__ = ["EngineFailed", "EngineProcess", "environment"]

_HERE = Path(__file__).parent
_LONGEST_ERROR = 4000  # characters
_SETTINGS_OF_OTHERS = ("PYTHONPATH", "LD_PRELOAD")


class EngineFailed(Exception):
    """The engine could not start, or did not answer; the message has the end of its output."""


class EngineProcess:
    """Process of an engine, started at once and ended by `with`."""

    def __init__(self, module: str, python: str | Path, settings: dict[str, Any], threads: int, log: Path) -> None:
        """Start the process. `module` is one of this package; its stderr goes to the file `log`.

        Raises:
            EngineFailed: the engine could not start.
        """
        self._log = log
        self._name = module
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python), str(_HERE / f"{module}.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(Path(python), threads),
            )
        try:
            self.about = self._ask(settings)
        except BaseException:
            self.close()
            raise

    def turn(self, way: str, workload: Workload) -> dict[str, Any]:
        """Generate; return `seconds`, `cpu_seconds`, and the `token_ids` of each request.

        Raises:
            EngineFailed: the engine failed.
        """
        return self._ask({"way": way, "prompts": workload.prompts, "lengths": workload.lengths})

    def gaps(self, questions: Sequence[tuple[list[int], int, int]]) -> list[dict[str, float]]:
        """See `Engine.gaps`."""
        gaps: list[dict[str, float]] = self._ask({"questions": questions})["gaps"]
        return gaps

    def cost(self) -> dict[str, Any]:
        """Stop its recording, and return the `probes` of run.json."""
        return self._ask({"cost": True})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EngineFailed(f"{self._name} has ended:\n{self._log.read_text(errors='replace')[-_LONGEST_ERROR:]}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise EngineFailed(f"{self._name} says:\n{reply['error'][-_LONGEST_ERROR:]}")
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close stdin, which ends the process, and wait for it."""
        with suppress(BrokenPipeError):  # the process has ended
            self._process.communicate()


def environment(python: Path, threads: int) -> dict[str, str]:
    """Return the environment of all engines: the number of threads, no network, and OpenMP preloaded for vLLM."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in _SETTINGS_OF_OTHERS and not name.startswith(("VLLM_", "TRACELLM_"))
    }
    variables |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    variables |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": ""}
    preloaded = python.parent.parent / "lib" / "libiomp5.so"
    return {**variables, "LD_PRELOAD": str(preloaded)} if preloaded.exists() else variables

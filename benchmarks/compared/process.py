"""An engine in a process of its own, asked by lines of JSON: see protocol.py."""

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
    """The engine could not be made, or did not answer; the message has its own last words."""


class EngineProcess:
    """Starts the engine at once; `with` ends it."""

    def __init__(self, module: str, python: str | Path, settings: dict[str, Any], threads: int, log: Path) -> None:
        """`module` is one of this package; what it prints goes to the file `log`.

        Raises:
            EngineFailed: there is no engine; why.
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
        """Generate: `seconds` and `cpu_seconds`, and the `token_ids` of each request.

        Raises:
            EngineFailed: it could not.
        """
        return self._ask({"way": way, "prompts": workload.prompts, "lengths": workload.lengths})

    def gaps(self, questions: Sequence[tuple[list[int], int, int]]) -> list[dict[str, float]]:
        """See `Engine.gaps`."""
        told: list[dict[str, float]] = self._ask({"questions": questions})["gaps"]
        return told

    def cost(self) -> dict[str, Any]:
        """What recording it has cost so far, as run.json tells it; it goes on unrecorded."""
        return self._ask({"cost": True})

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EngineFailed(f"{self._name} has ended:\n{self._log.read_text(errors='replace')[-_LONGEST_ERROR:]}")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise EngineFailed(f"{self._name} says:\n{told['error'][-_LONGEST_ERROR:]}")
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, which ends when nobody can ask it any more; wait until it has."""
        with suppress(BrokenPipeError):  # it has ended by itself
            self._process.communicate()


def environment(python: Path, threads: int) -> dict[str, str]:
    """What all engines get: so many threads, no network. A vLLM gets its OpenMP, as its manual wants it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _SETTINGS_OF_OTHERS and not name.startswith(("VLLM_", "TRACELLM_"))
    }
    kept |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    kept |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": ""}
    preloaded = python.parent.parent / "lib" / "libiomp5.so"
    return {**kept, "LD_PRELOAD": str(preloaded)} if preloaded.exists() else kept

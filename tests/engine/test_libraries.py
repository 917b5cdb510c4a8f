"""Tests of `import_libraries`: the wait policy of OpenMP's threads, and the garbage collector's state."""

import json
import os
import re
import subprocess
import sys

import pytest

_ENGINE = "from tracellm import LLM\nLLM()"
_LIBRARIES = "from tracellm.engine.config.libraries import import_libraries\nimport_libraries('torch')"
_TOLD = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}))
"""


def waits(script: str, **environment: str) -> tuple[str, dict[str, str | None]]:
    """Return the spin count of OpenMP's threads, and the script's environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", script + _TOLD],
        env={**kept, "OMP_DISPLAY_ENV": "verbose", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    spins = re.findall(r"GOMP_SPINCOUNT = '(.+)'", done.stderr)
    if not spins:
        pytest.skip("torch uses another OpenMP than GNU's here")
    settings: dict[str, str | None] = json.loads(done.stdout)
    return spins[0], settings


def test_threads_wait_a_moment_and_then_sleep() -> None:
    """An engine in a new process has OpenMP spin briefly, and leaves the environment unchanged."""
    assert waits(_ENGINE) == ("3000", {"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": None})


def test_the_user_chooses() -> None:
    """A user's own OpenMP setting is kept."""
    assert waits(_LIBRARIES, OMP_WAIT_POLICY="passive") == ("0", {"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": "passive"})
    assert waits(_LIBRARIES, GOMP_SPINCOUNT="7") == ("7", {"GOMP_SPINCOUNT": "7", "OMP_WAIT_POLICY": None})


def test_a_torch_that_is_there_is_left_alone() -> None:
    """If torch was imported before, nothing is changed."""
    assert waits("import torch\n" + _LIBRARIES) == ("300000", {"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": None})


@pytest.mark.parametrize("enabled", ["enable", "disable"])
def test_the_garbage_collector_is_left_as_it_was(enabled: str) -> None:
    """The collector is enabled or disabled as before, and none of the user's objects is frozen."""
    script = f"import gc\ngc.{enabled}()\n{_ENGINE}\nassert gc.isenabled() is {enabled == 'enable'}\n"
    subprocess.run([sys.executable, "-c", script + "assert gc.get_freeze_count() == 0"], check=True)

"""Import of the heavy libraries, torch and transformers, when the first engine is made.

Importing tracellm itself stays quick, so a rejected argument or a report does not wait. Every engine needs torch;
transformers, which takes half as long again, is not needed for the bundled model (hf_config.py, tokenizer.py).

No vLLM counterpart: `import vllm` imports both.
"""

import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal

from tracellm.engine.config.errors import EngineError

__all__ = ["import_libraries", "require_extra"]

_NAMES = {"torch": (), "transformers": ("AutoConfig", "GenerationConfig", "PreTrainedTokenizerFast")}
"""Names that the engine uses; transformers imports the module behind a name when the name is read."""

_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Environment variables that set how long an OpenMP thread waits on its processor before it sleeps."""
_SPIN_COUNT = "3000"
"""Spins at a barrier before a thread sleeps, some 100 microseconds. GNU OpenMP's default, 300000 or 10 milliseconds,
takes the processor from the thread waited for when other programs run."""

_lock = threading.Lock()


def import_libraries(*libraries: Literal["torch", "transformers"]) -> None:
    """Import libraries that are not imported yet, in one call that a recording can show.

    Garbage collection is off during the import: it would search hundreds of thousands of new objects and find nothing,
    for 0.3 of 2 seconds. Concurrent calls wait for each other, as transformers cannot be imported by two threads.
    """
    with _lock:
        missing = [library for library in libraries if library not in sys.modules]
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for library in missing:
                with _short_waits():
                    module = importlib.import_module(library)
                for name in _NAMES[library]:
                    getattr(module, name)
        finally:
            if was_enabled:
                gc.enable()


@contextmanager
def _short_waits() -> Iterator[None]:
    """Make OpenMP's threads sleep soon at a barrier, unless the user set how they wait.

    OpenMP reads the variable when torch loads it, so the environment is restored. A torch imported before keeps its
    setting.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _WAIT_VARIABLES):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def require_extra(library: str, extra: str) -> ModuleType:
    """Import and return a library that comes with an extra of this package.

    Raises:
        EngineError: it is not installed.
    """
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise EngineError(f"This needs {library}, which is not installed: pip install 'tracellm[{extra}]'.") from None

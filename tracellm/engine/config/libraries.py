"""The heavy libraries, imported when the first engine is made: most of the time that starting takes.

Importing tracellm itself is quick, so that what needs no model (a refused argument, a report) does not wait. Every
engine needs torch; transformers, which takes as long again, is needed for checkpoints that are not as plain as the
model inside (plain_config.py, plain_tokenizer.py). vLLM has no counterpart: there `import vllm` imports both.
"""

import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

__all__ = ["import_libraries"]

_USED = {"torch": (), "transformers": ("AutoConfig", "GenerationConfig", "PreTrainedTokenizerFast")}
"""What is used of each; transformers imports what stands behind a name when the name is read."""

_WAITS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""The environment variables that set how long a thread of OpenMP waits on its processor before it sleeps."""
_SPINS = 3000
"""Looks at a barrier before a thread sleeps, some 100 microseconds. OpenMP's own 300000 are 10 milliseconds or more, in
which it keeps the thread that it waits for from its processor, when something else has the others."""

_importing = threading.Lock()


def import_libraries(*libraries: Literal["torch", "transformers"]) -> None:
    """Import these, so that the wait is one call that can be seen.

    The garbage collector rests meanwhile: it would search hundreds of thousands of new objects again and again, and
    find nothing. They stay until the process ends, so it need not look at them later either (`gc.freeze`, as vLLM does
    after start-up). Two threads that make an engine each do it one after the other: transformers does not expect two.
    """
    with _importing:
        missing = [library for library in libraries if library not in sys.modules]
        if missing:
            _import(missing)


def _import(libraries: Sequence[str]) -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for library in libraries:
            with _short_waits():
                module = importlib.import_module(library)
            for name in _USED[library]:
                getattr(module, name)
    finally:
        # What is garbage would be kept by freeze. There is some: an error that an import has caught holds the frames of
        # all callers, and so the LLM that is being made, which could never be deleted.
        gc.collect()
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def _short_waits() -> Iterator[None]:
    """Let OpenMP's threads wait for each other as long as is good beside other programs, unless the user chose.

    The library reads that once, when torch loads it: afterwards the environment is as before. A torch that the user has
    imported first waits as it will.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _WAITS):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = str(_SPINS)
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]

"""The heavy libraries, imported when the first engine is made: most of the time that starting takes.

Importing tracellm itself is quick, so that what needs no model (a refused argument, a report) does not wait. Every
engine needs torch; transformers, which takes as long again, is needed for checkpoints that are not as plain as the
model inside (plain_config.py, plain_tokenizer.py). vLLM has no counterpart: there `import vllm` imports both.
"""

import gc
import importlib
import sys
import threading
from collections.abc import Sequence
from typing import Literal

__all__ = ["import_libraries"]

_USED = {"torch": (), "transformers": ("AutoConfig", "GenerationConfig", "PreTrainedTokenizerFast")}
"""What is used of each; transformers imports what stands behind a name when the name is read."""

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

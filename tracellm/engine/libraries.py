"""The heavy libraries, imported when the first engine is made: most of the time that starting takes.

Importing tracellm itself is quick, so that what needs no model (a refused argument, a report) does not wait. vLLM has
no counterpart: there `import vllm` imports them.
"""

import gc
import sys
import threading

__all__ = ["import_libraries"]

_importing = threading.Lock()


def import_libraries() -> None:
    """Import torch and what is used of transformers, so that the wait is one call that can be seen.

    The garbage collector rests meanwhile: it would search hundreds of thousands of new objects again and again, and
    find nothing. They stay until the process ends, so it need not look at them later either (`gc.freeze`, as vLLM does
    after start-up). Two threads that make an engine each do it one after the other: transformers does not expect two.
    """
    with _importing:
        if not ("torch" in sys.modules and "transformers" in sys.modules):
            _import_libraries()


def _import_libraries() -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import torch  # noqa: F401
        from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast  # noqa: F401
    finally:
        # What is garbage would be kept by freeze. There is some: an error that an import has caught holds the frames of
        # all callers, and so the LLM that is being made, which could never be deleted.
        gc.collect()
        gc.freeze()
        if was_enabled:
            gc.enable()

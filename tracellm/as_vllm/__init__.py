"""`--engine tracellm`: `import vllm` gives tracellm's engine, and a script for vLLM needs no vLLM.

    tracellm run --explain --engine tracellm script.py

`activate` is called once, before the script runs. `table.py` maps vLLM's names to tracellm's, `modules.py` makes the
modules, and `definitions.py` has the names that the engine itself does not need.

Processes that the script starts find the folder `path/` on `sys.path` or PYTHONPATH; its module `vllm` calls `become`.

vLLM: its public modules, as scripts import them.
"""

import os
import sys
from pathlib import Path

__all__ = ["activate", "become"]

_FOLDER = str(Path(__file__).parent / "path")


def activate() -> None:
    """Make `vllm` mean tracellm, in this process and those that it starts."""
    from tracellm.as_vllm.modules import install

    sys.path.insert(1, _FOLDER)  # after the script's own folder, as an installed library is
    further = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_FOLDER}{os.pathsep}{further}" if further else _FOLDER
    install()


def become(name: str) -> None:
    """Replace the module `vllm` of `path/`, just imported in a started process, by the stand-in."""
    from importlib import import_module

    from tracellm.as_vllm.modules import install

    install()
    del sys.modules[name]
    import_module(name)

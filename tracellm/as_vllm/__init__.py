"""`--engine tracellm`: a script that says `import vllm` gets tracellm's own engine, and needs no vLLM.

    tracellm run --explain --engine tracellm script.py

`activate` is called once, before the script runs. `table.py` says which name of vLLM is which of tracellm's,
`finder.py` gives Python the modules, `stand_in.py` is what they are, and `errors.py` what a script is told that asks
for more.

Processes that the script starts see the same: what Python's multiprocessing starts gets `sys.path` from its parent, any
other program PYTHONPATH, and on both is the folder `path/`, in which lies a `vllm` that does what is done here.

It stands beside the floors: it uses the engine, and the command uses it. vLLM: all of it, seen from outside.
"""

import os
import sys
from pathlib import Path

__all__ = ["activate", "become"]

_FOLDER = str(Path(__file__).parent / "path")


def activate() -> None:
    """From here on `vllm` means tracellm, in this process and in those that it starts."""
    from tracellm.as_vllm.finder import install

    sys.path.insert(1, _FOLDER)  # behind the script's own folder, as an installed library is
    further = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_FOLDER}{os.pathsep}{further}" if further else _FOLDER
    install()


def become(name: str) -> None:
    """For `path/vllm`, which a process has imported that was started: put the stand-in into its place."""
    from importlib import import_module

    from tracellm.as_vllm.finder import install

    install()
    del sys.modules[name]
    import_module(name)

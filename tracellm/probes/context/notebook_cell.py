"""Names of a notebook's cells, in place of the files that IPython compiles them as.

Such a file has a hash in its name, with the kernel's process id before it; `In[3]` stands in IPython's own tracebacks.
"""

import sys
from typing import Any

__all__ = ["NOTEBOOK", "cell_name", "is_in_notebook"]

NOTEBOOK = "notebook"
"""Name of a program whose lines are cells."""


def is_in_notebook() -> bool:
    """Return whether this process is a Jupyter kernel."""
    return hasattr(_shell(), "kernel")


def cell_name(file: str) -> str | None:
    """Return the name of the cell that was compiled as this file, such as `In[3]`; None if no cell was."""
    shell = _shell()
    found = shell.compile.format_code_name(file) if shell is not None else None
    if found is None:
        return None
    # IPython numbers code that a magic runs as the cell after the magic's.
    return f"In[{min(int(found[1][3:-1]), shell.displayhook.prompt_count)}]"


def _shell() -> Any:
    """Return IPython's shell, if this process has one."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return get() if get else None

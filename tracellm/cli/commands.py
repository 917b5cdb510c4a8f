"""Commands that are Python scripts of this environment, as `vllm` is: `tracellm run --explain vllm serve MODEL`.

Such a script lies beside the interpreter, and its first line names that; what another Python would run cannot be
recorded here, as tracellm is not there.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from tracellm.cli.errors import CommandError

__all__ = ["command_path"]

_LONGEST_HEAD = 4096  # bytes; what of a script names its interpreter is in its first two lines
_BY_SHELL = re.compile(r"""'''exec' ("?)(.+?)\1 "\$0" """.rstrip())
"""The second line of a script whose interpreter has too long a path, or spaces in it, for the first."""


def command_path(name: str) -> Path | None:
    """The script of the command `name`, beside the interpreter or wherever the shell finds it; None where no Python
    runs what is found.

    Raises:
        CommandError: the Python that runs it is not this one.
    """
    if os.path.dirname(name):
        return None
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.is_file() else shutil.which(name)
    if found is None:
        return None
    path = Path(found)
    interpreter = Path(_interpreter(path) or "")
    if not interpreter.name.startswith("python"):
        return None
    # Environments share an interpreter, but no folder that it is run from.
    if interpreter.parent.resolve() != Path(sys.executable).parent.resolve():
        raise CommandError("command_foreign", name=name, path=path, python=sys.executable)
    return path


def _interpreter(script: Path) -> str | None:
    """What runs a script, as its first line says, or its second."""
    try:
        with script.open("rb") as file:
            lines = os.fsdecode(file.read(_LONGEST_HEAD)).splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and (found := _BY_SHELL.match(lines[1])):
        return found[2]
    if words[:1] == ["/usr/bin/env"] and len(words) > 1:
        return shutil.which(words[1])
    return words[0] if words else None

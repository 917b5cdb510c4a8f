"""The command: `tracellm run | serve | show | report | diff | check | export | doctor | bench`, at a terminal.

The uppermost floor. `app` finds a command's module in `commands/`, which is imported only then and owns its options;
what several commands share lies beside: `options`, `folders`, `reports`, `errors`.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """The `tracellm` command; ends by SystemExit, or with whatever ended the script that it ran."""
    from tracellm.cli.app import run_command

    run_command(sys.argv[1:])

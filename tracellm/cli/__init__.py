"""The command `tracellm` at a terminal: `run`, `serve`, `show`, `report` and others, with modules in `commands/`.

`app` imports a command's module from `commands/`, which has its options; `options`, `folders`,
`reports`, `errors`, `stdout` and `signals` are shared by several commands.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command in `sys.argv`; ends by SystemExit, or with the exception of the script that it ran."""
    from tracellm.cli.app import run_command

    run_command(sys.argv[1:])

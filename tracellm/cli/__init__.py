"""The command: `tracellm run | serve | show | report | diff | check | export | doctor | bench`, at a terminal.

The uppermost floor: `app` reads the arguments, and a module for each of these words does what they ask for.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """The `tracellm` command; ends by SystemExit, or with whatever ended the script that it ran."""
    from tracellm.cli.app import parse
    from tracellm.cli.errors import CommandError
    from tracellm.cli.language import language_of_arguments
    from tracellm.report.texts import text

    lang = language_of_arguments(sys.argv[1:])
    job = parse(sys.argv[1:], lang)
    try:
        status = job()
    except CommandError as error:
        print(text(lang, "cli.error", message=error.message(lang)), file=sys.stderr)
        status = 2
    sys.exit(status)

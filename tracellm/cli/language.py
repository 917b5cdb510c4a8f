"""Which language to speak: what --lang says, else TRACELLM_LANG, else the locale of the shell."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from tracellm.cli.errors import CommandError
from tracellm.report.texts import LANGUAGES, Language

__all__ = ["choose_language", "language_of_arguments"]


def choose_language(option: str | None = None, environ: Mapping[str, str] = os.environ) -> Language:
    """The language of this run.

    The locale is what POSIX makes it: LC_ALL before LC_MESSAGES before LANG. Anything but Chinese means English.

    Raises:
        CommandError: --lang or TRACELLM_LANG names a language that there are no texts in.
    """
    for source, value in (("--lang", option), ("TRACELLM_LANG", environ.get("TRACELLM_LANG"))):
        if value:
            for language in LANGUAGES:
                if value.lower() == language:
                    return language
            raise CommandError("lang", value=value, source=source)
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def language_of_arguments(arguments: Sequence[str]) -> Language:
    """The language to show help and refusals in, before the arguments are parsed; never raises."""
    asked = None
    for here, following in pairwise([*arguments, ""]):
        if here == "--lang":
            asked = following
        elif here.startswith("--lang="):
            asked = here.removeprefix("--lang=")
    for option in (asked, None):
        with suppress(CommandError):
            return choose_language(option)
    return choose_language(environ={name: value for name, value in os.environ.items() if name != "TRACELLM_LANG"})

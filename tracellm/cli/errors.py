"""Bad input to the command: one message, in the reader's language, and exit status 2."""

from typing import Any

from tracellm.report.texts import text

__all__ = ["CommandError"]


class CommandError(Exception):
    """Something the user has to put right. `key` names a text under `cli.error.`, `values` fill it in."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values

    def message(self, lang: str) -> str:
        """What is wrong, where, and what to do, in one language."""
        return text(lang, f"cli.error.{self.key}", **self.values)

    def __str__(self) -> str:
        return self.message("en")

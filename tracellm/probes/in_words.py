"""The text of a call's arguments and result, as it stands in the file, from what the default capture kept of them.

It is what `brief.written` says, without the way there: of each parameter the values that came before are remembered, as
the text that they become.
"""

from collections.abc import Sequence
from operator import getitem
from typing import Any

from tracellm.probes.brief import NOT_GIVEN, write
from tracellm.trace import names
from tracellm.trace.otlp.encoding import attributes_text, value_text

__all__ = ["InWords"]

_MOST_VALUES = 2_000  # of one parameter


class InWords:
    """For a function with parameters of these names."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = [_Arguments(name) for name in parameters]
        self._results = _Results()

    def __call__(self, facts: Any) -> str:
        """The text of these facts, each attribute with a comma before it."""
        result = self._results[facts[-1]]
        given = "".join(map(getitem, self._parameters, facts))  # there is no parameter for the result
        return f"{_BEFORE}{given[1:]}{_AFTER}{result}" if given else result


class _Remembered(dict[Any, str]):
    """Makes the text of a value that it has not met, with a comma before it; nothing of what is not worth telling."""

    def __missing__(self, value: Any) -> str:
        if len(self) >= _MOST_VALUES:
            self.clear()
        text = self[value] = self._text(value)
        return text

    def _text(self, value: Any) -> str:
        raise NotImplementedError


class _Arguments(_Remembered):
    def __init__(self, parameter: str) -> None:
        super().__init__()
        self._parameter = parameter

    def _text(self, value: Any) -> str:
        return "" if value == NOT_GIVEN else f",{value_text(f'{self._parameter}={write(value)}')}"


class _Results(_Remembered):
    def _text(self, value: Any) -> str:
        return "" if value is None else f",{attributes_text({names.RESULT: write(value)})}"


_MARK = "the arguments"
_BEFORE, _, _AFTER = f",{attributes_text({names.ARGUMENTS: [_MARK]})}".partition(value_text(_MARK))

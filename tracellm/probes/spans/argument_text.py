"""JSON text of a call's arguments and result, from what the default capture kept of them.

The text is that of the attributes that `brief.ArgumentAttributes` makes; of each parameter the texts of values that
came before are kept.
"""

from collections.abc import Sequence
from operator import getitem
from typing import Any

from tracellm.probes.wrapping.summary import is_given, write
from tracellm.trace import names
from tracellm.trace.otlp.encoding import attributes_text, value_text

__all__ = ["ArgumentText"]

_MOST_VALUES = 2_000  # of one parameter


class ArgumentText:
    """For a function with parameters of these names."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = [_Arguments(name) for name in parameters]
        self._results = _Results()

    def __call__(self, facts: Any) -> str:
        """The text of these facts, each attribute with a comma before it."""
        keys = list(map(_hashable, facts))
        result = self._results[keys[-1]]
        given = "".join(map(getitem, self._parameters, keys))  # there is no parameter for the result
        return f"{_BEFORE}{given[1:]}{_AFTER}{result}" if given else result


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if value.__class__ is list else value


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
        return "" if not is_given(value) else f",{value_text(f'{self._parameter}={write(value)}')}"


class _Results(_Remembered):
    def _text(self, value: Any) -> str:
        return "" if value is None else f",{attributes_text({names.RESULT: write(value)})}"


_MARK = "the arguments"
_BEFORE, _, _AFTER = f",{attributes_text({names.ARGUMENTS: [_MARK]})}".partition(value_text(_MARK))

"""Bad input to a benchmark, as data: the command line puts it into words."""

from typing import Any

__all__ = ["BenchError"]


class BenchError(Exception):
    """Bad input to a benchmark. `key` names a text under `cli.error.bench.`, `values` fill it in."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values

"""Expectations of a run, written by a person as a diagram or a table, and the check whether a recording meets them.

- `arrows.py`: an expectation as data; `read.py` finds it in a file, `mermaid.py` and `table.py` read its two forms;
- `calls.py`: the calls of a recording in order, with who made them; `causes.py`: which had to come before which;
- `match.py`: the one held against the other.

vLLM has no counterpart; `tracellm check` is what people use it by.
"""

from tracellm.trace.expect.match import Result, check
from tracellm.trace.expect.read import Arrow, Expectation, ExpectError, read

__all__ = ["Arrow", "ExpectError", "Expectation", "Result", "check", "read"]

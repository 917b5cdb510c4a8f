"""Expectations of a run, written as a diagram or a table, and the check of a recording against them.

- `read.py`: an expectation as data, read from a file;
- `calls.py`: the calls of a recording in order, with their callers, and which had to come before which;
- `match.py`: the comparison.

`tracellm check` is the command. vLLM has no counterpart.
"""

from tracellm.trace.expect.match import Result, check
from tracellm.trace.expect.read import Arrow, Expectation, ExpectError, read

__all__ = ["Arrow", "ExpectError", "Expectation", "Result", "check", "read"]

"""The live console of `tracellm run --explain`: what the engine did, said on stderr while the script runs.

`listener` takes the spans as they end and decides what is worth saying, `boxes` says it, `terminal` is what it is
written on.
"""

from tracellm.report.console.listener import Console

__all__ = ["Console"]

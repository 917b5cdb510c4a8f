"""The live console of `tracellm run --explain`: what the engine did, printed on stderr while the script runs.

`listener` takes the spans as they end and selects what to print, `boxes` words it, `terminal` writes it.
"""

from tracellm.report.console.listener import Console

__all__ = ["Console"]

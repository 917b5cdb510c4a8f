"""Logits processors: changes to the logits that have a state of their own, kept in step with the persistent batch.

`interface.py` says what one is, `builtin.py` has the three that there are. What needs no state between steps is a
function in `sample/ops/`.

vLLM: vllm/v1/sample/logits_processor/. Left out: the user's own processors.
"""

from tracellm.engine.sample.logits_processor.builtin import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from tracellm.engine.sample.logits_processor.interface import BatchUpdate, LogitsProcessor
from tracellm.engine.sample.logits_processor.state import LogitsProcessors

__all__ = [
    "BatchUpdate",
    "LogitBiasLogitsProcessor",
    "LogitsProcessor",
    "LogitsProcessors",
    "MinPLogitsProcessor",
    "MinTokensLogitsProcessor",
]

"""Bitmask of the grammars, which the model runner applies to the logits before it samples.

vLLM: vllm/v1/structured_output/utils.py::apply_grammar_bitmask (there a kernel of xgrammar). Left out: converting
choices and other notations into grammars, which llguidance does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from tracellm.engine.worker.cpu_gpu_buffer import async_tensor_h2d

if TYPE_CHECKING:
    from tracellm.engine.core.sched.output import GrammarOutput

__all__ = ["apply_grammar_bitmask"]


def apply_grammar_bitmask(grammar_output: GrammarOutput, row_of: Mapping[str, int], logits: torch.Tensor) -> None:
    """Set the logits of tokens that the grammars forbid to -inf, in place.

    Args:
        grammar_output: the bitmask of the constrained requests.
        row_of: each request's row of the logits.
        logits: [rows, vocabulary], in any floating dtype; the bitmask has at least that many bits.
    """
    device, request_ids = logits.device, grammar_output.structured_output_request_ids
    rows = async_tensor_h2d([row_of[request_id] for request_id in request_ids], torch.int64, device)
    words = async_tensor_h2d(grammar_output.grammar_bitmask, torch.int32, device)  # (requests, words)
    bits = words[:, :, None] >> torch.arange(32, device=device, dtype=torch.int32)  # (requests, words, 32)
    allowed = (bits & 1).bool().flatten(1)[:, : logits.shape[1]]  # (requests, vocabulary)
    logits[rows] = logits[rows].masked_fill(~allowed, -torch.inf)

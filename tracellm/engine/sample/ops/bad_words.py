"""Bad words: token sequences that must not appear in the output; the token that would complete one is forbidden.

vLLM: vllm/v1/sample/ops/bad_words.py. Left out: draft tokens.
"""

import torch
from torch import Tensor

__all__ = ["apply_bad_words"]


def apply_bad_words(
    logits: Tensor, bad_words_token_ids: dict[int, list[list[int]]], past_token_ids: list[list[int]]
) -> None:
    """Forbid, in place, what would complete a bad word.

    Args:
        logits: float32 [N, vocabulary].
        bad_words_token_ids: for the rows that have any, the sequences; none is empty. They may hold tokens that the
            tokenizer knows and the model does not have.
        past_token_ids: what each row has generated so far. The prompt does not count.
    """
    for row, bad_words in bad_words_token_ids.items():
        past = past_token_ids[row]
        for *beginning, last in bad_words:
            if past[len(past) - len(beginning) :] == beginning and last < logits.shape[1]:
                logits[row, last] = -torch.inf

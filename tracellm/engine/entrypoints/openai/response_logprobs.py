"""Log probabilities as OpenAI's API shows them: one form for chat, one for completions.

vLLM: `_create_chat_logprobs` of vllm/entrypoints/openai/serving_chat.py, `_create_completion_logprobs` of
serving_completion.py, `clamp_prompt_logprobs` of serving_engine.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionLogProb,
    ChatCompletionLogProbs,
    ChatCompletionLogProbsContent,
    CompletionLogProbs,
)
from tracellm.engine.frontend.logprobs import Logprob, LogprobsOnePosition, PromptLogprobs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["clamp_prompt_logprobs", "create_chat_logprobs", "create_completion_logprobs"]

_MINUS_INFINITY = -9999.0  # JSON has no infinity; OpenAI's API uses this number


def create_chat_logprobs(
    token_ids: Sequence[int],
    logprobs: Sequence[LogprobsOnePosition],
    tokenizer: PreTrainedTokenizerFast,
    num_top: int,
    as_ids: bool,
) -> ChatCompletionLogProbs:
    """For each generated token its log probability, and those of the `num_top` likeliest (-1: all that there are).

    Args:
        token_ids: the generated tokens.
        logprobs: of each position.
        tokenizer: for the text of tokens that have none yet.
        num_top: see above.
        as_ids: tokens are shown as `token_id:17`, since not every token is text.
    """
    content = []
    for token_id, position in zip(token_ids, logprobs, strict=True):
        chosen = position[token_id]
        its_bytes = None if chosen.decoded_token is None else _bytes(chosen.decoded_token)
        top = []
        for other, logprob in islice(position.items(), None if num_top == -1 else num_top):
            text = _text(other, logprob, tokenizer, as_ids)
            top.append(ChatCompletionLogProb(token=text, logprob=_finite(logprob), bytes=_bytes(text)))
        content.append(
            ChatCompletionLogProbsContent(
                token=_text(token_id, chosen, tokenizer, as_ids),
                logprob=_finite(chosen),
                bytes=its_bytes,
                top_logprobs=top,
            )
        )
    return ChatCompletionLogProbs(content=content)


def create_completion_logprobs(
    token_ids: Sequence[int],
    logprobs: Sequence[LogprobsOnePosition | None],
    tokenizer: PreTrainedTokenizerFast,
    num_top: int,
    as_ids: bool,
    initial_text_offset: int = 0,
) -> CompletionLogProbs:
    """For each token its text, where that begins, its log probability, and those of the likeliest.

    Arguments as above. The first token of a prompt has no log probability. There are up to `num_top + 1` likeliest, as
    OpenAI's API has it: the token itself may not be among the first.
    """
    made = CompletionLogProbs()
    offset = initial_text_offset
    for token_id, position in zip(token_ids, logprobs, strict=True):
        chosen = None if position is None else position[token_id]
        text = _text(token_id, chosen, tokenizer, as_ids)
        made.tokens.append(text)
        made.text_offset.append(offset)
        offset += len(text)
        if position is None or chosen is None:
            made.token_logprobs.append(None)
            made.top_logprobs.append(None)
            continue
        made.token_logprobs.append(_finite(chosen))
        likeliest = islice(position.items(), num_top + 1)
        made.top_logprobs.append({_text(other, it, tokenizer, as_ids): _finite(it) for other, it in likeliest})
    return made


def clamp_prompt_logprobs(prompt_logprobs: PromptLogprobs | None) -> PromptLogprobs | None:
    """The prompt's log probabilities as JSON can hold them; changed in place."""
    for position in prompt_logprobs or ():
        for logprob in (position or {}).values():
            logprob.logprob = _finite(logprob)
    return prompt_logprobs


def _finite(logprob: Logprob) -> float:
    return max(logprob.logprob, _MINUS_INFINITY)


def _text(token_id: int, logprob: Logprob | None, tokenizer: PreTrainedTokenizerFast, as_id: bool) -> str:
    if as_id:
        return f"token_id:{token_id}"
    if logprob is not None and logprob.decoded_token is not None:
        return logprob.decoded_token
    return tokenizer.decode([token_id])


def _bytes(text: str) -> list[int]:
    return list(text.encode(errors="replace"))

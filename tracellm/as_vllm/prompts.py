"""The two forms of a prompt that scripts for vLLM write as classes: `TokensPrompt(prompt_token_ids=[...])`.

Both make dicts, and the engine takes the dicts. vLLM: vllm/inputs/data.py. Left out: images, embeddings, cache salts.
"""

from typing import NotRequired, TypedDict

__all__ = ["TextPrompt", "TokensPrompt"]


class TextPrompt(TypedDict):
    """A text, to be tokenized."""

    prompt: str


class TokensPrompt(TypedDict):
    """Token ids, and maybe the text that they stand for."""

    prompt_token_ids: list[int]
    prompt: NotRequired[str]

"""The tokenizer: text to token ids and back, and the chat template. A transformers tokenizer, loaded when it is needed.

A directory with a tokenizer.json is read as that file says (`PreTrainedTokenizerFast`), which is what vLLM 0.11.1 does;
`AutoTokenizer` of transformers 5 may put the pre-tokenizer that it knows for the model's type in place of the file's.

vLLM: vllm/transformers_utils/tokenizer.py. Left out: Mistral's tokenizers, tokenizer modes, caching wrappers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracellm.engine.errors import ModelLoadError
from tracellm.engine.hub import local_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["get_tokenizer"]


def get_tokenizer(tokenizer: str) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a directory or hub id.

    Raises:
        ModelLoadError: there is none, or its files are damaged.
    """
    folder = local_folder(tokenizer)
    try:
        if (folder / "tokenizer.json").is_file():
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(folder)
        if not all((folder / name).is_file() for name in ("vocab.json", "merges.txt")):
            # transformers would go on with an empty vocabulary
            raise FileNotFoundError("there is no tokenizer.json, nor vocab.json with merges.txt.")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # tokenizers raises bare Exception for a damaged file
        reason = str(error).strip().split("\n")[0]
        raise ModelLoadError(
            f"The tokenizer of `{tokenizer}` cannot be loaded: {reason} "
            "Its files belong beside config.json; another place can be given as LLM(tokenizer=...)."
        ) from None

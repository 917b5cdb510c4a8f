"""The tokenizer: text to token ids and back, and the chat template. A transformers tokenizer, or for the model inside
what does the same without transformers (plain_tokenizer.py).

A directory with a tokenizer.json is read as that file says (`PreTrainedTokenizerFast`), which is what vLLM 0.11.1 does;
`AutoTokenizer` of transformers 5 may put the pre-tokenizer that it knows for the model's type in place of the file's.

vLLM: vllm/transformers_utils/tokenizer.py. Left out: Mistral's tokenizers, those written in Python, tokenizer modes,
caching wrappers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracellm.engine.config.errors import ModelLoadError, first_line
from tracellm.engine.config.hub import local_folder
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.config.light_tokenizer import read_plain_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["get_tokenizer"]


def get_tokenizer(tokenizer: str) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a directory or hub id. It truncates on the left, so that a prompt's end stays.

    Raises:
        ModelLoadError: there is none, its files are damaged, or it is one written in Python.
    """
    folder = local_folder(tokenizer)
    try:
        if (folder / "tokenizer.json").is_file():
            if (plain := read_plain_tokenizer(folder)) is not None:
                return plain  # in its place
            import_libraries("transformers")
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(folder, truncation_side="left")
        if not all((folder / name).is_file() for name in ("vocab.json", "merges.txt")):
            # transformers would go on with an empty vocabulary
            raise FileNotFoundError("there is no tokenizer.json, nor vocab.json with merges.txt.")
        import_libraries("transformers")
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(folder, truncation_side="left")
        if not loaded.is_fast:
            raise TypeError(f"{type(loaded).__name__} is written in Python, and text is decoded from a tokenizer.json.")
        return loaded
    except Exception as error:  # tokenizers raises bare Exception for a damaged file
        raise ModelLoadError(
            f"The tokenizer of `{tokenizer}` cannot be loaded: {first_line(error)}. "
            "Its files belong beside config.json; another place can be given as LLM(tokenizer=...)."
        ) from None

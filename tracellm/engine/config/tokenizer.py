"""Tokenizer: text to token ids and back, and the chat template.

`PreTrainedTokenizerFast` reads a tokenizer.json as it is, as in vLLM 0.11.1. `AutoTokenizer` of transformers 5 may
replace the file's pre-tokenizer by the one it has for the model's type. The
bundled model's tokenizer needs no transformers (`LightTokenizer`).

vLLM: vllm/transformers_utils/tokenizer.py. Left out: Mistral's tokenizers, those written in Python, tokenizer modes,
caching wrappers.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import ModelLoadError, first_line
from tracellm.engine.config.hf_config import is_bundled, local_folder
from tracellm.engine.config.libraries import import_libraries

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

__all__ = ["LightTokenizer", "get_tokenizer", "load_complete_tokenizer"]


def get_tokenizer(tokenizer: str, truncation_side: str = "left") -> PreTrainedTokenizerFast:
    """Load a tokenizer from a directory or hub id. It truncates on the `left`, to keep the end, or on the `right`.

    Raises:
        ModelLoadError: there is none, its files are damaged, or it is written in Python.
    """
    folder = local_folder(tokenizer)
    try:
        if is_bundled(folder):
            return LightTokenizer(folder, truncation_side)
        has_tokenizer_json = (folder / "tokenizer.json").is_file()
        if not has_tokenizer_json and not all((folder / name).is_file() for name in ("vocab.json", "merges.txt")):
            # transformers would continue with an empty vocabulary
            raise FileNotFoundError("there is no tokenizer.json, nor vocab.json with merges.txt.")
        import_libraries("transformers")
        if has_tokenizer_json:
            from transformers import PreTrainedTokenizerFast

            loaded = PreTrainedTokenizerFast.from_pretrained(folder, truncation_side=truncation_side)
            if not loaded.chat_template and (template := folder / "chat_template.json").is_file():  # the processor's
                loaded.chat_template = json.loads(template.read_text(encoding="utf-8"))["chat_template"]
            return loaded
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(folder, truncation_side=truncation_side)
        if not loaded.is_fast:
            raise TypeError(f"{type(loaded).__name__} is written in Python, and text is decoded from a tokenizer.json.")
        return loaded
    except Exception as error:  # tokenizers raises bare Exception for a damaged file
        raise ModelLoadError(
            f"The tokenizer of `{tokenizer}` cannot be loaded: {first_line(error)}. "
            "Its files belong beside config.json; or give another place as LLM(tokenizer=...)."
        ) from None


class LightTokenizer:
    """Tokenizer of the bundled model on the tokenizers library alone, which spares the import of transformers.

    It replaces a `PreTrainedTokenizerFast`. Anything beyond encoding and decoding (a chat
    template, `LLM.get_tokenizer()`) loads transformers' own, which then does the engine's work too, so a user's changes
    to it take effect.
    """

    name_or_path: str
    _backend: Tokenizer
    _eos_token_id: int
    _truncation_side: str
    _complete: PreTrainedTokenizerFast | None
    """transformers' tokenizer, once it was needed."""

    _lock = threading.Lock()

    def __init__(self, folder: Path, truncation_side: str = "left") -> None:
        from tokenizers import Tokenizer
        from tokenizers.processors import TemplateProcessing

        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # Adds nothing to a text; transformers sets it too, and equal tokenizers must have an equal tokenizer.json.
        backend.post_processor = TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
        vars(self).update(  # not by attributes, which `__setattr__` passes on
            name_or_path=str(folder),
            _backend=backend,
            _eos_token_id=backend.token_to_id(settings["eos_token"]),
            _truncation_side=truncation_side,
            _complete=None,
        )

    @property
    def backend_tokenizer(self) -> Tokenizer:
        """Tokenizer of the tokenizers library."""
        return self._backend if self._complete is None else self._complete.backend_tokenizer

    @property
    def eos_token_id(self) -> int | None:
        """End-of-sequence token."""
        return self._eos_token_id if self._complete is None else self._complete.eos_token_id

    def __len__(self) -> int:
        """Return the number of tokens, including added ones."""
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, add_special_tokens: bool = True, **options: Any) -> list[int]:
        """Return the token ids of a text; under `truncation`, the last or first `max_length` of them."""
        truncation, max_length = options.get("truncation", False), options.get("max_length")
        is_supported = (
            isinstance(text, str)
            and options.keys() <= {"truncation", "max_length", "verbose"}
            and (truncation is False or (truncation is True and max_length is not None))
        )
        if self._complete is not None or not is_supported:
            return load_complete_tokenizer(self).encode(text, add_special_tokens=add_special_tokens, **options)
        # Unlike `encode`, this releases the GIL.
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        token_ids: list[int] = encoding.ids
        if not truncation or max_length is None:
            return token_ids
        start = max(0, len(token_ids) - max_length) if self._truncation_side == "left" else 0
        return token_ids[start : start + max_length]

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False, **options: Any) -> str:
        """Return the text of token ids."""
        is_supported = not options and isinstance(token_ids, list) and all(type(token) is int for token in token_ids)
        if self._complete is not None or not is_supported:
            complete = load_complete_tokenizer(self)
            return complete.decode(token_ids, skip_special_tokens=skip_special_tokens, **options)
        return str(self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not vars(self):  # empty while being copied
            raise AttributeError(f"A tokenizer has no `{name}`.", name=name, obj=self)
        return getattr(load_complete_tokenizer(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Change transformers' tokenizer, and so this one."""
        setattr(load_complete_tokenizer(self), name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encode as transformers' tokenizer does."""
        return load_complete_tokenizer(self)(*args, **kwargs)


def load_complete_tokenizer(tokenizer: Any) -> PreTrainedTokenizerFast:
    """Return transformers' tokenizer for a `LightTokenizer`; any other tokenizer unchanged."""
    if not isinstance(tokenizer, LightTokenizer):
        return tokenizer
    with LightTokenizer._lock:
        if tokenizer._complete is None:
            import_libraries("transformers")
            from transformers import PreTrainedTokenizerFast

            folder, side = tokenizer.name_or_path, tokenizer._truncation_side
            vars(tokenizer)["_complete"] = PreTrainedTokenizerFast.from_pretrained(folder, truncation_side=side)
    complete: PreTrainedTokenizerFast = tokenizer._complete
    return complete

"""The tokenizer of the model inside, read by the library `tokenizers` alone, which is what transformers' is built on.

`tokenizer.py` asks here first. What transformers adds to a tokenizer.json are settings of other files: where these hold
nothing that would change how text becomes tokens and back, the library does what transformers would, and the import of
transformers, as long as torch's, is spared. Whoever wants more of the tokenizer (a chat template filled in,
`LLM.get_tokenizer()`) gets transformers' own, which from then on does the engine's work too: what a user changes in it
counts.

vLLM has no counterpart: there every tokenizer is transformers'.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.libraries import import_libraries

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

__all__ = ["PlainTokenizer", "complete_tokenizer", "read_plain_tokenizer"]

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_PLAIN = {"add_prefix_space", "clean_up_tokenization_spaces"}
"""Settings in tokenizer_config.json that are understood here if they are False."""
_WITHOUT_EFFECT = {"backend", "chat_template", "model_max_length", "tokenizer_class"}
"""Settings that change nothing of how text becomes tokens and back."""
_FURTHER_FILES = ("added_tokens.json", "special_tokens_map.json")  # of older transformers: they may say otherwise

_OWN = {"name_or_path", "_backend", "_eos_token_id", "_complete"}
"""The attributes of a `PlainTokenizer` itself."""

_reading = threading.Lock()


class PlainTokenizer:
    """What the engine needs of a tokenizer; for whatever else it is asked, it asks transformers'.

    In the place of a `PreTrainedTokenizerFast` that truncates on the left.
    """

    def __init__(self, folder: Path, backend: Tokenizer, eos_token: str | None) -> None:
        self.name_or_path = str(folder)
        self._backend = backend
        self._eos_token_id = None if eos_token is None else backend.token_to_id(eos_token)
        self._complete: PreTrainedTokenizerFast | None = None

    @property
    def backend_tokenizer(self) -> Tokenizer:
        """The tokenizer of the library `tokenizers`."""
        return self._backend if self._complete is None else self._complete.backend_tokenizer

    @property
    def eos_token_id(self) -> int | None:
        """The end-of-sequence token; `None` without one."""
        return self._eos_token_id if self._complete is None else self._complete.eos_token_id

    def __len__(self) -> int:
        """How many tokens there are, added ones among them."""
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, add_special_tokens: bool = True, **further: Any) -> list[int]:
        """Text to token ids; under `truncation` the last `max_length` of them."""
        truncation, max_length = further.get("truncation", False), further.get("max_length")
        understood = (
            isinstance(text, str)
            and further.keys() <= {"truncation", "max_length", "verbose"}
            and (truncation is False or (truncation is True and max_length is not None))
        )
        if self._complete is not None or not understood:
            return complete_tokenizer(self).encode(text, add_special_tokens=add_special_tokens, **further)
        token_ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return token_ids if max_length is None or not truncation else token_ids[max(0, len(token_ids) - max_length) :]

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False, **further: Any) -> str:
        """Token ids to text."""
        understood = not further and isinstance(token_ids, list) and all(type(token) is int for token in token_ids)
        if self._complete is not None or not understood:
            return complete_tokenizer(self).decode(token_ids, skip_special_tokens=skip_special_tokens, **further)
        return str(self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not vars(self):  # empty while it is unpickled
            raise AttributeError(f"A tokenizer has no `{name}`.", name=name, obj=self)
        return getattr(complete_tokenizer(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:  # what a user changes counts here, too
            setattr(complete_tokenizer(self), name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As transformers' tokenizer."""
        return complete_tokenizer(self)(*args, **kwargs)


def complete_tokenizer(tokenizer: Any) -> PreTrainedTokenizerFast:
    """The same tokenizer as transformers has it."""
    if not isinstance(tokenizer, PlainTokenizer):
        return tokenizer
    with _reading:
        if tokenizer._complete is None:
            import_libraries("transformers")
            from transformers import PreTrainedTokenizerFast

            folder = tokenizer.name_or_path
            tokenizer._complete = PreTrainedTokenizerFast.from_pretrained(folder, truncation_side="left")
    return tokenizer._complete


def read_plain_tokenizer(folder: Path) -> PlainTokenizer | None:
    """The tokenizer in this folder, which has a tokenizer.json; `None` if transformers has to read it.

    Raises:
        Exception: the file is damaged.
    """
    settings_file = folder / "tokenizer_config.json"
    if not settings_file.is_file() or any((folder / name).exists() for name in _FURTHER_FILES):
        return None
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    special = {name: settings.pop(name, None) for name in _SPECIAL}
    if not all(token is None or isinstance(token, str) for token in special.values()):
        return None
    clean_up = settings.get("clean_up_tokenization_spaces")  # its default has changed over time
    if clean_up is not False or not all(
        name in _WITHOUT_EFFECT or (name in _PLAIN and value is False) for name, value in settings.items()
    ):
        return None
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    if backend.truncation or backend.padding or backend.post_processor or not {*special.values()} <= {None, *known}:
        return None
    # It adds nothing; transformers has it too, and so equal tokenizers have an equal tokenizer.json.
    backend.post_processor = TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return PlainTokenizer(folder, backend, special["eos_token"])

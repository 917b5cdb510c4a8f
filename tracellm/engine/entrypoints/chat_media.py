"""Images and sounds in the messages of a conversation: fetched, and replaced by what the chat template expects.

In a request's life: `parse_chat_messages`, for each part of a content that is not text.

vLLM: vllm/entrypoints/chat_utils.py (`MultiModalItemTracker`, `MultiModalContentParser`). Left out: video, embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.multimodal.media import MediaConnector, decode_audio, decode_base64

if TYPE_CHECKING:
    from tracellm.engine.multimodal.processing import BaseMultiModalProcessor

__all__ = ["MultiModalItemTracker"]

_MAX_UUID_LENGTH = 256


class MultiModalItemTracker:
    """The items of one conversation, in their order."""

    def __init__(self, mm_processor: BaseMultiModalProcessor) -> None:
        """Create it for a model with this processor."""
        self.processor = mm_processor
        self.connector = MediaConnector(mm_processor.config)
        self.items: dict[str, list[Any]] = {}
        self.uuids: dict[str, list[str | None]] = {}
        self._readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
            # type of a part, and the key of its value: modality, reader
            "image_url": ("image", lambda value: self.connector.fetch_image(_url(value))),
            "image_pil": ("image", lambda value: value),
            "audio_url": ("audio", lambda value: self.connector.fetch_audio(_url(value))),
            "input_audio": ("audio", _read_input_audio),
        }

    def add(self, part: Mapping[str, Any]) -> str:
        """Read a part's item; return its modality.

        Raises:
            InvalidRequestError: the part has another type, there are too many items, or the item cannot be read.
        """
        kind = str(part.get("type"))
        reader = self._readers.get(kind)
        if reader is None or part.get(kind) is None:
            raise InvalidRequestError(
                f"a part must have the type text, {', '.join(self._readers)}, and a value of this name; got "
                f"{str(dict(part))[:60]}."
            )
        modality, read = reader
        if modality not in self.processor.modalities:
            raise InvalidRequestError(f"the model takes no {modality} items.")
        limit = self.processor.config.get_limit_per_prompt(modality)
        if len(self.items.get(modality, ())) >= limit:
            raise InvalidRequestError(f"At most {limit} {modality}(s) may be provided in one prompt.")
        uuid = part.get("uuid")
        if uuid is not None and not (isinstance(uuid, str) and 0 < len(uuid) <= _MAX_UUID_LENGTH):
            raise InvalidRequestError(
                f"`uuid` must be a name of at most {_MAX_UUID_LENGTH} characters, got {str(uuid)[:60]!r}."
            )
        self.items.setdefault(modality, []).append(read(part[kind]))
        self.uuids.setdefault(modality, []).append(uuid)
        return modality

    def placeholder(self, modality: str) -> str:
        """Return the text that stands for the latest item in a template that takes text only."""
        return self.processor.get_placeholder_str(modality, len(self.items[modality]))

    def prompt_fields(self) -> dict[str, Any]:
        """Return what to add to the prompt's dict: empty without items."""
        if not self.items:
            return {}
        return {"multi_modal_data": self.items, "multi_modal_uuids": self.uuids}


def _url(value: Any) -> str:
    url = value.get("url") if isinstance(value, Mapping) else value
    if not isinstance(url, str) or not url:
        raise InvalidRequestError(f"the URL must be text, got {str(value)[:60]!r}.")
    return url


def _read_input_audio(value: Any) -> Any:
    data = value.get("data") if isinstance(value, Mapping) else None
    if not isinstance(data, str):
        raise InvalidRequestError("`input_audio` must have `data`, base64 text, and `format`.")
    return decode_audio(decode_base64(data))

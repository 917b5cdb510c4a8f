"""The multimodal processor: from a prompt with items to token ids, tensors and the place of each item.

In a request's life: `InputPreprocessor._process_multimodal` calls `apply`. The prompt holds one placeholder for each
item, such as `<|image_pad|>`; `apply` replaces it by as many tokens as the encoder gives embeddings. Images and sounds
go through the checkpoint's own processor of transformers, once for each content (cache.py).

vLLM: vllm/multimodal/processing.py::BaseMultiModalProcessor. Left out: processors that tokenize the text themselves,
replacement by text search, embeddings as input, several updates for one item.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from tracellm.engine.config.errors import InvalidRequestError, first_line
from tracellm.engine.multimodal.cache import MultiModalProcessorCache
from tracellm.engine.multimodal.hasher import MultiModalHasher
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
from tracellm.engine.multimodal.parse import MultiModalDataDict, MultiModalDataItems, MultiModalDataParser

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.config.vllm_config import ModelConfig

__all__ = ["BaseMultiModalProcessor", "MultiModalInputs", "PromptReplacement"]

_MOST_IDENTIFIERS = 4096


class MultiModalInputs(TypedDict):
    """Result of `BaseMultiModalProcessor.apply`."""

    prompt_token_ids: list[int]
    """Token ids with a token for each embedding."""
    mm_features: list[MultiModalFeatureSpec]
    """The items in the order of their places in the prompt."""


@dataclass(frozen=True)
class PromptReplacement:
    """Replacement of the placeholders of a modality."""

    modality: str
    target: int
    """Token id of the placeholder."""
    replacement: Callable[[MultiModalKwargsItem], list[int]]
    """Function from a processed item to the tokens in its place; each is replaced by an embedding."""


class BaseMultiModalProcessor(ABC):
    """Processor of a model's images and sounds. Used by the `InputPreprocessor`."""

    def __init__(self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """Load what transformers needs for the checkpoint.

        Raises:
            ModelLoadError: a file of the checkpoint is missing or damaged.
            EngineError: a library of `tracellm[multimodal]` is missing.
        """
        assert model_config.multimodal_config is not None
        self.model_config = model_config
        self.config = model_config.multimodal_config
        self.hf_config: Any = model_config.hf_config
        self.tokenizer = tokenizer
        self.cache = MultiModalProcessorCache(self.config.mm_processor_cache_gb)
        self._num_tokens: dict[str, int] = {}
        """Tokens of the latest items, by their identifiers."""
        self.data_parser = self._get_data_parser()
        self._replacements = {update.modality: update for update in self._get_prompt_updates()}

    # -- of each model ------------------------------------------------------------------------------------------------
    @abstractmethod
    def _get_prompt_updates(self) -> Sequence[PromptReplacement]:
        """Return the replacement for each modality that the model takes."""

    @abstractmethod
    def _call_hf_processor(
        self, modality: str, items: list[Any], mm_kwargs: Mapping[str, Any]
    ) -> list[MultiModalKwargsItem]:
        """Process items with transformers; return the tensors of each."""

    @abstractmethod
    def get_placeholder_str(self, modality: str, number: int) -> str:
        """Return the text of the placeholder of a modality's item, by its number from 1."""

    @abstractmethod
    def get_max_tokens_per_item(self) -> dict[str, int]:
        """Return the largest number of tokens of an item, by modality."""

    def _get_data_parser(self) -> MultiModalDataParser:
        """Return the parser of the model's items."""
        return MultiModalDataParser()

    # -- a prompt -----------------------------------------------------------------------------------------------------
    @property
    def modalities(self) -> list[str]:
        """The kinds of items that the model takes."""
        return list(self._replacements)

    def apply(
        self,
        prompt_token_ids: list[int],
        mm_data: MultiModalDataDict,
        hf_processor_mm_kwargs: Mapping[str, Any],
        mm_uuids: Mapping[str, Any] | None = None,
    ) -> MultiModalInputs:
        """Process a prompt with items.

        Args:
            prompt_token_ids: the tokens, with one placeholder for each item.
            mm_data: the items.
            hf_processor_mm_kwargs: arguments for transformers' processor, such as `min_pixels`.
            mm_uuids: identifiers by modality, instead of hashes; None for an item that is to be hashed.

        Raises:
            InvalidRequestError: an item cannot be used, or items and placeholders do not correspond.
        """
        mm_items = self._to_mm_items(mm_data)
        mm_hashes = self._hash_mm_items(mm_items, hf_processor_mm_kwargs, mm_uuids)
        mm_kwargs = self._cache_apply_hf_processor(mm_items, mm_hashes, hf_processor_mm_kwargs)
        return self._maybe_apply_prompt_updates(prompt_token_ids, mm_kwargs, mm_hashes)

    def _to_mm_items(self, mm_data: MultiModalDataDict) -> MultiModalDataItems:
        """Check the items, and bring them into one form for each modality.

        Raises:
            InvalidRequestError: an item is malformed, of a kind that the model does not take, or one too many.
        """
        mm_items = self.data_parser.parse_mm_data(mm_data)
        for modality, items in mm_items.items():
            if modality not in self._replacements:
                raise InvalidRequestError(
                    f"The prompt has {_items(len(items), modality)}, but the model "
                    f"`{self.model_config.served_model_name}` takes only {' and '.join(self.modalities)} items."
                )
            limit = self.config.get_limit_per_prompt(modality)
            if len(items) > limit:
                raise InvalidRequestError(
                    f"The prompt has {_items(len(items), modality)}: at most {limit} {modality}(s) may be provided in "
                    "one prompt (`limit_mm_per_prompt`)."
                )
        return mm_items

    def _hash_mm_items(
        self, mm_items: MultiModalDataItems, mm_kwargs: Mapping[str, Any], mm_uuids: Mapping[str, Any] | None
    ) -> dict[str, list[str]]:
        """Return the identifier of each item: the caller's, or a hash of model, contents and arguments."""
        hashes: dict[str, list[str]] = {}
        for modality, items in mm_items.items():
            uuids = _uuids(modality, len(items), mm_uuids)
            hashes[modality] = [
                uuid
                if uuid is not None and not mm_kwargs
                else MultiModalHasher.hash_kwargs(
                    model_id=self.model_config.model, **{modality: item if uuid is None else uuid}, mm_kwargs=mm_kwargs
                )
                for item, uuid in zip(items, uuids, strict=True)
            ]
        return hashes

    def _cache_apply_hf_processor(
        self, mm_items: MultiModalDataItems, mm_hashes: Mapping[str, list[str]], mm_kwargs: Mapping[str, Any]
    ) -> dict[str, list[MultiModalKwargsItem]]:
        """Return the processed items, by modality; only those that the cache lacks are processed.

        Raises:
            InvalidRequestError: transformers refuses an item.
        """
        processed: dict[str, list[MultiModalKwargsItem]] = {}
        for modality, items in mm_items.items():
            by_hash = dict(zip(mm_hashes[modality], items, strict=True))
            found = {mm_hash: item for mm_hash in by_hash if (item := self.cache.get(mm_hash)) is not None}
            missing = {mm_hash: item for mm_hash, item in by_hash.items() if mm_hash not in found}
            if missing:
                try:
                    new = self._call_hf_processor(modality, list(missing.values()), mm_kwargs)
                except InvalidRequestError:
                    raise
                except Exception as error:  # arguments and items can make transformers raise anything
                    raise InvalidRequestError(f"An {modality} cannot be processed: {first_line(error)}") from None
                for mm_hash, processed_item in zip(missing, new, strict=True):
                    self.cache.put(mm_hash, processed_item)
                    found[mm_hash] = processed_item
            processed[modality] = [found[mm_hash] for mm_hash in mm_hashes[modality]]
        return processed

    def _maybe_apply_prompt_updates(
        self,
        prompt_token_ids: list[int],
        mm_kwargs: Mapping[str, list[MultiModalKwargsItem]],
        mm_hashes: Mapping[str, list[str]],
    ) -> MultiModalInputs:
        """Replace each placeholder by its item's tokens.

        Raises:
            InvalidRequestError: the prompt has more placeholders than items of a modality, or fewer.
        """
        self.validate_placeholders(prompt_token_ids, {modality: len(items) for modality, items in mm_kwargs.items()})
        modality_of = {update.target: update.modality for update in self._replacements.values()}
        used = dict.fromkeys(self._replacements, 0)
        token_ids: list[int] = []
        features: list[MultiModalFeatureSpec] = []
        for token in prompt_token_ids:
            modality = modality_of.get(token)
            if modality is None:
                token_ids.append(token)
                continue
            index = used[modality]
            used[modality] += 1
            item = mm_kwargs[modality][index]
            tokens = self._replacements[modality].replacement(item)
            identifier = mm_hashes[modality][index]
            self._check_size(identifier, modality, len(tokens))
            features.append(
                MultiModalFeatureSpec(
                    data=item,
                    modality=modality,
                    identifier=identifier,
                    mm_position=PlaceholderRange(len(token_ids), len(tokens)),
                )
            )
            token_ids += tokens
        return MultiModalInputs(prompt_token_ids=token_ids, mm_features=features)

    def _check_size(self, identifier: str, modality: str, num_tokens: int) -> None:
        """Check that an identifier that a caller chose stands for items of one size, as the encoder cache needs.

        Raises:
            InvalidRequestError: an earlier item with it had another number of tokens.
        """
        before = self._num_tokens.setdefault(identifier, num_tokens)
        if before != num_tokens:
            raise InvalidRequestError(
                f'The {modality} item named {identifier!r} in "multi_modal_uuids" has {num_tokens} tokens, but an '
                f"earlier one of this name had {before}: equal names must stand for equal items."
            )
        if len(self._num_tokens) > _MOST_IDENTIFIERS:
            del self._num_tokens[next(iter(self._num_tokens))]

    def validate_placeholders(self, prompt_token_ids: list[int], num_items: Mapping[str, int]) -> None:
        """Check that a prompt has one placeholder for each item.

        Raises:
            InvalidRequestError: it has more or fewer.
        """
        for modality, update in self._replacements.items():
            placeholders, items = prompt_token_ids.count(update.target), num_items.get(modality, 0)
            if placeholders != items:
                name = None if self.tokenizer is None else self.tokenizer.convert_ids_to_tokens(update.target)
                raise InvalidRequestError(
                    f"The prompt has {placeholders} placeholder{'' if placeholders == 1 else 's'} for {modality} items "
                    f"({name or f'token {update.target}'}), and {_items(items, modality)}: there must be one for each."
                )


def _items(number: int, modality: str) -> str:
    return f"{number} {modality} item{'' if number == 1 else 's'}"


def _uuids(modality: str, number: int, mm_uuids: Mapping[str, Any] | None) -> list[str | None]:
    """Return the caller's identifier of each item, or None."""
    given = (mm_uuids or {}).get(modality)
    if given is None:
        return [None] * number
    uuids = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(uuids) != number or not all(uuid is None or (isinstance(uuid, str) and uuid) for uuid in uuids):
        raise InvalidRequestError(
            f'"multi_modal_uuids" must have a name or None for each of the {_items(number, modality)}, got {given!r}.'
        )
    return uuids

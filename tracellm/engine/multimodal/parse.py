"""Items of a prompt: a caller's `multi_modal_data`, checked and brought into one form for each modality.

In a request's life: `BaseMultiModalProcessor._to_mm_items`, before hashing and processing. An image becomes an RGB
`PIL.Image`, a sound a float32 array of one channel at the model's sampling rate.

vLLM: vllm/multimodal/parse.py::MultiModalDataParser. Left out: video, embeddings as input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.libraries import require_extra
from tracellm.engine.config.multimodal import MODALITIES

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MOST_PIXELS", "MultiModalDataDict", "MultiModalDataItems", "MultiModalDataParser"]

MultiModalDataDict: TypeAlias = Mapping[str, Any]
"""`{"image": item or list of items, "audio": ...}`, as callers write it."""

MultiModalDataItems: TypeAlias = dict[str, list[Any]]
"""Items by modality: `PIL.Image.Image` in RGB, or float32 arrays [samples]."""

MOST_PIXELS = 89_478_485
"""Largest image in pixels, 256 MiB in RGB: the size at which Pillow warns of a decompression bomb."""
_MOST_SECONDS = 30 * 60
_RATES = (1_000, 384_000)


class MultiModalDataParser:
    """Parser for the items of one model."""

    def __init__(self, sampling_rate: int | None = None) -> None:
        """Create it for a model that takes sound at `sampling_rate` Hz; None for a model without sound."""
        self.sampling_rate = sampling_rate
        self._parsers: dict[str, Callable[[Any, str], Any]] = {"image": _parse_image, "audio": self._parse_audio}

    def parse_mm_data(self, mm_data: MultiModalDataDict) -> MultiModalDataItems:
        """Return the items of each modality that has any, in the given order.

        Raises:
            InvalidRequestError: a modality is unknown, or an item cannot be used; the message names it.
            EngineError: a library of `tracellm[multimodal]` is missing.
        """
        items: MultiModalDataItems = {}
        for modality, given in mm_data.items():
            parse = self._parsers.get(modality)
            if parse is None:
                raise InvalidRequestError(
                    f'"multi_modal_data" has {modality!r}; the kinds of items are {", ".join(MODALITIES)}.'
                )
            several = given if _is_list(given, modality) else [] if given is None else [given]
            parsed = [parse(item, f"{modality} {number}") for number, item in enumerate(several)]
            if parsed:
                items[modality] = parsed
        return items

    def _parse_audio(self, item: Any, label: str) -> np.ndarray:
        """Return the samples of one channel at the model's sampling rate, float32 [samples]."""
        if isinstance(item, tuple) and len(item) == 2:
            samples, rate = item
        else:
            samples, rate = item, self.sampling_rate or 16_000
        array = np.asarray(samples)
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
            raise InvalidRequestError(
                f"{label} must be samples, an array of numbers, or (samples, sampling rate), got "
                f"{type(samples).__name__} of shape {array.shape}."
            )
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not _RATES[0] <= rate <= _RATES[1]:
            raise InvalidRequestError(
                f"{label}: the sampling rate must be {_RATES[0]} to {_RATES[1]} Hz, got {rate!r}."
            )
        if array.dtype.kind in "iu":
            array = array / np.float32(np.iinfo(array.dtype).max)
        array = array.astype(np.float32)
        if array.ndim == 2:  # channels are the shorter axis
            array = array.mean(axis=0 if array.shape[0] < array.shape[1] else 1)
        if not np.isfinite(array).all():
            raise InvalidRequestError(f"{label} has samples that are NaN or infinite.")
        if len(array) > _MOST_SECONDS * rate:
            raise InvalidRequestError(
                f"{label} is {len(array) / rate / 60:.0f} minutes long; at most {_MOST_SECONDS // 60} are accepted."
            )
        return _resample(array, float(rate), float(self.sampling_rate or rate))


def _is_list(given: Any, modality: str) -> bool:
    """Return whether several items were given; a list of numbers, or (samples, rate), is one sound."""
    if modality == "audio" and isinstance(given, (list, tuple)):
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], (int, float))
        return not is_pair and not (given and isinstance(given[0], (int, float)))
    return isinstance(given, (list, tuple))


def _parse_image(item: Any, label: str) -> Image:
    """Return an image in RGB; transparent pixels are laid on white."""
    require_extra("PIL", "multimodal")
    from PIL import Image

    if isinstance(item, np.ndarray):
        item = _image_of_array(item, label)
    if not isinstance(item, Image.Image):
        raise InvalidRequestError(
            f"{label} must be a PIL image or a uint8 array [height, width, 3], got {type(item).__name__}."
        )
    width, height = item.size
    if width < 1 or height < 1:
        raise InvalidRequestError(f"{label} has no pixels: it is {width} x {height}.")
    if width * height > MOST_PIXELS:
        raise InvalidRequestError(f"{label} is too large: {width} x {height} is more than {MOST_PIXELS} pixels.")
    if (frames := getattr(item, "n_frames", 1)) > 1:
        raise InvalidRequestError(f"{label} is animated, with {frames} frames; give one of them.")
    try:
        item.load()
        if item.mode in ("RGBA", "LA", "PA") or "transparency" in item.info:
            opaque = Image.new("RGBA", item.size, "white")
            opaque.alpha_composite(item.convert("RGBA"))
            item = opaque
        return item.convert("RGB")
    except Exception as error:  # a damaged file can raise anything in Pillow
        raise InvalidRequestError(f"{label} cannot be decoded: {error}") from None


def _image_of_array(array: np.ndarray, label: str) -> Image:
    from PIL import Image

    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise InvalidRequestError(
            f"{label} must be a uint8 array [height, width, 3], got {array.dtype} {list(array.shape)}."
        )
    if not array.size:
        raise InvalidRequestError(f"{label} has no pixels: its shape is {list(array.shape)}.")
    return Image.fromarray(array)


def _resample(samples: np.ndarray, rate: float, target: float) -> np.ndarray:
    """Return the samples at another rate."""
    if rate == target:
        return samples
    require_extra("soxr", "multimodal")
    import soxr

    resampled: np.ndarray = soxr.resample(samples, rate, target)
    return resampled.astype(np.float32)

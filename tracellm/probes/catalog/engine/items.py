"""Images and sounds: what the items of a request are, and which of them a step encodes.

`BaseMultiModalProcessor._hash_mm_items` has the checked items and their identifiers; a later vLLM has both in
`_cached_apply_hf_processor`. The capture keeps sizes, and a copy of each image of at most 96 pixels on a side. They
wait in the tracker until a request with the identifier is submitted, whose `mm_features` have the places in the prompt.
For a text model nothing is recorded here.

vLLM: vllm/multimodal/processing.py, vllm/v1/core/sched/scheduler.py, vllm/v1/core/encoder_cache_manager.py.
"""

import json
from base64 import b64encode
from io import BytesIO
from typing import Any

from tracellm.probes.catalog.entries import argument, ours_only, plain, vllm_only
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "encoder_attributes", "item_attributes", "item_places", "note_cached", "scheduled_items"]

_SIDE = 96
"""Most pixels on a side of a small picture."""
_MOST_CHARACTERS = 6_000
"""Most characters of its data URL."""
_QUALITIES = (85, 70, 50, 30, 15)
"""Qualities of JPEG, from the best; the first is taken that is small enough."""
_MOST_KEPT = 512
"""Items, and requests with items, that are kept until the requests are submitted."""
_MOST_IDENTIFIER = 12
_BILINEAR = 2  # PIL.Image.Resampling.BILINEAR

# -- the processor ----------------------------------------------------------------------------------------------------


def _capture_hashes(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return _capture_items(args[0], argument(args, kwargs, 1, "mm_items"), result)


def _capture_processed(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the items of vLLM's ProcessorInputs; in 0.11.1 the argument is a prompt, without them."""
    items = getattr(argument(args, kwargs, 1, "inputs"), "mm_data_items", None)
    return [] if items is None else _capture_items(args[0], items, result.hashes)


def _capture_items(processor: Any, items: Any, identifiers: Any) -> list[tuple[Any, ...]]:
    """Return identifier, width and height of each image with its small copy, or the seconds of each sound."""
    rate = getattr(getattr(processor, "data_parser", None), "sampling_rate", None) or 16_000
    facts: list[tuple[Any, ...]] = []
    for modality, several in items.items():
        for item, identifier in zip(several, identifiers[modality], strict=True):
            if modality == "image" and hasattr(item, "resize"):  # vLLM: may be an array, or embeddings
                facts.append((identifier, *_small_copy(item)))
            elif modality == "audio" and hasattr(item, "__len__"):
                facts.append((identifier, len(item) / rate, None))
    return facts


def _small_copy(image: Any) -> tuple[tuple[int, int], tuple[int, int, bytes]]:
    """Return the size of an image; size and RGB pixels of its small copy."""
    longest = max(image.size)
    if longest > _SIDE:
        size = [max(1, round(length * _SIDE / longest)) for length in image.size]
        small = image.resize(size, _BILINEAR, reducing_gap=2.0)
    else:
        small = image
    return image.size, (*small.size, small.convert("RGB").tobytes())


def _hashes(facts: Any) -> dict[str, Any]:
    return {names.RESULT: ", ".join(identifier[:_MOST_IDENTIFIER] for identifier, *_ in facts)} if facts else {}


def _note_items(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Keep size, small picture and seconds of items until their requests are submitted."""
    for identifier, size, pixels in facts or ():
        item: dict[str, Any] = {"seconds": round(size, 3)} if pixels is None else {"size": list(size)}
        if pixels is not None and tracker.text and "picture" not in tracker.items.get(identifier, {}):
            item["picture"] = _data_url(*pixels)
        _keep(tracker.items, identifier, item)


def _keep(table: dict[str, dict[str, Any]], key: str, facts: dict[str, Any]) -> None:
    """Add facts to an entry of a table of bounded size; the oldest entry goes."""
    table[key] = table.pop(key, {}) | facts
    if len(table) > _MOST_KEPT:
        del table[next(iter(table))]


def _data_url(width: int, height: int, pixels: bytes) -> str:
    """Return a picture as the data URL of a JPEG; empty if Pillow is missing here, or it is too large."""
    try:
        from PIL import Image
    except ImportError:  # a recording of another machine
        return ""
    image = Image.frombytes("RGB", (width, height), pixels)
    for quality in _QUALITIES:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        url = f"data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"
        if len(url) <= _MOST_CHARACTERS:
            return url
    return ""


def _capture_cached(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return argument(args, kwargs, 1, "mm_hash"), result is not None


def note_cached(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Keep which items of a request were in the cache; `span` is the call of `Processor.process_inputs`."""
    if child_facts:
        passed = dict(argument.split("=", 1) for argument in span.attributes[names.ARGUMENTS])
        _keep(tracker.cached_items, passed["request_id"], child_facts)


def _cached(facts: Any) -> dict[str, Any]:
    identifier, found = facts
    return {names.ARGUMENTS: [f"mm_hash={identifier[:_MOST_IDENTIFIER]}"], names.RESULT: "found" if found else "None"}


# -- a request --------------------------------------------------------------------------------------------------------


_Place = tuple[str, int, int, str, list[int] | None]


def item_places(request: Any) -> list[_Place]:
    """Return modality, offset, length, identifier and grid of patches, if any, of each item of an EngineCoreRequest."""
    return [
        (item.modality, item.mm_position.offset, item.mm_position.length, item.identifier, _patches(item.data))
        for item in getattr(request, "mm_features", None) or ()
    ]


def _patches(data: Any) -> list[int] | None:
    """Return the patches of an image along time, height and width, if its tensors have them."""
    if data is None or (grid := data.get("image_grid_thw")) is None:
        return None
    values: Any = grid.data.tolist()  # of a tensor, an array, or vLLM's element with either
    while isinstance(values, list) and len(values) == 1:
        (values,) = values
    return values if isinstance(values, list) and len(values) == 3 else None


def item_attributes(places: list[_Place], items: dict[str, dict[str, Any]], cached: dict[str, bool]) -> dict[str, Any]:
    """Return the attributes of a request's span about its items.

    Args:
        places: what `item_places` returned for the request.
        items: what the tracker has of items, by identifier; the patches are added.
        cached: whether the processor had these items in its cache, by identifier.
    """
    found, pictures = [], []
    for modality, offset, length, identifier, patches in places:
        known = items.get(identifier, {})
        if patches is not None:
            known["patches"] = patches  # vLLM does not send the tensors of a cached item again
        item = {"modality": modality, "offset": offset, "length": length, "identifier": identifier[:_MOST_IDENTIFIER]}
        item |= {name: known[name] for name in ("size", "seconds", "patches") if name in known}
        if identifier in cached:
            item["cached"] = cached[identifier]
        found.append(json.dumps(item))
        pictures.append(known.get("picture", ""))
    attributes: dict[str, Any] = {names.REQUEST_ITEMS: found}
    return {**attributes, names.REQUEST_PICTURES: pictures} if any(pictures) else attributes


# -- a step -----------------------------------------------------------------------------------------------------------


def scheduled_items(scheduler: Any, output: Any) -> dict[str, Any] | None:
    """Return the items that a step encodes, and the encoder cache after its scheduling; None for a text model."""
    budget = scheduler.max_num_encoder_input_tokens
    if not budget:
        return None
    manager = scheduler.encoder_cache_manager
    return {
        "items": [
            (request_id, index, scheduler.requests[request_id].mm_features[index].mm_position.length)
            for request_id, indices in output.scheduled_encoder_inputs.items()
            for index in indices
        ],
        "budget": budget,
        "size": manager.cache_size,
        "free": manager.num_free_slots,
        "freeable": getattr(manager, "num_freeable_slots", 0),  # vLLM: not for encoder-decoder models
        "evicted": list(output.free_encoder_mm_hashes),
    }


def encoder_attributes(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a step's span, from the result of `scheduled_items`."""
    attributes: dict[str, Any] = {}
    if facts["items"]:
        columns = (names.STEP_ENCODER_REQUESTS, names.STEP_ENCODER_ITEMS, names.STEP_ENCODER_TOKENS)
        attributes = {
            name: list(column) for name, column in zip(columns, zip(*facts["items"], strict=True), strict=True)
        }
    attributes[names.STEP_ENCODER_BUDGET] = facts["budget"]
    attributes[names.STEP_ENCODER_CACHE_SIZE] = facts["size"]
    attributes[names.STEP_ENCODER_CACHE_FREE] = facts["free"]
    attributes[names.STEP_ENCODER_CACHE_FREEABLE] = max(facts["freeable"] - facts["free"], 0)
    if facts["evicted"]:
        attributes[names.STEP_ENCODER_EVICTED] = [identifier[:_MOST_IDENTIFIER] for identifier in facts["evicted"]]
    return attributes


_PROCESSOR = "multimodal.processing:BaseMultiModalProcessor"

ENTRIES = (
    *plain("request", _PROCESSOR, "apply", "_maybe_apply_prompt_updates"),
    *plain("request", _PROCESSOR, "_to_mm_items", removed="0.32.0"),
    *plain(
        "request",
        _PROCESSOR,
        "_hash_mm_items",
        removed="0.32.0",
        capture=_capture_hashes,
        attributes=_hashes,
        observe=_note_items,
    ),
    *ours_only("request", _PROCESSOR, "_cache_apply_hf_processor"),
    *vllm_only(
        "request",
        _PROCESSOR,
        "_cached_apply_hf_processor",
        capture=_capture_processed,
        attributes=_hashes,
        observe=_note_items,
    ),
    *ours_only(
        "request",
        "multimodal.cache:MultiModalProcessorCache",
        "get",
        capture=_capture_cached,
        attributes=_cached,
        gives=lambda facts: {facts[0]: facts[1]},
        gives_to="Processor.process_inputs",
    ),
)

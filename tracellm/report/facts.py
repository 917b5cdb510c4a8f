"""What a run's spans tell besides calls: the client that was chosen, the model loaded, its cache, the requests.

Each fact is gathered from the attributes that `tracellm.trace.names` defines, on whichever span carries them, so a
reader of facts needs no knowledge of the calls behind them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN, steps

__all__ = [
    "ClientChoice",
    "KVCache",
    "LoadStage",
    "ModelLoad",
    "RequestFacts",
    "RequestTimes",
    "client_choice",
    "engine_config",
    "kv_cache",
    "model_load",
    "request_times",
    "requests",
    "tells_of_startup",
]


@dataclass(frozen=True, slots=True)
class ClientChoice:
    """`EngineCoreClient.make_client`'s three inputs and what it picked (vLLM: vllm/v1/engine/core_client.py)."""

    multiprocess_mode: bool
    asyncio_mode: bool
    executor_class: str
    choice: str


@dataclass(frozen=True, slots=True)
class LoadStage:
    """One of the three stages of loading: `find` the files, `read` them into memory, `place` them on the device."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """What was loaded, from where, to where; None where the recording does not tell."""

    source: str | None
    architecture: str | None
    files: tuple[str, ...]
    bytes: int | None
    tensors: int | None
    parameters: int | None
    dtype: str | None
    device: str | None
    stages: tuple[LoadStage, ...]


@dataclass(frozen=True, slots=True)
class KVCache:
    """The KV cache: its blocks (the null block among them), tokens in a block, bytes in all and bytes there were.

    A token takes place in a block of each of the `num_groups` groups of layers.
    """

    num_blocks: int
    block_size: int
    num_groups: int
    bytes: int | None
    available_bytes: int | None


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """One request's life. `prompt` and `output` are None in a recording without text; `finish_reason` while it runs.

    `parent` is the request that this one makes the output `index` of, if that asked for several. `params` are those
    that were not left at their defaults, and the two that every reader asks for: max_tokens and temperature.
    """

    id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    output: str | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    seconds: float
    steps: int | None
    params: tuple[tuple[str, str], ...]
    error: str | None
    parent: str | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """How long a request was where, in seconds; None where it did not get that far.

    The same as vLLM's metrics of a request: `queued` until the step that first computed some of it began; `prefill`
    until the step that brought its first token ended; `decode` until that of its last one did. `first_token` is the
    time from its submission to its first token.
    """

    queued: float | None
    prefill: float | None
    decode: float | None
    first_token: float | None


def client_choice(spans: Iterable[Span]) -> ClientChoice | None:
    """The first client chosen, or None when the run did not get that far."""
    found = _first(spans, "tracellm.client.")
    if names.CLIENT_CHOICE not in found:
        return None
    return ClientChoice(
        multiprocess_mode=bool(found.get(names.CLIENT_MULTIPROCESS, False)),
        asyncio_mode=bool(found.get(names.CLIENT_ASYNCIO, False)),
        executor_class=str(found.get(names.CLIENT_EXECUTOR, "")),
        choice=str(found[names.CLIENT_CHOICE]),
    )


_FACTS = frozenset(
    name for name in names.ATTRIBUTES if name.startswith(("tracellm.client.", "tracellm.load.", "tracellm.kv_cache."))
)


def tells_of_startup(span: Span) -> bool:
    """Whether the span carries anything of the client, the model's loading or the KV cache; few do."""
    return not _FACTS.isdisjoint(span.attributes)


def _first(spans: Iterable[Span], prefix: str) -> dict[str, object]:
    """The attributes whose names begin so, each from the first span that carries it."""
    found: dict[str, object] = {}
    for span in filter(tells_of_startup, spans):
        for name, value in span.attributes.items():
            if name.startswith(prefix):
                found.setdefault(name, value)
    return found


_STAGES = {"find": names.LOAD_FILES, "read": names.LOAD_BYTES, "place": names.LOAD_DEVICE}
"""The attribute that tells a stage's span from the others: the first span, by its end, that carries it."""


def model_load(spans: Iterable[Span]) -> ModelLoad | None:
    """The model that was loaded, or None. Several models in one run: the first."""
    ended = sorted(filter(tells_of_startup, spans), key=lambda span: span.end_ns)
    found = _first(ended, "tracellm.load.")
    stages: dict[str, Span] = {}
    for span in ended:
        for stage, attribute in _STAGES.items():
            if attribute in span.attributes and stage not in stages and span not in stages.values():
                stages[stage] = span
    if not found:
        return None
    get = found.get
    return ModelLoad(
        source=_text(get(names.LOAD_SOURCE)),
        architecture=_text(get(names.LOAD_ARCHITECTURE)),
        files=tuple(map(str, _list(get(names.LOAD_FILES)))),
        bytes=_int(get(names.LOAD_BYTES)),
        tensors=_int(get(names.LOAD_TENSORS)),
        parameters=_int(get(names.LOAD_PARAMETERS)),
        dtype=_text(get(names.LOAD_DTYPE)),
        device=_text(get(names.LOAD_DEVICE)),
        stages=tuple(LoadStage(name, span.duration_ns / 1e9) for name, span in stages.items()),
    )


def kv_cache(spans: Iterable[Span]) -> KVCache | None:
    """The KV cache that was set up, or None."""
    found = _first(spans, "tracellm.kv_cache.")
    blocks, size = _int(found.get(names.KV_NUM_BLOCKS)), _int(found.get(names.KV_BLOCK_SIZE))
    if blocks is None or size is None:
        return None
    groups = _int(found.get(names.KV_NUM_GROUPS)) or 1
    return KVCache(blocks, size, groups, _int(found.get(names.KV_BYTES)), _int(found.get(names.KV_AVAILABLE)))


def engine_config(spans: Iterable[Span]) -> tuple[tuple[str, str], ...]:
    """The engine's settings, name and value, of the first span that carries them."""
    for span in spans:
        if config := span.attributes.get(names.CONFIG):
            return tuple((name, value) for name, _, value in (str(entry).partition("=") for entry in config))
    return ()


_PARAMETERS = (
    names.GEN_AI_MAX_TOKENS,
    names.GEN_AI_TEMPERATURE,
    names.GEN_AI_TOP_P,
    names.GEN_AI_TOP_K,
    names.GEN_AI_SEED,
    names.GEN_AI_STOP,
)


def requests(spans: Iterable[Span]) -> list[RequestFacts]:
    """Every request, in the order they were submitted."""
    spans = list(spans)
    # Where the engine core has a process of its own, only its steps know which requests took part.
    linked = Counter(link.span_id for span in spans if span.name == STEP_SPAN for link in span.links)
    return [_request(span, linked[span.span_id] or None) for span in spans if span.name == names.REQUEST_SPAN]


def request_times(trace: Trace) -> dict[str, RequestTimes]:
    """How long each request was queued, in prefill and in decode, by its id; as its steps tell it."""
    lives = {str(span.attributes.get(names.REQUEST_ID, "")): span for span in trace.named(names.REQUEST_SPAN)}
    began: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step in steps(trace):
        for request in step.requests:
            began.setdefault(request.request_id, step.span.start_ns)
        for sampled in step.sampled:
            first.setdefault(sampled.request_id, step.span.end_ns)
            last[sampled.request_id] = step.span.end_ns

    def between(start: int | None, end: int | None) -> float | None:
        return None if start is None or end is None else max(0, end - start) / 1e9

    return {
        id: RequestTimes(
            queued=between(life.start_ns, began.get(id)),
            prefill=between(began.get(id), first.get(id)),
            decode=between(first.get(id), last.get(id)),
            first_token=between(life.start_ns, first.get(id)),
        )
        for id, life in lives.items()
    }


def _params(span: Span) -> tuple[tuple[str, str], ...]:
    told = {name.rpartition(".")[2]: str(span.attributes[name]) for name in _PARAMETERS if name in span.attributes}
    if names.REQUEST_PARAMS in span.attributes:
        told = {name: value for name, value in told.items() if name in ("max_tokens", "temperature")}
        if n := span.attributes.get(names.GEN_AI_CHOICES):
            told["n"] = str(n)
        for listed in (names.REQUEST_PARAMS, names.REQUEST_TEXT_PARAMS):
            told |= {
                name: value
                for name, _, value in (str(one).partition("=") for one in _list(span.attributes.get(listed)))
            }
    if priority := span.attributes.get(names.REQUEST_PRIORITY):
        told["priority"] = str(priority)
    return tuple(told.items())


def _request(span: Span, linked_steps: int | None) -> RequestFacts:
    get = span.attributes.get
    reasons = _list(get(names.GEN_AI_FINISH_REASONS))
    return RequestFacts(
        id=str(get(names.REQUEST_ID, "")),
        prompt=_text(get(names.REQUEST_PROMPT)),
        prompt_token_ids=tuple(_list(get(names.REQUEST_PROMPT_TOKENS))),
        output=_text(get(names.REQUEST_OUTPUT)),
        input_tokens=_int(get(names.GEN_AI_INPUT_TOKENS)),
        output_tokens=_int(get(names.GEN_AI_OUTPUT_TOKENS)),
        finish_reason=str(reasons[0]) if reasons else None,
        seconds=span.duration_ns / 1e9,
        steps=_int(get(names.REQUEST_STEPS)) or linked_steps,
        params=_params(span),
        error=span.error,
        parent=_text(get(names.REQUEST_PARENT)),
        index=_int(get(names.REQUEST_INDEX)) or 0,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _list(value: object) -> list:  # type: ignore[type-arg]
    return value if isinstance(value, list) else []

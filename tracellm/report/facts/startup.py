"""Facts of a run's start-up: the chosen client, the loaded model, its KV cache, the settings.

Each fact is gathered from the attributes that `tracellm.trace.names` defines, on any span that has them, so reports do
not depend on the calls.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tracellm.report.facts.requests import as_int, as_list, as_text
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace

__all__ = [
    "MAKING_ENGINE",
    "ClientChoice",
    "KVCache",
    "LoadStage",
    "ModelLoad",
    "Setting",
    "client_choice",
    "engine_config",
    "is_about_startup",
    "kv_cache",
    "model_load",
    "startup_spans",
]


MAKING_ENGINE = "LLMEngine.from_engine_args"
"""The call around `make_client` that takes `multiprocess_mode`; None leaves the choice to the environment."""


@dataclass(frozen=True, slots=True)
class ClientChoice:
    """The three inputs of `EngineCoreClient.make_client` and its choice (vLLM: vllm/v1/engine/core_client.py)."""

    multiprocess_mode: bool
    asyncio_mode: bool
    executor_class: str
    choice: str
    is_real_vllm: bool = False
    """A real vLLM chose, not the engine of this project."""
    by_argument: bool | None = None
    """`multiprocess_mode` was passed as an argument; None where that is not recorded."""
    variable_set: bool | None = None
    """VLLM_ENABLE_V1_MULTIPROCESSING was set; None where that is not recorded."""


@dataclass(frozen=True, slots=True)
class LoadStage:
    """One stage of loading: `find` the files, `allocate` the parameters, `read` the weights into them.

    A real vLLM has `process` in place of `allocate`: after reading, it prepares the weights for its kernels.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """The loaded model; None for what was not recorded."""

    source: str | None
    architecture: str | None
    files: tuple[str, ...]
    bytes: int | None
    tensors: int | None
    parameters: int | None
    dtype: str | None
    device: str | None
    ops: str | None
    """The implementation of the layers' operations."""
    ops_reason: str | None
    """Reason for it, as a code (`OpsReason` in engine/config/vllm_config.py)."""
    compile_seconds: float | None
    """Time to compile the operations' kernels; None where they were not compiled in this run."""
    stages: tuple[LoadStage, ...]
    async_reason: str | None = None
    """Reason for asynchronous scheduling, as a code (`AsyncSchedulingReason` in engine/config/vllm_config.py); None
    without it."""


@dataclass(frozen=True, slots=True)
class KVCache:
    """The KV cache: blocks (the null block included), tokens per block, bytes of all blocks, and bytes available.

    A token takes a slot in a block of each of the `num_groups` groups of layers.
    """

    num_blocks: int
    block_size: int
    num_groups: int
    bytes: int | None
    available_bytes: int | None
    sliding_windows: tuple[int, ...] = ()
    """Sliding window of each group in tokens, 0 for full attention; empty if all are."""


def client_choice(spans: Iterable[Span]) -> ClientChoice | None:
    """Return the first client chosen, or None if the run did not get that far."""
    spans = list(spans)
    found = _first(spans, "tracellm.client.")
    if names.CLIENT_CHOICE not in found or names.CLIENT_MULTIPROCESS not in found:
        return None  # while a run goes on, `choose_client` is read before `make_client`, which has the inputs
    chooser = next(span for span in spans if names.CLIENT_CHOICE in span.attributes)
    return ClientChoice(
        multiprocess_mode=bool(found.get(names.CLIENT_MULTIPROCESS, False)),
        asyncio_mode=bool(found.get(names.CLIENT_ASYNCIO, False)),
        executor_class=str(found.get(names.CLIENT_EXECUTOR, "")),
        choice=str(found[names.CLIENT_CHOICE]),
        is_real_vllm=str(chooser.attributes.get(names.CODE_FUNCTION, "")).startswith("vllm."),
        by_argument=_by_argument(chooser, spans),
        variable_set=_variable_set(found),
    )


def _by_argument(chooser: Span, spans: Iterable[Span]) -> bool | None:
    """Return whether the call that made the engine, and in it the client, was passed `multiprocess_mode`."""
    for span in spans:
        if span.name == MAKING_ENGINE and _is_around(span, chooser):
            value = _settings(span, names.ARGUMENTS).get("multiprocess_mode")
            return None if value is None else value != "None"
    return None


def _variable_set(client: dict[str, object]) -> bool | None:
    is_set = client.get(names.CLIENT_VARIABLE_SET)
    return None if is_set is None else bool(is_set)


def _is_around(outer: Span, inner: Span) -> bool:
    return outer.process == inner.process and outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


def _settings(span: Span, attribute: str) -> dict[str, str]:
    """Return the settings of an attribute that lists them as `name=value`."""
    entries = (str(entry).partition("=") for entry in as_list(span.attributes.get(attribute)))
    return {name: value for name, _, value in entries}


_MAKING_LLM = ("LLM.__init__", "AsyncLLM.__init__")

_FACTS = frozenset(
    name
    for name in names.ATTRIBUTES
    if name.startswith(("tracellm.client.", "tracellm.load.", "tracellm.scheduler.", "tracellm.kv_cache."))
)


def is_about_startup(span: Span) -> bool:
    """Return whether the span has facts of the client, the model's loading or the KV cache; few do."""
    return not _FACTS.isdisjoint(span.attributes)


@per_trace
def startup_spans(trace: Trace) -> list[Span]:
    """Return the spans about the start-up; cached, since several reports need these few among a million."""
    return [
        span
        for span in trace.spans
        if span.name in (MAKING_ENGINE, *_MAKING_LLM) or names.CONFIG in span.attributes or is_about_startup(span)
    ]


def _first(spans: Iterable[Span], prefix: str) -> dict[str, object]:
    """Return the attributes whose names have this prefix, each from the first span that has it."""
    found: dict[str, object] = {}
    for span in filter(is_about_startup, spans):
        for name, value in span.attributes.items():
            if name.startswith(prefix):
                found.setdefault(name, value)
    return found


_STAGES = {"find": names.LOAD_FILES, "allocate": names.LOAD_DEVICE, "read": names.LOAD_BYTES}
"""Attribute that identifies a stage's span: the first span to end that has it; `process` has that of `allocate`."""


def model_load(spans: Iterable[Span]) -> ModelLoad | None:
    """Return the model that was loaded, the first of several, or None."""
    ended = sorted(filter(is_about_startup, spans), key=lambda span: span.end_ns)
    found = _first(ended, "tracellm.load.")
    stages: dict[str, Span] = {}
    for span in ended:
        for stage, attribute in _STAGES.items():
            if attribute in span.attributes and stage not in stages and span not in stages.values():
                stages[stage] = span
    if list(stages)[-2:] == ["read", "allocate"]:
        stages["process"] = stages.pop("allocate")
    if not found:
        return None
    get, scheduler = found.get, _first(ended, "tracellm.scheduler.")
    compiling = get(names.LOAD_COMPILE_SECONDS)
    asynchronous = scheduler.get(names.SCHEDULER_ASYNC) is True
    return ModelLoad(
        source=as_text(get(names.LOAD_SOURCE)),
        architecture=as_text(get(names.LOAD_ARCHITECTURE)),
        files=tuple(map(str, as_list(get(names.LOAD_FILES)))),
        bytes=as_int(get(names.LOAD_BYTES)),
        tensors=as_int(get(names.LOAD_TENSORS)),
        parameters=as_int(get(names.LOAD_PARAMETERS)),
        dtype=as_text(get(names.LOAD_DTYPE)),
        device=as_text(get(names.LOAD_DEVICE)),
        ops=as_text(get(names.LOAD_OPS)),
        ops_reason=as_text(get(names.LOAD_OPS_REASON)),
        compile_seconds=compiling if isinstance(compiling, float) else None,
        async_reason=as_text(scheduler.get(names.SCHEDULER_ASYNC_REASON)) if asynchronous else None,
        stages=tuple(LoadStage(name, span.duration_ns / 1e9) for name, span in stages.items()),
    )


def kv_cache(spans: Iterable[Span]) -> KVCache | None:
    """Return the KV cache that was set up, or None."""
    found = _first(spans, "tracellm.kv_cache.")
    blocks, size = as_int(found.get(names.KV_NUM_BLOCKS)), as_int(found.get(names.KV_BLOCK_SIZE))
    if blocks is None or size is None:
        return None
    groups = as_int(found.get(names.KV_NUM_GROUPS)) or 1
    windows = tuple(as_list(found.get(names.KV_WINDOWS)))
    used, available = as_int(found.get(names.KV_BYTES)), as_int(found.get(names.KV_AVAILABLE))
    return KVCache(blocks, size, groups, used, available, windows)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the engine; `origin` is argument, environment or default, or empty if not recorded."""

    name: str
    value: str
    origin: str


def engine_config(spans: Iterable[Span]) -> tuple[Setting, ...]:
    """Return the engine's settings, of the first span that has them."""
    spans = list(spans)
    found = next((span for span in spans if names.CONFIG in span.attributes), None)
    if found is None:
        return ()
    makers = (span for span in spans if span.name in _MAKING_LLM and _is_around(span, found))
    arguments = next((_settings(span, names.ARGUMENTS) for span in makers), None)
    if arguments is not None and "vllm_config" in arguments:  # made elsewhere, from arguments that are not recorded
        arguments = None
    ops_reason = _first(spans, "tracellm.load.").get(names.LOAD_OPS_REASON)
    variable_set = _variable_set(_first(spans, "tracellm.client."))
    return tuple(
        Setting(name, value, _origin(name, arguments, ops_reason, variable_set))
        for name, value in _settings(found, names.CONFIG).items()
    )


def _origin(name: str, arguments: dict[str, str] | None, ops_reason: object, variable_set: bool | None) -> str:
    if name == "VLLM_ENABLE_V1_MULTIPROCESSING" and variable_set is not None:
        return "environment" if variable_set else "default"
    if name == "attention_backend" and ops_reason in ("argument", "environment"):
        return str(ops_reason)
    if arguments is None or name.isupper():  # another variable: only its value is recorded
        return ""
    return "argument" if arguments.get(name, "None") != "None" else "default"

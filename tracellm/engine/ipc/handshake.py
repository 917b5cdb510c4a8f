"""What a client and the engine process say to each other once, before the first request.

The engine process says HELLO as soon as it runs. The client answers with the addresses of the sockets for requests and
outputs (`EngineHandshakeMetadata`). Then the engine core loads the model and says READY, with the number of KV blocks;
or FAILED, with its error, which the client raises as its own.

vLLM: vllm/v1/engine/utils.py and EngineCoreProc.startup_handshake. Added: FAILED, and the groups of the KV cache in
READY, by which a client refuses what can never run before it is sent. Left out: data parallelism.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from tracellm.engine.config.errors import EngineError, InvalidRequestError, ModelLoadError, format_error
from tracellm.engine.core.kv_cache.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)

__all__ = [
    "ENGINE_CORE_DEAD",
    "EngineHandshakeMetadata",
    "EngineZmqAddresses",
    "engine_identity",
    "failed_message",
    "kv_cache_config_of",
    "ready_message",
    "startup_error",
]

ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""In place of an output: no more will come. A second frame says why, in words; vLLM sends none."""

_IDENTITY_BYTES = 2

_SPECS: dict[str, type[AttentionSpec]] = {spec.__name__: spec for spec in (FullAttentionSpec, SlidingWindowSpec)}
_ERRORS: dict[str, type[EngineError]] = {
    error.__name__: error for error in (EngineError, InvalidRequestError, ModelLoadError)
}


def engine_identity(engine_index: int) -> bytes:
    """The name of an engine core among those who speak to a client's ROUTER."""
    return engine_index.to_bytes(_IDENTITY_BYTES, byteorder="little")


@dataclass
class EngineZmqAddresses:
    """Where the sockets of the clients are: one of each kind for each client."""

    inputs: list[str]
    """For requests: the engine core listens."""
    outputs: list[str]
    """For outputs: the client listens."""


@dataclass
class EngineHandshakeMetadata:
    """The client's answer to HELLO."""

    addresses: EngineZmqAddresses
    parallel_config: dict[str, int | str] = field(default_factory=dict)
    """For data parallelism: empty."""


def ready_message(kv_cache_config: KVCacheConfig, local_client: bool) -> bytes:
    """READY, with the KV cache."""
    groups = []
    for group in kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        fields = asdict(spec) | {"dtype": str(spec.dtype).removeprefix("torch.")}
        groups.append({"kind": type(spec).__name__, "layer_names": group.layer_names, "spec": fields})
    ready = {
        "status": "READY",
        "local": local_client,
        "headless": not local_client,
        "num_gpu_blocks": kv_cache_config.num_blocks,
        "dp_stats_address": None,
        "kv_cache_groups": groups,
    }
    return msgspec.msgpack.encode(ready)


def kv_cache_config_of(ready: dict[str, Any]) -> KVCacheConfig:
    """The KV cache that READY tells of. Its tensors are not in it: they are the engine core's own."""
    import torch

    groups = [
        KVCacheGroupSpec(
            group["layer_names"],
            _SPECS[group["kind"]](**group["spec"] | {"dtype": getattr(torch, group["spec"]["dtype"])}),
        )
        for group in ready["kv_cache_groups"]
    ]
    return KVCacheConfig(num_blocks=ready["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=groups)


def failed_message(error: BaseException) -> bytes:
    """FAILED: what kept the engine core from starting."""
    kind = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS), None)
    return msgspec.msgpack.encode({"status": "FAILED", "error": kind, "message": format_error(error)})


def startup_error(failed: dict[str, Any]) -> EngineError | None:
    """The error that FAILED tells of, as it would have been raised in this process; None: it was no `EngineError`."""
    return _ERRORS[failed["error"]](failed["message"]) if failed["error"] else None

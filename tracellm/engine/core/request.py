"""A request inside the engine core, from its arrival to its end.

`EngineCore.preprocess_add_request` creates it from an `EngineCoreRequest`. The scheduler moves it between its queues,
appends the sampled tokens and drops it when it ends. Workers receive `NewRequestData` and `CachedRequestData` instead.

vLLM: vllm/v1/request.py.
"""

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tracellm.engine.core.structured_output.request import StructuredOutputRequest
from tracellm.engine.ipc.messages import EngineCoreEvent, EngineCoreEventType, EngineCoreRequest, FinishReason
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from tracellm.engine.core.kv_cache.kv_cache_utils import BlockHash

__all__ = ["Request", "RequestStatus"]


class RequestStatus(enum.IntEnum):
    """State of a request; everything after PREEMPTED is final.

    vLLM: vllm/v1/request.py::RequestStatus. Left out: waiting for a remote KV cache, FINISHED_IGNORED.
    """

    WAITING = enum.auto()
    WAITING_FOR_FSM = enum.auto()
    """Waiting for its grammar to be compiled; FSM is vLLM's name for a grammar here, a finite-state machine."""
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    """Waiting to be recomputed, as its blocks went to another request."""
    FINISHED_STOPPED = enum.auto()
    FINISHED_LENGTH_CAPPED = enum.auto()
    FINISHED_ABORTED = enum.auto()
    FINISHED_ERROR = enum.auto()
    """Failed, without harm to other requests; `stop_reason` is the error. In vLLM only after 0.11.1."""

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def is_finished(status: "RequestStatus") -> bool:
        """Return whether the status is final."""
        return status > RequestStatus.PREEMPTED

    @staticmethod
    def get_finished_reason(status: "RequestStatus") -> FinishReason | None:
        """Return the finish reason for the client, or None if the status is not final."""
        return _FINISHED_REASON_MAP.get(status)


_FINISHED_REASON_MAP = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
}


class Request:
    """A request: its tokens, the number of computed ones, and its parameters.

    Compared by identity; `<` is the order of the priority policy.

    vLLM: vllm/v1/request.py::Request. Left out: prompt embeddings, LoRA, speculative tokens, KV transfer.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        sampling_params: SamplingParams | None,
        eos_token_id: int | None,
        client_index: int = 0,
        arrival_time: float | None = None,
        mm_features: list[MultiModalFeatureSpec] | None = None,
        cache_salt: str | None = None,
        priority: int = 0,
        block_hasher: Callable[["Request"], list["BlockHash"]] | None = None,
        trace_headers: Mapping[str, str] | None = None,
        pooling_params: PoolingParams | None = None,
    ) -> None:
        params = sampling_params or pooling_params
        assert params is not None, "a request has either"
        self.request_id = request_id
        self.client_index = client_index
        self.priority = priority
        self.trace_headers = trace_headers
        """W3C trace context of the caller, returned with every output."""
        self.sampling_params = sampling_params
        """None for pooling."""
        self.pooling_params = pooling_params
        """None for generation."""
        self.max_tokens = 0
        """Maximum number of tokens to generate."""
        if sampling_params is not None:
            assert sampling_params.max_tokens is not None, "set by the Processor"
            self.max_tokens = sampling_params.max_tokens
        self.eos_token_id = eos_token_id
        self.arrival_time = time.time() if arrival_time is None else arrival_time

        # Log probabilities of the prompt need the logits of all its tokens, so none of them may be skipped.
        self.skip_reading_prefix_cache = bool(params.skip_reading_prefix_cache)

        self.structured_output_request = StructuredOutputRequest.from_sampling_params(sampling_params)
        """Constraint and grammar, or None for an unconstrained output."""
        self.status = RequestStatus.WAITING_FOR_FSM if self.use_structured_output else RequestStatus.WAITING
        self.stop_reason: int | str | None = None
        self.events: list[EngineCoreEvent] = []

        self.prompt_token_ids = prompt_token_ids
        self.num_prompt_tokens = len(prompt_token_ids)
        self._output_token_ids: list[int] = []
        self._all_token_ids = prompt_token_ids.copy()
        self.mm_features = mm_features or []
        """Images and sounds of the prompt, in its order."""
        self.has_encoder_inputs = bool(self.mm_features)
        self.cache_salt = cache_salt
        """Only requests with the same salt share cached blocks."""

        self.num_computed_tokens = 0
        """Tokens whose keys and values are in the KV cache, or will be after the running step."""
        self.num_output_placeholders = 0
        """Tokens being sampled in a running step; always 0 without asynchronous scheduling."""
        self.num_cached_tokens = -1
        """Tokens found in the prefix cache when the request was first scheduled; -1 before that."""
        self.num_preemptions = 0

        self.block_hashes: list[BlockHash] = []
        """One hash per full block of tokens; empty without prefix caching."""
        self._block_hasher = block_hasher
        if block_hasher is not None:
            self.block_hashes = block_hasher(self)

    @classmethod
    def from_engine_core_request(
        cls, request: EngineCoreRequest, block_hasher: Callable[["Request"], list["BlockHash"]] | None
    ) -> "Request":
        """Create the request from the client's message.

        Args:
            request: the message.
            block_hasher: from `get_request_block_hasher`; None without prefix caching.
        """
        return cls(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling_params=request.sampling_params,
            eos_token_id=request.eos_token_id,
            client_index=request.client_index,
            arrival_time=request.arrival_time,
            mm_features=request.mm_features,
            cache_salt=request.cache_salt,
            priority=request.priority,
            block_hasher=block_hasher,
            trace_headers=request.trace_headers,
            pooling_params=request.pooling_params,
        )

    @property
    def use_structured_output(self) -> bool:
        """True if the output is constrained."""
        return self.structured_output_request is not None

    @property
    def output_token_ids(self) -> Sequence[int]:
        """Generated tokens; extended only by `append_output_token_ids`."""
        return self._output_token_ids

    @property
    def all_token_ids(self) -> Sequence[int]:
        """Prompt and generated tokens; extended only by `append_output_token_ids`."""
        return self._all_token_ids

    @property
    def num_tokens(self) -> int:
        """Number of prompt and generated tokens."""
        return len(self._all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Number of generated tokens."""
        return len(self._output_token_ids)

    def get_num_encoder_tokens(self, input_id: int) -> int:
        """Return the number of tokens that stand for the item with this index."""
        return self.mm_features[input_id].mm_position.length

    def append_output_token_ids(self, token_ids: int | list[int]) -> None:
        """Append generated tokens, and the hashes of the blocks that they complete."""
        if isinstance(token_ids, int):
            self._output_token_ids.append(token_ids)
            self._all_token_ids.append(token_ids)
        else:
            self._output_token_ids.extend(token_ids)
            self._all_token_ids.extend(token_ids)
        if self._block_hasher is not None:
            self.block_hashes.extend(self._block_hasher(self))

    def record_event(self, event_type: EngineCoreEventType, timestamp: float | None = None) -> None:
        """Record an event at `timestamp` on the monotonic clock, or now."""
        self.events.append(EngineCoreEvent.new_event(event_type, timestamp))

    def take_events(self) -> list[EngineCoreEvent] | None:
        """Return and clear the events recorded since the last call, or None if there are none."""
        if not self.events:
            return None
        events, self.events = self.events, []
        return events

    def is_finished(self) -> bool:
        """Return whether the request has ended."""
        return RequestStatus.is_finished(self.status)

    def get_finished_reason(self) -> FinishReason | None:
        """Return why the request ended, or None if it has not."""
        return RequestStatus.get_finished_reason(self.status)

    def __lt__(self, other: "Request") -> bool:
        # vLLM 0.11.1 compares only the first two, and fails if they are equal.
        return (self.priority, self.arrival_time, self.request_id) < (
            other.priority,
            other.arrival_time,
            other.request_id,
        )

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status}, prompt={self.num_prompt_tokens}, "
            f"output={self.num_output_tokens}, computed={self.num_computed_tokens})"
        )

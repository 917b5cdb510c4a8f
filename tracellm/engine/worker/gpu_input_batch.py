"""The persistent batch: the model runner's state of the requests, updated between steps only where it changed.

A `CachedRequestState` has the state of one request, from its first step to its end. `InputBatch` holds the requests of
the current step, one row each, in arrays from which a step's inputs are gathered without a loop over tokens.

vLLM: vllm/v1/worker/gpu_input_batch.py. Left out: LoRA, speculative tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tracellm.engine.core.sched.output import NewRequestData
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec
from tracellm.engine.pool.metadata import PoolingMetadata
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.logits_processor import BatchUpdate, LogitsProcessors
from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.sampling_params import SamplingParams, SamplingType
from tracellm.engine.worker.block_table import MultiGroupBlockTable
from tracellm.engine.worker.cpu_gpu_buffer import BatchColumn, BatchRows

__all__ = ["CachedRequestState", "InputBatch"]


@dataclass
class CachedRequestState:
    """State of one request, from the step that first schedules it to its end; a preempted request stays."""

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams | None
    """None for pooling."""
    generator: torch.Generator | None
    """Generator of a request with a seed, or None."""
    block_ids: tuple[list[int], ...]
    """KV cache blocks, one list per KV cache group."""
    num_computed_tokens: int
    """Tokens whose keys and values are in the KV cache."""
    output_token_ids: list[int] = field(default_factory=list)
    mm_features: list[MultiModalFeatureSpec] = field(default_factory=list)
    """Images and sounds of the prompt."""
    mrope_positions: np.ndarray | None = None
    """int64 [3, prompt]: positions of the prompt's tokens in three dimensions, for models that have them."""
    mrope_position_delta: int = 0
    """Distance of a generated token's position, the same in all dimensions, from its index."""
    pooling_params: PoolingParams | None = None
    """None for generation."""

    @classmethod
    def from_new_request(cls, new: NewRequestData, device: torch.device) -> "CachedRequestState":
        """Make the state of a newly scheduled request, with its generator on the device."""
        params = new.sampling_params
        generator = None
        if params is not None and params.seed is not None and params.sampling_type == SamplingType.RANDOM_SEED:
            generator = torch.Generator(device).manual_seed(params.seed)
        return cls(
            req_id=new.req_id,
            prompt_token_ids=new.prompt_token_ids,
            sampling_params=params,
            generator=generator,
            block_ids=tuple(list(blocks) for blocks in new.block_ids),
            num_computed_tokens=new.num_computed_tokens,
            mm_features=new.mm_features,
            pooling_params=new.pooling_params,
        )

    @property
    def num_tokens(self) -> int:
        """Number of prompt and output tokens."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def update(self, num_computed_tokens: int, new_block_ids: tuple[list[int], ...] | None, is_resumed: bool) -> None:
        """Update the request for a step: append blocks, or replace those that a preemption freed."""
        self.num_computed_tokens = num_computed_tokens
        if new_block_ids is None:
            return
        if is_resumed:
            self.block_ids = tuple(list(new) for new in new_block_ids)
        else:
            for blocks, new_blocks in zip(self.block_ids, new_block_ids, strict=True):
                blocks.extend(new_blocks)


class InputBatch:
    """Up to `max_num_reqs` requests in rows 0 .. num_reqs - 1, without gaps after `condense`."""

    def __init__(
        self,
        max_num_reqs: int,
        max_model_len: int,
        max_num_batched_tokens: int,
        block_sizes: Sequence[int],
        vocab_size: int,
        device: torch.device,
        is_pooling_model: bool = False,
    ) -> None:
        """Make an empty batch; `block_sizes` has the tokens per block of each KV cache group."""
        self.is_pooling_model = is_pooling_model
        self.vocab_size = vocab_size
        self.req_ids: list[str] = []
        """Request ids by row. Between `remove_request` and `condense` a row can be stale."""
        self.req_id_to_index: dict[str, int] = {}
        self._empty_rows: list[int] = []

        self.token_ids_cpu = np.zeros((max_num_reqs, max_model_len), dtype=np.int32)
        """Prompt and output tokens by row."""
        self.num_tokens = np.zeros(max_num_reqs, dtype=np.int32)
        self.num_computed_tokens_cpu = np.zeros(max_num_reqs, dtype=np.int32)
        self.block_table = MultiGroupBlockTable(
            block_sizes, max_num_reqs, max_model_len, max_num_batched_tokens, device
        )

        self._requests: list[CachedRequestState] = []
        self._changed_rows: set[int] = set()
        """Rows that got or lost a request since the last `refresh_metadata`."""

        self.temperature = BatchColumn(max_num_reqs, 0.0, torch.float32, device)
        self.top_p = BatchColumn(max_num_reqs, 1.0, torch.float32, device)
        self.top_k = BatchColumn(max_num_reqs, vocab_size, torch.int64, device)
        self.frequency_penalties = BatchColumn(max_num_reqs, 0.0, torch.float32, device)
        self.presence_penalties = BatchColumn(max_num_reqs, 0.0, torch.float32, device)
        self.repetition_penalties = BatchColumn(max_num_reqs, 1.0, torch.float32, device)
        self.penalized_prompts = BatchRows(max_num_reqs, vocab_size, torch.int64, device)
        """Prompts of the rows with a penalty."""
        self.allowed_token_ids_mask = BatchRows(max_num_reqs, False, torch.bool, device)
        self.generators: dict[int, torch.Generator] = {}
        self.num_logprobs: dict[int, int] = {}
        self.bad_words_token_ids: dict[int, list[list[int]]] = {}
        self.logitsprocs = LogitsProcessors(max_num_reqs, vocab_size, device)
        self.sampling_metadata = self._make_sampling_metadata()
        """Sampling parameters of all rows, as of the last `refresh_metadata`."""

    @property
    def num_reqs(self) -> int:
        """Number of requests in the batch."""
        return len(self.req_id_to_index)

    def add_request(self, request: CachedRequestState) -> int:
        """Put a request into the first empty row, or a new one, and return the row."""
        if self._empty_rows:
            row = self._empty_rows.pop()
            self.req_ids[row], self._requests[row] = request.req_id, request
        else:
            row = len(self.req_ids)
            self.req_ids.append(request.req_id)
            self._requests.append(request)
        self.req_id_to_index[request.req_id] = row
        self._changed_rows.add(row)

        num_prompt_tokens = len(request.prompt_token_ids)
        self.token_ids_cpu[row, :num_prompt_tokens] = request.prompt_token_ids
        self.token_ids_cpu[row, num_prompt_tokens : request.num_tokens] = request.output_token_ids
        self.num_tokens[row] = request.num_tokens
        self.num_computed_tokens_cpu[row] = request.num_computed_tokens
        self.block_table.add_row(request.block_ids, row)
        return row

    def remove_request(self, req_id: str) -> None:
        """Free the row of a request, if it has one. Call `condense` before the batch is used."""
        row = self.req_id_to_index.pop(req_id, None)
        if row is not None:
            self._empty_rows.append(row)
            self._empty_rows.sort(reverse=True)  # the smallest is filled first
            self._changed_rows.add(row)

    def condense(self) -> None:
        """Close the gaps by moving the last requests into the empty rows."""
        for row in self._empty_rows:  # from the largest
            last = len(self.req_ids) - 1
            if row < last:
                self._move(last, row)
            self._changed_rows.add(last)
            self.req_ids.pop()
            self._requests.pop()
        self._empty_rows.clear()

    def _move(self, source: int, target: int) -> None:
        req_id = self.req_ids[source]
        self.req_ids[target], self._requests[target] = req_id, self._requests[source]
        self.req_id_to_index[req_id] = target
        num_tokens = self.num_tokens[source]
        self.token_ids_cpu[target, :num_tokens] = self.token_ids_cpu[source, :num_tokens]
        for column in (self.num_tokens, self.num_computed_tokens_cpu):
            column[target] = column[source]
        self.block_table.move_row(source, target)

    def append_tokens(self, rows: list[int], token_ids: list[int]) -> None:
        """Append one generated token to the request in each of these rows."""
        self.token_ids_cpu[rows, self.num_tokens[rows]] = token_ids
        self.num_tokens[rows] += 1
        for row, token_id in zip(rows, token_ids, strict=True):
            self._requests[row].output_token_ids.append(token_id)

    def add_tokens(self, row: int, token_ids: list[int]) -> None:
        """Append tokens to a row only; its request has them."""
        end = self.num_tokens[row] + len(token_ids)
        self.token_ids_cpu[row, self.num_tokens[row] : end] = token_ids
        self.num_tokens[row] = end

    def refresh_metadata(self) -> None:
        """Update `sampling_metadata` and the logits processors for the step, from the rows that changed."""
        if self.is_pooling_model:
            self._changed_rows.clear()
            return
        if not self._changed_rows:
            self.logitsprocs.update_state(None)
            return
        update = BatchUpdate(self.num_reqs, removed=[], added=[])
        for row in sorted(self._changed_rows):
            if row < self.num_reqs:
                request = self._requests[row]
                params = self._set_sampling_params(row, request)
                update.added.append((row, params, request.output_token_ids))
            else:
                self._clear_sampling_params(row)
                update.removed.append(row)
        self._changed_rows.clear()
        self.logitsprocs.update_state(update)
        self.sampling_metadata = self._make_sampling_metadata()

    def _set_sampling_params(self, row: int, request: CachedRequestState) -> SamplingParams:
        """Store the sampling parameters of the request that is now in `row`, and return them."""
        params = request.sampling_params
        assert params is not None, "all requests of a batch are for generation, or none is"
        self._clear_sampling_params(row)
        self.temperature.set(row, params.temperature)
        self.top_p.set(row, params.top_p)
        self.top_k.set(row, params.top_k if 0 < params.top_k < self.vocab_size else self.vocab_size)
        self.frequency_penalties.set(row, params.frequency_penalty)
        self.presence_penalties.set(row, params.presence_penalty)
        self.repetition_penalties.set(row, params.repetition_penalty)
        if params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1:
            self.penalized_prompts.set(row, request.prompt_token_ids)
        if params.allowed_token_ids:
            forbidden = np.ones(self.vocab_size, dtype=np.bool_)
            forbidden[params.allowed_token_ids] = False
            self.allowed_token_ids_mask.set(row, forbidden)
        if request.generator is not None:
            self.generators[row] = request.generator
        if params.logprobs is not None:
            self.num_logprobs[row] = self.vocab_size if params.logprobs == -1 else params.logprobs
        if params.bad_words_token_ids:
            self.bad_words_token_ids[row] = params.bad_words_token_ids
        return params

    def _clear_sampling_params(self, row: int) -> None:
        """Remove what only some rows have; the columns of an unused row are never read."""
        self.penalized_prompts.set(row, None)
        self.allowed_token_ids_mask.set(row, None)
        self.generators.pop(row, None)
        self.num_logprobs.pop(row, None)
        self.bad_words_token_ids.pop(row, None)

    def get_pooling_metadata(self) -> PoolingMetadata:
        """Return the pooling parameters of all rows, all of which are for pooling."""
        every = []
        for request in self._requests:
            assert request.pooling_params is not None
            every.append(request.pooling_params)
        lengths = torch.tensor([len(request.prompt_token_ids) for request in self._requests])
        return PoolingMetadata(prompt_lens=lengths, pooling_params=every)

    def _make_sampling_metadata(self) -> SamplingMetadata:
        """Return the sampling parameters of all rows; only tensors that changed are sent to the device."""
        num_reqs = self.num_reqs
        prompt_token_ids = self.penalized_prompts.get(num_reqs)
        penalized = prompt_token_ids is not None
        return SamplingMetadata(
            temperature=self.temperature.get(num_reqs),
            all_random=self.temperature.count(num_reqs) == num_reqs,
            top_p=self.top_p.get(num_reqs),
            top_k=self.top_k.get(num_reqs),
            generators=self.generators,
            max_num_logprobs=max(self.num_logprobs.values(), default=None),
            prompt_token_ids=prompt_token_ids,
            frequency_penalties=self.frequency_penalties.to_device(num_reqs) if penalized else None,
            presence_penalties=self.presence_penalties.to_device(num_reqs) if penalized else None,
            repetition_penalties=self.repetition_penalties.to_device(num_reqs) if penalized else None,
            output_token_ids=[request.output_token_ids for request in self._requests],
            allowed_token_ids_mask=self.allowed_token_ids_mask.get(num_reqs),
            bad_words_token_ids=self.bad_words_token_ids,
            logitsprocs=self.logitsprocs,
        )

"""The persistent batch: what the model runner knows of the requests, changed between steps only where they changed.

`CachedRequestState` is all about one request and lives until it ends. `InputBatch` holds the requests of the current
step side by side, one row each, in arrays from which a step's inputs are gathered without a loop over tokens.

vLLM: vllm/v1/worker/gpu_input_batch.py. Left out: LoRA, pooling, multimodal inputs, penalties, speculative tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sampling_params import SamplingParams, SamplingType
from tracellm.engine.worker.block_table import BlockTable

__all__ = ["CachedRequestState", "InputBatch"]


@dataclass
class CachedRequestState:
    """One request, from the step that first scheduled it to its end; a preempted one stays."""

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    generator: torch.Generator | None
    """Its own random numbers, if it has a seed."""
    block_ids: list[int]
    num_computed_tokens: int
    """Tokens whose keys and values are in the KV cache."""
    output_token_ids: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and output."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)


class InputBatch:
    """Up to `max_num_reqs` requests in rows 0 .. num_reqs - 1, without gaps once `condense` has run."""

    def __init__(
        self,
        max_num_reqs: int,
        max_model_len: int,
        max_num_batched_tokens: int,
        block_size: int,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self.device = device
        self.vocab_size = vocab_size
        self.req_ids: list[str] = []
        """By row. Only while requests are being removed can a row be stale."""
        self.req_id_to_index: dict[str, int] = {}
        self._empty_rows: list[int] = []

        self.token_ids_cpu = np.zeros((max_num_reqs, max_model_len), dtype=np.int32)
        """Prompt and output tokens of each row."""
        self.num_tokens = np.zeros(max_num_reqs, dtype=np.int32)
        self.num_computed_tokens_cpu = np.zeros(max_num_reqs, dtype=np.int32)
        self.block_table = BlockTable(
            block_size, max_num_reqs, -(-max_model_len // block_size), max_num_batched_tokens, device
        )

        self.temperature = np.zeros(max_num_reqs, dtype=np.float32)
        self.top_p = np.ones(max_num_reqs, dtype=np.float32)
        self.top_k = np.zeros(max_num_reqs, dtype=np.int64)
        self._requests: list[CachedRequestState] = []
        self.sampling_metadata = self.make_sampling_metadata([])
        """Of all rows, as of the last `refresh_metadata`."""
        self._changed = False

    @property
    def num_reqs(self) -> int:
        """Rows in use."""
        return len(self.req_id_to_index)

    def add_request(self, request: CachedRequestState) -> int:
        """Put a request into the first empty row, or a new one; the row."""
        if self._empty_rows:
            row = self._empty_rows.pop()
            self.req_ids[row], self._requests[row] = request.req_id, request
        else:
            row = len(self.req_ids)
            self.req_ids.append(request.req_id)
            self._requests.append(request)
        self.req_id_to_index[request.req_id] = row
        self._changed = True

        num_prompt_tokens = len(request.prompt_token_ids)
        self.token_ids_cpu[row, :num_prompt_tokens] = request.prompt_token_ids
        self.token_ids_cpu[row, num_prompt_tokens : request.num_tokens] = request.output_token_ids
        self.num_tokens[row] = request.num_tokens
        self.num_computed_tokens_cpu[row] = request.num_computed_tokens
        self.block_table.add_row(request.block_ids, row)

        params = request.sampling_params
        greedy = params.sampling_type == SamplingType.GREEDY
        self.temperature[row] = 0.0 if greedy else params.temperature
        self.top_p[row] = params.top_p
        self.top_k[row] = params.top_k if 0 < params.top_k < self.vocab_size else self.vocab_size
        return row

    def remove_request(self, req_id: str) -> None:
        """Free the row of a request, if it has one. `condense` must follow before the batch is used."""
        row = self.req_id_to_index.pop(req_id, None)
        if row is not None:
            self._empty_rows.append(row)
            self._empty_rows.sort(reverse=True)  # the smallest is filled first
            self._changed = True

    def condense(self) -> None:
        """Close the gaps: the last requests move into the empty rows."""
        for row in self._empty_rows:  # from the largest
            last = len(self.req_ids) - 1
            if row < last:
                self._move(last, row)
            self.req_ids.pop()
            self._requests.pop()
        self._empty_rows.clear()

    def _move(self, source: int, target: int) -> None:
        req_id = self.req_ids[source]
        self.req_ids[target], self._requests[target] = req_id, self._requests[source]
        self.req_id_to_index[req_id] = target
        num_tokens = self.num_tokens[source]
        self.token_ids_cpu[target, :num_tokens] = self.token_ids_cpu[source, :num_tokens]
        for column in (self.num_tokens, self.num_computed_tokens_cpu, self.temperature, self.top_p, self.top_k):
            column[target] = column[source]
        self.block_table.move_row(source, target)

    def append_token(self, row: int, token_id: int) -> None:
        """The request in `row` has generated a token."""
        self.token_ids_cpu[row, self.num_tokens[row]] = token_id
        self.num_tokens[row] += 1
        self._requests[row].output_token_ids.append(token_id)

    def refresh_metadata(self) -> None:
        """Renew `sampling_metadata` if requests came, went or moved."""
        if self._changed:
            self.sampling_metadata = self.make_sampling_metadata(range(self.num_reqs))
            self._changed = False

    def make_sampling_metadata(self, rows: Sequence[int]) -> SamplingMetadata:
        """How the requests in these rows want to be sampled, in this order."""
        requests = [self._requests[row] for row in rows]
        temperature, top_p, top_k = (column[list(rows)] for column in (self.temperature, self.top_p, self.top_k))
        needed = {
            "temperature": (temperature, bool((temperature > 0).any())),
            "top_p": (top_p, bool((top_p < 1).any())),
            "top_k": (top_k, bool((top_k < self.vocab_size).any())),
        }
        tensors = {
            name: torch.from_numpy(values).to(self.device, non_blocking=True) if is_needed else None
            for name, (values, is_needed) in needed.items()
        }
        return SamplingMetadata(
            **tensors,
            all_random=bool((temperature > 0).all()),
            generators={i: r.generator for i, r in enumerate(requests) if r.generator is not None},
            min_tokens={
                i: (
                    r.sampling_params.min_tokens,
                    {t for t in r.sampling_params.all_stop_token_ids if t < self.vocab_size},
                )
                for i, r in enumerate(requests)
                if r.sampling_params.min_tokens
            },
            output_token_ids=[r.output_token_ids for r in requests],
        )

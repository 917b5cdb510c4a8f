"""The persistent batch: what the model runner knows of the requests, changed between steps only where they changed.

`CachedRequestState` is all about one request and lives until it ends. `InputBatch` holds the requests of the current
step side by side, one row each, in arrays from which a step's inputs are gathered without a loop over tokens.

vLLM: vllm/v1/worker/gpu_input_batch.py. Left out: LoRA, pooling, multimodal inputs, speculative tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.core.sched.output import NewRequestData
from tracellm.engine.sample.logits_processor import BatchUpdate, LogitsProcessors
from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.sampling_params import SamplingParams, SamplingType
from tracellm.engine.worker.block_table import MultiGroupBlockTable
from tracellm.engine.worker.cpu_gpu_buffer import async_tensor_h2d

__all__ = ["CachedRequestState", "InputBatch"]


@dataclass
class CachedRequestState:
    """One request, from the step that first scheduled it to its end; a preempted one stays."""

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    generator: torch.Generator | None
    """Its own random numbers, if it has a seed."""
    block_ids: tuple[list[int], ...]
    """Its blocks, one list for each KV cache group."""
    num_computed_tokens: int
    """Tokens whose keys and values are in the KV cache."""
    output_token_ids: list[int] = field(default_factory=list)

    @classmethod
    def from_new_request(cls, new: NewRequestData, device: torch.device) -> "CachedRequestState":
        """What the scheduler says of a request when it is first scheduled; its generator is on the device."""
        params, generator = new.sampling_params, None
        if params.seed is not None and params.sampling_type == SamplingType.RANDOM_SEED:
            generator = torch.Generator(device).manual_seed(params.seed)
        return cls(
            req_id=new.req_id,
            prompt_token_ids=new.prompt_token_ids,
            sampling_params=params,
            generator=generator,
            block_ids=tuple(list(blocks) for blocks in new.block_ids),
            num_computed_tokens=new.num_computed_tokens,
        )

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
        block_sizes: Sequence[int],
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """`block_sizes` has the tokens in a block of each KV cache group."""
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
        self.block_table = MultiGroupBlockTable(
            block_sizes, max_num_reqs, max_model_len, max_num_batched_tokens, device
        )

        self._requests: list[CachedRequestState] = []
        self.logitsprocs = LogitsProcessors(vocab_size, device)
        self.sampling_metadata = self._make_sampling_metadata()
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
        for column in (self.num_tokens, self.num_computed_tokens_cpu):
            column[target] = column[source]
        self.block_table.move_row(source, target)

    def append_tokens(self, rows: list[int], token_ids: list[int]) -> None:
        """The requests in these rows have generated a token each."""
        self.token_ids_cpu[rows, self.num_tokens[rows]] = token_ids
        self.num_tokens[rows] += 1
        for row, token_id in zip(rows, token_ids, strict=True):
            self._requests[row].output_token_ids.append(token_id)

    def refresh_metadata(self) -> None:
        """Renew `sampling_metadata` if requests came, went or moved, and tell the logits processors of the step."""
        if not self._changed:
            self.logitsprocs.update_state(None)
            return
        self.logitsprocs.update_state(
            BatchUpdate([r.sampling_params for r in self._requests], [r.output_token_ids for r in self._requests])
        )
        self.sampling_metadata = self._make_sampling_metadata()
        self._changed = False

    def _make_sampling_metadata(self) -> SamplingMetadata:
        """How the requests in the rows want to be sampled."""
        requests, params = self._requests, [r.sampling_params for r in self._requests]
        temperature = [p.temperature for p in params]
        top_k = [p.top_k if 0 < p.top_k < self.vocab_size else self.vocab_size for p in params]
        frequency, presence = [p.frequency_penalty for p in params], [p.presence_penalty for p in params]
        repetition = [p.repetition_penalty for p in params]
        penalized = any(frequency) or any(presence) or any(penalty != 1 for penalty in repetition)
        num_logprobs = [self.vocab_size if p.logprobs == -1 else p.logprobs for p in params if p.logprobs is not None]
        return SamplingMetadata(
            temperature=self._to_device(temperature, any(temperature)),
            all_random=all(temperature),
            top_p=self._to_device([p.top_p for p in params], any(p.top_p < 1 for p in params)),
            top_k=self._to_device(top_k, min(top_k, default=self.vocab_size) < self.vocab_size, torch.int64),
            generators={row: r.generator for row, r in enumerate(requests) if r.generator is not None},
            max_num_logprobs=max(num_logprobs, default=None),
            prompt_token_ids=self._make_prompt_token_ids_tensor() if penalized else None,
            frequency_penalties=self._to_device(frequency, penalized),
            presence_penalties=self._to_device(presence, penalized),
            repetition_penalties=self._to_device(repetition, penalized),
            output_token_ids=[r.output_token_ids for r in requests],
            allowed_token_ids_mask=self._make_allowed_token_ids_mask(),
            bad_words_token_ids={row: words for row, p in enumerate(params) if (words := p.bad_words_token_ids)},
            logitsprocs=self.logitsprocs,
        )

    def _to_device(self, values: Sequence[float], needed: bool, dtype: torch.dtype = torch.float32) -> Tensor | None:
        """The values, one for each row, as a tensor; None if it is not needed."""
        return async_tensor_h2d(values, dtype, self.device) if needed else None

    def _make_prompt_token_ids_tensor(self) -> Tensor:
        """int64 [N, longest prompt], filled up with the vocabulary's size, which is no token's id."""
        prompts = [r.prompt_token_ids for r in self._requests]
        padded = np.full((len(prompts), max(map(len, prompts))), self.vocab_size, dtype=np.int64)
        for row, prompt in enumerate(prompts):
            padded[row, : len(prompt)] = self.token_ids_cpu[row, : len(prompt)]
        return async_tensor_h2d(padded, torch.int64, self.device)

    def _make_allowed_token_ids_mask(self) -> Tensor | None:
        """bool [N, vocabulary], True where a token is forbidden; None if every row allows all."""
        allowed = {row: ids for row, r in enumerate(self._requests) if (ids := r.sampling_params.allowed_token_ids)}
        if not allowed:
            return None
        mask = np.zeros((self.num_reqs, self.vocab_size), dtype=np.bool_)
        for row, token_ids in allowed.items():
            mask[row] = True
            mask[row, token_ids] = False
        return torch.from_numpy(mask).to(self.device, non_blocking=True)

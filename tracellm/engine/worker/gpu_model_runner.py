"""The model runner: turns a scheduler's plan into tensors, runs the model, samples, and remembers what came out.

In a request's life: every step. `execute_model` is that step from top to bottom:
`_update_states` -> `_prepare_inputs` -> `_build_attention_metadata` -> `_model_forward` -> `compute_logits` ->
`_sample` -> `_bookkeeping_sync`.

vLLM 0.11.1: vllm/v1/worker/gpu_model_runner.py::GPUModelRunner. There sampling is a second call, `sample_tokens`, and
requests whose prompt is not complete are sampled too and the result thrown away; here only those that get a token are.
The older documents call it ModelRunner. Left out: multimodal inputs, speculative tokens, parallelism, CUDA graphs,
warm-up.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.config import VllmConfig
from tracellm.engine.errors import EngineError
from tracellm.engine.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig
from tracellm.engine.layers.attention import Attention
from tracellm.engine.layers.forward_context import set_forward_context
from tracellm.engine.model_loader import DefaultModelLoader
from tracellm.engine.model_runner_output import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput, SamplerOutput
from tracellm.engine.models.utils import CausalLM
from tracellm.engine.ops import AttentionMetadata
from tracellm.engine.sample.sampler import Sampler
from tracellm.engine.sampling_params import SamplingType
from tracellm.engine.sched.output import SchedulerOutput
from tracellm.engine.worker.cpu_gpu_buffer import CpuGpuBuffer
from tracellm.engine.worker.gpu_input_batch import CachedRequestState, InputBatch

__all__ = ["GPUModelRunner", "PreparedInputs"]


@dataclass
class PreparedInputs:
    """A step's inputs: T tokens of R requests, one request after the other in the order of the batch's rows."""

    input_ids: Tensor
    """int32 [T]."""
    positions: Tensor
    """int64 [T]: each token's place in its request, from 0."""
    num_scheduled_tokens: np.ndarray
    """int32 [R]."""
    sampling_rows: list[int]
    """The rows that get a new token: those whose tokens are all computed after this step."""
    logits_indices: Tensor
    """int64 [len(sampling_rows)]: the last token of each of these rows, among the T."""


class GPUModelRunner:
    """Runs the model on one device; a step at a time."""

    model: CausalLM

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.device = device
        self.max_num_tokens = vllm_config.scheduler_config.max_num_batched_tokens
        self.max_num_reqs = vllm_config.scheduler_config.max_num_seqs

        self.requests: dict[str, CachedRequestState] = {}
        """Every request that was scheduled and has not ended, in the batch or preempted."""
        self.input_batch = InputBatch(
            max_num_reqs=self.max_num_reqs,
            max_model_len=self.model_config.max_model_len,
            max_num_batched_tokens=self.max_num_tokens,
            block_size=vllm_config.cache_config.block_size,
            vocab_size=self.model_config.get_vocab_size(),
            device=device,
        )
        self.sampler = Sampler(torch.Generator(device).manual_seed(self.model_config.seed))
        self.kv_caches: list[Tensor] = []

        self.input_ids = CpuGpuBuffer(self.max_num_tokens, dtype=torch.int32, device=device)
        self.positions = CpuGpuBuffer(self.max_num_tokens, dtype=torch.int64, device=device)
        self.query_start_loc = CpuGpuBuffer(self.max_num_reqs + 1, dtype=torch.int32, device=device)
        self.seq_lens = CpuGpuBuffer(self.max_num_reqs, dtype=torch.int32, device=device)
        self.logits_indices = CpuGpuBuffer(self.max_num_reqs, dtype=torch.int64, device=device)

    # -- start-up -----------------------------------------------------------------------------------------------------
    def load_model(self) -> None:
        """Load the model onto the device.

        Raises:
            ModelLoadError: it cannot be loaded; the message says why.
        """
        self.model = DefaultModelLoader().load_model(self.vllm_config)

    def get_kv_cache_spec(self) -> dict[str, FullAttentionSpec]:
        """What each attention layer stores of a token, by the layer's name."""
        return {
            layer.layer_name: FullAttentionSpec(
                block_size=self.vllm_config.cache_config.block_size,
                num_kv_heads=layer.num_kv_heads,
                head_size=layer.head_size,
                dtype=self.model_config.dtype,
            )
            for layer in self._attention_layers()
        }

    def initialize_kv_cache(self, kv_cache_config: KVCacheConfig) -> None:
        """Make the KV cache of each layer, [2, blocks, block_size, KV heads, head size], and hand it to the layer.

        The memory is not written here, so on the CPU the system provides each page only when a block is first used.
        """
        spec = kv_cache_config.kv_cache_groups[0].kv_cache_spec
        shape = (2, kv_cache_config.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_size)
        for layer in self._attention_layers():
            layer.kv_cache = torch.empty(shape, dtype=spec.dtype, device=self.device)
            self.kv_caches.append(layer.kv_cache)

    @torch.inference_mode()
    def profile_run(self) -> None:
        """Run the largest possible step without a KV cache, so that the memory it takes can be measured."""
        ids = torch.zeros(self.max_num_tokens, dtype=torch.int32, device=self.device)
        with set_forward_context(None):
            hidden_states = self._model_forward(ids, torch.zeros_like(ids, dtype=torch.int64))
        logits = self.model.compute_logits(hidden_states[: self.max_num_reqs]).float()
        self.sampler.greedy_sample(logits.softmax(dim=-1))

    def _attention_layers(self) -> list[Attention]:
        return [module for module in self.model.modules() if isinstance(module, Attention)]

    # -- a step -------------------------------------------------------------------------------------------------------
    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """Run one step as planned, and sample a token for each request whose tokens are then all computed."""
        self._update_states(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        inputs = self._prepare_inputs(scheduler_output)
        attn_metadata = self._build_attention_metadata(inputs)
        with set_forward_context(attn_metadata):
            hidden_states = self._model_forward(inputs.input_ids, inputs.positions)
        logits = self.model.compute_logits(hidden_states[inputs.logits_indices])
        sampler_output = self._sample(logits, inputs.sampling_rows)
        return self._bookkeeping_sync(sampler_output, inputs.sampling_rows, logits)

    def _update_states(self, scheduler_output: SchedulerOutput) -> None:
        """Bring requests and batch up to date: who ended, who paused, who is new, who goes on, with which blocks."""
        batch, cached = self.input_batch, scheduler_output.scheduled_cached_reqs
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
            batch.remove_request(req_id)
        # Preempted requests, and running ones that this step leaves out, give up their rows but stay known.
        for req_id in (
            batch.req_id_to_index.keys() - scheduler_output.num_scheduled_tokens.keys() | cached.resumed_req_ids
        ):
            batch.remove_request(req_id)

        to_add: list[CachedRequestState] = []
        for new in scheduler_output.scheduled_new_reqs:
            generator = None
            seed = new.sampling_params.seed
            if seed is not None and new.sampling_params.sampling_type == SamplingType.RANDOM_SEED:
                generator = torch.Generator(self.device).manual_seed(seed)
            request = CachedRequestState(
                req_id=new.req_id,
                prompt_token_ids=new.prompt_token_ids,
                sampling_params=new.sampling_params,
                generator=generator,
                block_ids=list(new.block_ids[0]),
                num_computed_tokens=new.num_computed_tokens,
            )
            self.requests[new.req_id] = request
            to_add.append(request)

        for req_id, num_computed_tokens, new_block_ids in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            request = self.requests[req_id]
            request.num_computed_tokens = num_computed_tokens
            blocks = new_block_ids[0] if new_block_ids is not None else []
            if req_id in cached.resumed_req_ids:
                request.block_ids = list(blocks)  # it lost the old ones when it was preempted
            else:
                request.block_ids.extend(blocks)
            row = batch.req_id_to_index.get(req_id)
            if row is None:
                to_add.append(request)
            else:
                batch.num_computed_tokens_cpu[row] = num_computed_tokens
                batch.block_table.append_row(blocks, row)

        for request in to_add:
            batch.add_request(request)
        batch.condense()
        batch.refresh_metadata()

    def _prepare_inputs(self, scheduler_output: SchedulerOutput) -> PreparedInputs:
        """Gather the step's tokens and their positions from the batch, and work out where their keys and values go."""
        batch, num_reqs = self.input_batch, self.input_batch.num_reqs
        num_tokens = scheduler_output.total_num_scheduled_tokens
        num_scheduled = np.array([scheduler_output.num_scheduled_tokens[r] for r in batch.req_ids], dtype=np.int32)
        num_computed = batch.num_computed_tokens_cpu[:num_reqs]
        ends = np.cumsum(num_scheduled)

        # Requests of 2, 1 and 3 tokens: rows = [0 0 1 2 2 2], and positions count up from each one's num_computed.
        rows = np.repeat(np.arange(num_reqs), num_scheduled)
        positions = np.arange(num_tokens) - np.repeat(ends - num_scheduled - num_computed, num_scheduled)
        self.positions.np[:num_tokens] = positions
        self.input_ids.np[:num_tokens] = batch.token_ids_cpu[rows, positions]
        batch.block_table.compute_slot_mapping(rows, positions)

        self.query_start_loc.np[1 : num_reqs + 1] = ends
        self.seq_lens.np[:num_reqs] = num_computed + num_scheduled
        sampling_rows = np.flatnonzero(self.seq_lens.np[:num_reqs] == batch.num_tokens[:num_reqs])
        self.logits_indices.np[: len(sampling_rows)] = ends[sampling_rows] - 1
        return PreparedInputs(
            input_ids=self.input_ids.copy_to_gpu(num_tokens),
            positions=self.positions.copy_to_gpu(num_tokens),
            num_scheduled_tokens=num_scheduled,
            sampling_rows=sampling_rows.tolist(),
            logits_indices=self.logits_indices.copy_to_gpu(len(sampling_rows)),
        )

    def _build_attention_metadata(self, inputs: PreparedInputs) -> AttentionMetadata:
        """Tell the attention layers which tokens belong to which request and where its keys and values are."""
        num_reqs, num_tokens = len(inputs.num_scheduled_tokens), len(inputs.input_ids)
        return AttentionMetadata(
            query_start_loc=self.query_start_loc.copy_to_gpu(num_reqs + 1),
            seq_lens=self.seq_lens.copy_to_gpu(num_reqs),
            block_table=self.input_batch.block_table.commit_block_table(num_reqs),
            slot_mapping=self.input_batch.block_table.commit_slot_mapping(num_tokens),
            query_lens_cpu=inputs.num_scheduled_tokens.tolist(),
            seq_lens_cpu=self.seq_lens.np[:num_reqs].tolist(),
        )

    def _model_forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """The model itself: ids and positions [T] to hidden states [T, hidden]."""
        hidden_states: Tensor = self.model(input_ids, positions)
        return hidden_states

    def _sample(self, logits: Tensor, sampling_rows: list[int]) -> SamplerOutput:
        """Pick a token for each of these rows; row k of the logits belongs to sampling_rows[k]."""
        batch = self.input_batch
        everyone = len(sampling_rows) == batch.num_reqs
        metadata = batch.sampling_metadata if everyone else batch.make_sampling_metadata(sampling_rows)
        output: SamplerOutput = self.sampler(logits, metadata)
        return output

    def _bookkeeping_sync(
        self, sampler_output: SamplerOutput, sampling_rows: list[int], logits: Tensor
    ) -> ModelRunnerOutput:
        """Wait for the sampled tokens, and note them as the requests' next inputs.

        Raises:
            EngineError: the logits are no numbers (NaN), so the tokens mean nothing. vLLM does not check.
        """
        batch = self.input_batch
        if logits.isnan().any():
            raise EngineError(
                f"The model computed NaN instead of scores, in {self.model_config.dtype}: on the way a number grew "
                "beyond the dtype's range. Try another dtype (bfloat16 or float32); "
                "if it stays, the checkpoint is damaged."
            )
        sampled_token_ids: list[list[int]] = [[] for _ in batch.req_ids]
        for row, token_ids in zip(sampling_rows, sampler_output.sampled_token_ids.tolist(), strict=True):
            sampled_token_ids[row] = token_ids
            batch.append_token(row, token_ids[0])
        return ModelRunnerOutput(
            req_ids=batch.req_ids.copy(),
            req_id_to_index=batch.req_id_to_index.copy(),
            sampled_token_ids=sampled_token_ids,
            logits_shape=(logits.shape[0], logits.shape[1]),
        )

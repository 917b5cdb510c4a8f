"""The model runner: turns a scheduler's plan into tensors, runs the model, samples, and remembers what came out.

In a request's life: every step, in two calls. `execute_model` is the forward pass:
`_update_states` -> `_prepare_inputs` -> `_build_attention_metadata` -> `_model_forward` -> `compute_logits`. It keeps
the logits for `sample_tokens`: `_sample` -> `_bookkeeping_sync`. Between the two, while the device computes, the
scheduler finds out which tokens the grammars allow.

vLLM: vllm/v1/worker/gpu_model_runner.py::GPUModelRunner. The older documents call it ModelRunner. Left out: multimodal
inputs, speculative tokens, parallelism, warm-up.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.attention.backend import AttentionMetadata, AttentionMetadataBuilder, CommonAttentionMetadata
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig, KVCacheGroupSpec
from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput
from tracellm.engine.core.structured_output.utils import apply_grammar_bitmask
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.model_executor.layers.forward_context import set_forward_context
from tracellm.engine.model_executor.model_loader import DefaultModelLoader
from tracellm.engine.model_executor.models.utils import CausalLM
from tracellm.engine.model_executor.ops import make_ops, using_ops
from tracellm.engine.sample.forbidden import why_no_token
from tracellm.engine.sample.sampler import Sampler
from tracellm.engine.worker.async_output import (
    AsyncGPUModelRunnerOutput,
    StepTensors,
    check_is_number,
    placeholder,
)
from tracellm.engine.worker.cudagraphs import TUNED_LENGTH, CudaGraphs, get_capture_sizes, why_eager
from tracellm.engine.worker.gpu_input_batch import CachedRequestState, InputBatch
from tracellm.engine.worker.input_buffers import InputBuffers
from tracellm.engine.worker.memory import making_step_inputs
from tracellm.engine.worker.model_runner_output import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
)
from tracellm.engine.worker.prompt_logprobs import InProgressPromptLogprobs
from tracellm.engine.worker.step_inputs import ExecuteModelState, PreparedInputs

__all__ = ["GPUModelRunner"]


class GPUModelRunner:
    """Runs the model on one device; a step at a time."""

    model: CausalLM
    input_batch: InputBatch
    """Of the current step; made with the KV cache, whose groups it follows."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.device = device
        self.ops = make_ops(vllm_config.ops_choice.name)
        limits = vllm_config.scheduler_config
        self.max_num_reqs = limits.max_num_seqs
        # A larger budget than all requests together can use would cost memory and be of no use.
        self.max_num_tokens = min(limits.max_num_batched_tokens, self.max_num_reqs * limits.max_model_len)

        self.requests: dict[str, CachedRequestState] = {}
        """Every request that was scheduled and has not ended, in the batch or preempted."""
        generator = torch.Generator(device).manual_seed(self.model_config.seed)
        self.sampler = Sampler(generator, self.model_config.logprobs_mode, self.ops)
        self.kv_caches: list[Tensor] = []
        self.kv_cache_groups: list[KVCacheGroupSpec] = []
        self.attn_metadata_builders: list[AttentionMetadataBuilder] = []
        """Builder of each KV cache group."""
        self.execute_model_state: ExecuteModelState | None = None
        self.cudagraphs: CudaGraphs | None = None
        """Of decode steps, once `capture_model` has run."""
        self.eager_reason = why_eager(vllm_config)
        """Why it makes none; None: it does."""
        self.in_progress_prompt_logprobs: dict[str, InProgressPromptLogprobs] = {}
        """Of the requests that asked for them and whose prompt is not complete."""

        self.buffers = InputBuffers(self.max_num_reqs, self.max_num_tokens, device)

        # Asynchronous scheduling: see async_output.py.
        self.use_async_scheduling = limits.async_scheduling
        self.prev_sampled_token_ids: Tensor | None = None
        """int64 [R, 1]: what the step before has sampled, on the device."""
        self.async_output: AsyncGPUModelRunnerOutput | None = None
        """Of the step before."""
        on_gpu = limits.async_scheduling and device.type == "cuda"
        self.async_output_copy_stream = torch.cuda.Stream(device) if on_gpu else None
        self.inputs_copied = torch.cuda.Event() if on_gpu else None
        """The inputs of the last step are on the device."""

    # -- start-up -----------------------------------------------------------------------------------------------------
    def load_model(self) -> None:
        """Load the model onto the device.

        Raises:
            ModelLoadError: it cannot be loaded; the message says why.
        """
        with using_ops(self.ops):
            self.model = DefaultModelLoader().load_model(self.vllm_config)
        self.ops.prepare_weights(self.model)

    def get_kv_cache_spec(self) -> dict[str, AttentionSpec]:
        """What each attention layer stores of a token, by the layer's name."""
        block_size, dtype = self.vllm_config.cache_config.block_size, self.model_config.dtype
        return {layer.layer_name: layer.get_kv_cache_spec(block_size, dtype) for layer in self._attention_layers()}

    def initialize_kv_cache(self, kv_cache_config: KVCacheConfig) -> None:
        """Make the KV cache of each layer, [2, blocks, block_size, KV heads, head size], and hand it to the layer.

        The layers of different groups that share a tensor own different blocks of it. The memory is not written here,
        so on the CPU the system provides each page only when a block is first used (or see `take_kv_cache_memory`).

        Raises:
            EngineError: the memory cannot hold the inputs of the largest possible step.
        """
        self.kv_cache_groups = kv_cache_config.kv_cache_groups
        with making_step_inputs(self.vllm_config.scheduler_config):
            self.input_batch = InputBatch(
                max_num_reqs=self.max_num_reqs,
                max_model_len=self.model_config.max_model_len,
                max_num_batched_tokens=self.max_num_tokens,
                block_sizes=[group.kv_cache_spec.block_size for group in self.kv_cache_groups],
                vocab_size=self.model_config.get_vocab_size(),
                device=self.device,
            )
        spec = self.kv_cache_groups[0].kv_cache_spec
        shape = (2, kv_cache_config.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_size)
        layers = {layer.layer_name: layer for layer in self._attention_layers()}
        for group in self.kv_cache_groups:
            group_layers = [layers[name] for name in group.layer_names]
            builder_cls = group_layers[0].attn_backend.get_builder_cls()
            builder = builder_cls(group.kv_cache_spec, [layer.impl for layer in group_layers])
            self.attn_metadata_builders.append(builder)
        for tensor in kv_cache_config.kv_cache_tensors:
            self.kv_caches.append(torch.empty(shape, dtype=spec.dtype, device=self.device))
            for name in tensor.shared_by:
                layers[name].kv_cache = self.kv_caches[-1]

    def take_kv_cache_memory(self) -> None:
        """Write to all of the KV cache, so that the system provides its memory now and not block by block.

        CUDA has done so when it was made.
        """
        if self.device.type == "cpu":
            for kv_cache in self.kv_caches:
                kv_cache.zero_()

    @torch.inference_mode()
    def capture_model(self) -> None:
        """Capture CUDA graphs of decode steps, in the KV cache that is there now, if this engine has any.

        Their memory comes out of what `gpu_memory_utilization` leaves, as in vLLM 0.11.1.
        """
        if self.eager_reason is None:
            self.cudagraphs = CudaGraphs(get_capture_sizes(min(self.max_num_reqs, self.max_num_tokens)))
            self.cudagraphs.capture(self._make_decode_forward)

    def _make_decode_forward(self, size: int) -> Callable[[], Tensor]:
        """A forward pass over the buffers, of `size` requests that decode; its launches suit contexts of any length."""
        length = min(self.model_config.max_model_len, TUNED_LENGTH)
        self.buffers.pad(self.input_batch, 0, size)
        self.buffers.seq_lens.np[:size] = length
        self.input_batch.block_table.spread(size, length, self.kv_caches[0].shape[1])
        input_ids = self.buffers.input_ids.copy_to_gpu(size)
        positions = self.buffers.positions.copy_to_gpu(size)
        max_seq_len = self.model_config.max_model_len
        metadata = self._make_attention_metadata(size, size, size, [1] * size, [length] * size, max_seq_len)

        model = self.model  # a graph that kept this model runner would be kept by it, and both of them for ever

        def forward() -> Tensor:
            with set_forward_context(metadata):
                hidden_states: Tensor = model(input_ids, positions)
            return hidden_states

        return forward

    @torch.inference_mode()
    def profile_run(self) -> None:
        """Run the largest possible step without a KV cache, and sample at random, so that the memory it takes shows."""
        ids = torch.zeros(self.max_num_tokens, dtype=torch.int32, device=self.device)
        with set_forward_context(None):
            hidden_states = self._model_forward(ids, torch.zeros_like(ids, dtype=torch.int64))
        logits = self.model.compute_logits(hidden_states[: self.max_num_reqs])
        self.sampler.trial_run(logits)

    def _attention_layers(self) -> list[Attention]:
        return [module for module in self.model.modules() if isinstance(module, Attention)]

    # -- a step -------------------------------------------------------------------------------------------------------
    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """Compute one step as planned, as far as the logits.

        Returns:
            None: `sample_tokens` must follow. Or, of a step without tokens, its empty result.
        """
        if self.inputs_copied is not None:
            self.inputs_copied.synchronize()  # the step before does not read the host's side of the buffers any more
        self._update_states(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        inputs = self._prepare_inputs(scheduler_output)
        attn_metadata = self._build_attention_metadata(inputs)
        if self.inputs_copied is not None:
            self.inputs_copied.record()
        with set_forward_context(attn_metadata):
            hidden_states = self._model_forward(inputs.input_ids, inputs.positions, inputs.graph_size)
        logits = self.model.compute_logits(hidden_states[inputs.logits_indices])
        self.execute_model_state = ExecuteModelState(inputs, logits, hidden_states)
        return None

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput | AsyncGPUModelRunnerOutput:
        """Sample a token for each request whose tokens are now all computed, from the logits of the step.

        Raises:
            EngineError: see `_bookkeeping_sync`.
        """
        assert self.execute_model_state is not None, "`execute_model` comes first, and returns None"
        inputs, logits, hidden_states = self.execute_model_state
        self.execute_model_state = None
        if grammar_output is not None:
            apply_grammar_bitmask(grammar_output, self.input_batch.req_id_to_index, logits)
        self._await_output_token_ids()
        sampler_output = self._sample(logits, inputs.sampling_rows)
        return self._bookkeeping_sync(sampler_output, inputs, logits, hidden_states)

    def _update_states(self, scheduler_output: SchedulerOutput) -> None:
        """Bring requests and batch up to date: who ended, who paused, who is new, who goes on, with which blocks."""
        batch, cached = self.input_batch, scheduler_output.scheduled_cached_reqs
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
            self.in_progress_prompt_logprobs.pop(req_id, None)
            batch.remove_request(req_id)
        # Preempted requests, and running ones that this step leaves out, give up their rows but stay known.
        scheduled = scheduler_output.num_scheduled_tokens.keys()
        for req_id in batch.req_id_to_index.keys() - scheduled | cached.resumed_req_ids:
            batch.remove_request(req_id)

        to_add: list[CachedRequestState] = []
        for new in scheduler_output.scheduled_new_reqs:
            request = self.requests[new.req_id] = CachedRequestState.from_new_request(new, self.device)
            if (wanted := new.sampling_params.prompt_logprobs) is not None:
                wanted = self.model_config.get_vocab_size() if wanted == -1 else wanted
                self.in_progress_prompt_logprobs[new.req_id] = InProgressPromptLogprobs(new.prompt_token_ids, wanted)
            to_add.append(request)

        rows: list[int] = []  # of those that were in the step before, too
        num_computed: list[int] = []
        for req_id, num_computed_tokens, new_block_ids in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            request = self.requests[req_id]
            request.num_computed_tokens = num_computed_tokens
            row = batch.req_id_to_index.get(req_id)
            if row is None:
                to_add.append(request)
            else:
                rows.append(row)
                num_computed.append(num_computed_tokens)
            if new_block_ids is None:
                continue
            if req_id in cached.resumed_req_ids:
                request.block_ids = tuple(list(new) for new in new_block_ids)  # the old ones went when it was preempted
            else:
                for blocks, new_blocks in zip(request.block_ids, new_block_ids, strict=True):
                    blocks.extend(new_blocks)
            if row is not None:
                batch.block_table.append_row(new_block_ids, row)
        batch.num_computed_tokens_cpu[rows] = num_computed

        for request in to_add:
            batch.add_request(request)
        batch.condense()
        batch.refresh_metadata()

    def _prepare_inputs(self, scheduler_output: SchedulerOutput) -> PreparedInputs:
        """Gather the step's tokens and their positions from the batch, and choose the graph that runs them."""
        num_scheduled = np.array(
            [scheduler_output.num_scheduled_tokens[req_id] for req_id in self.input_batch.req_ids], dtype=np.int32
        )
        inputs = self.buffers.prepare(self.input_batch, num_scheduled, self.cudagraphs)
        if self.prev_sampled_token_ids is not None:
            self.buffers.fill_in(len(inputs.input_ids), self.prev_sampled_token_ids)
        return inputs

    def _build_attention_metadata(self, inputs: PreparedInputs) -> dict[str, AttentionMetadata]:
        """Return for each attention layer which tokens belong to which request, and where keys and values are."""
        num_reqs, num_tokens = len(inputs.num_scheduled_tokens), inputs.input_ids.shape[0]
        query_lens_cpu = inputs.num_scheduled_tokens.tolist()
        seq_lens_cpu = self.buffers.seq_lens.np[:num_reqs].tolist()
        padding = 0 if inputs.cudagraph is None else inputs.cudagraph.padding
        return self._make_attention_metadata(num_reqs, num_tokens, num_reqs + padding, query_lens_cpu, seq_lens_cpu)

    def _make_attention_metadata(
        self,
        num_reqs: int,
        num_tokens: int,
        padded: int,
        query_lens_cpu: list[int],
        seq_lens_cpu: list[int],
        max_seq_len: int | None = None,
    ) -> dict[str, AttentionMetadata]:
        """Send the buffers to the device, with `padded` rows where some are padding."""
        query_start_loc = self.buffers.query_start_loc.copy_to_gpu(padded + 1)[: num_reqs + 1]
        seq_lens = self.buffers.seq_lens.copy_to_gpu(padded)[:num_reqs]
        attn_metadata: dict[str, AttentionMetadata] = {}
        for index, group in enumerate(self.kv_cache_groups):
            block_table = self.input_batch.block_table[index]
            common = CommonAttentionMetadata(
                query_start_loc=query_start_loc,
                seq_lens=seq_lens,
                block_table=block_table.commit_block_table(num_reqs, padded),
                slot_mapping=block_table.commit_slot_mapping(max(num_tokens, padded))[:num_tokens],
                query_lens_cpu=query_lens_cpu,
                seq_lens_cpu=seq_lens_cpu,
                block_table_cpu=block_table.block_table.np[:num_reqs],
                max_seq_len=max_seq_len,
            )
            metadata = self.attn_metadata_builders[index].build(common)
            attn_metadata |= dict.fromkeys(group.layer_names, metadata)
        return attn_metadata

    def _model_forward(self, input_ids: Tensor, positions: Tensor, graph_size: int | None = None) -> Tensor:
        """The model itself: ids and positions [T] to hidden states [T, hidden]; or a replay of it, of padded ones."""
        if graph_size is not None:
            assert self.cudagraphs is not None
            return self.cudagraphs.replay(graph_size)[: len(input_ids)]
        hidden_states: Tensor = self.model(input_ids, positions)
        return hidden_states

    def _sample(self, logits: Tensor, sampling_rows: list[int]) -> SamplerOutput:
        """Pick a token for each row.

        A row whose prompt is not complete gets one, too, which is dropped: so the batch need not be taken apart. But
        its own generator is not used, so that its numbers do not depend on how its prompt was cut.
        """
        metadata = self.input_batch.sampling_metadata
        if metadata.generators and len(sampling_rows) < len(logits):
            generators = {row: metadata.generators[row] for row in sampling_rows if row in metadata.generators}
            metadata = replace(metadata, generators=generators)
        output: SamplerOutput = self.sampler(logits, metadata)
        return output

    def _await_output_token_ids(self) -> None:
        """Where penalties or bad words look at what was generated: wait for the tokens of the step before."""
        metadata = self.input_batch.sampling_metadata
        if self.async_output is None or (metadata.no_penalties and not metadata.bad_words_token_ids):
            return
        if any(token_ids and token_ids[-1] < 0 for token_ids in metadata.output_token_ids):  # else none was in it
            self.async_output.get_output()

    def _bookkeeping_sync(
        self, sampler_output: SamplerOutput, inputs: PreparedInputs, logits: Tensor, hidden_states: Tensor
    ) -> ModelRunnerOutput | AsyncGPUModelRunnerOutput:
        """Wait for the sampled tokens, and note them as the requests' next inputs.

        Under asynchronous scheduling nobody waits: placeholders are noted, and the tokens come with the output later.
        A request for which every token is forbidden gets none, and an error; vLLM does not check, and goes on with a
        token that is forbidden.

        Raises:
            EngineError: the logits are no numbers (NaN), so the tokens mean nothing. vLLM does not check.
        """
        batch, rows = self.input_batch, inputs.sampling_rows
        output = ModelRunnerOutput(
            req_ids=batch.req_ids.copy(),
            req_id_to_index=batch.req_id_to_index.copy(),
            sampled_token_ids=[],
            logprobs=None,
            prompt_logprobs_dict=self._get_prompt_logprobs_dict(inputs, hidden_states),
            logits_shape=(logits.shape[0], logits.shape[1]),
        )
        tensors = StepTensors(sampler_output.sampled_token_ids, logits.max(), sampler_output.logprobs_tensors)
        if self.use_async_scheduling:
            batch.append_tokens(rows, [placeholder(row) for row in rows])
            requests = [self.requests[batch.req_ids[row]] for row in rows]
            self.prev_sampled_token_ids = sampler_output.sampled_token_ids
            self.async_output = AsyncGPUModelRunnerOutput(
                output, tensors, rows, requests, self.async_output_copy_stream
            )
            return self.async_output
        check_is_number(tensors.largest, self.model_config.dtype)
        tokens: list[int] = tensors.sampled_token_ids[:, 0].tolist()
        given = [row for row in rows if tokens[row] >= 0]
        batch.append_tokens(given, [tokens[row] for row in given])
        output.sampled_token_ids = [[] for _ in batch.req_ids]
        for row in given:
            output.sampled_token_ids[row] = [tokens[row]]
        failed = [batch.req_ids[row] for row in rows if tokens[row] < 0]
        output.errors = {req_id: why_no_token(req_id, self.requests[req_id].sampling_params) for req_id in failed}
        output.logprobs = None if tensors.logprobs is None else tensors.logprobs.tolists()
        return output

    def _get_prompt_logprobs_dict(self, inputs: PreparedInputs, hidden_states: Tensor) -> dict[str, LogprobsTensors]:
        """The log probabilities of the prompts that are complete now, for the requests that want them."""
        batch, complete = self.input_batch, {}
        for req_id, prompt_logprobs in list(self.in_progress_prompt_logprobs.items()):
            row = batch.req_id_to_index.get(req_id)
            if row is None:
                continue  # it pauses
            start, end = self.buffers.query_start_loc.np[row : row + 2].tolist()
            num_computed_tokens = int(batch.num_computed_tokens_cpu[row])
            if prompt_logprobs.add_chunk(num_computed_tokens, hidden_states[start:end], self.model.compute_logits):
                complete[req_id] = self.in_progress_prompt_logprobs.pop(req_id).tensors
        return complete

"""The model runner: turns a scheduler's plan into tensors, runs the model, and samples the next tokens.

In a request's life: every step, in two calls. `execute_model` is the forward pass:
`_update_states` -> `_prepare_inputs` -> `_build_attention_metadata` -> `_model_forward` -> `compute_logits`. It keeps
the logits for `sample_tokens`: `_sample` -> `_bookkeeping_sync`. Between the two, while the device computes, the
scheduler finds the tokens that the grammars allow. A pipeline stage that is not the last ends with `_model_forward`.

vLLM: vllm/v1/worker/gpu_model_runner.py::GPUModelRunner, ModelRunner in older documents. Left out: speculative tokens.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tracellm.engine.attention.backend import AttentionMetadata, AttentionMetadataBuilder, CommonAttentionMetadata
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig, KVCacheGroupSpec
from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput
from tracellm.engine.core.structured_output.utils import apply_grammar_bitmask
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.model_executor.layers.forward_context import set_forward_context
from tracellm.engine.model_executor.model_loader import DefaultModelLoader
from tracellm.engine.model_executor.models.interfaces import SupportsMultiModal
from tracellm.engine.model_executor.models.utils import CausalLM, IntermediateTensors
from tracellm.engine.model_executor.ops import make_ops, using_ops
from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.sampler import Sampler
from tracellm.engine.worker import attn_utils
from tracellm.engine.worker.async_output import (
    AsyncGPUModelRunnerOutput,
    PrevSampledTokens,
    StepTensors,
    fill_output,
    placeholder,
)
from tracellm.engine.worker.cpu_gpu_buffer import CpuGpuBuffer
from tracellm.engine.worker.cudagraphs import CudaGraphs, get_capture_sizes, get_eager_reason, make_decode_forward
from tracellm.engine.worker.encoder_runner import EncoderRunner
from tracellm.engine.worker.gpu_input_batch import CachedRequestState, InputBatch
from tracellm.engine.worker.memory import explain_large_steps
from tracellm.engine.worker.model_runner_inputs import ExecuteModelState, PreparedInputs
from tracellm.engine.worker.model_runner_output import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
)
from tracellm.engine.worker.pooling import make_pooling_output
from tracellm.engine.worker.prompt_logprobs import PromptLogprobs

__all__ = ["GPUModelRunner"]


class GPUModelRunner:
    """Runs the model on one device, step by step; used by `Worker`."""

    model: CausalLM
    input_batch: InputBatch
    """Requests of the current step; made with the KV cache, because it has a block table per KV cache group."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.device = device
        self.is_pooling_model = vllm_config.model_config.is_pooling_model
        self.ops = make_ops(vllm_config.ops_choice.name)
        self.pp_group = get_pp_group()
        limits = vllm_config.scheduler_config
        self.max_num_reqs = limits.max_num_seqs
        # A larger budget than all requests together can use would only cost memory.
        self.max_num_tokens = min(limits.max_num_batched_tokens, self.max_num_reqs * limits.max_model_len)

        self.requests: dict[str, CachedRequestState] = {}
        """Requests that were scheduled and have not ended, in the batch or preempted."""
        generator = torch.Generator(device).manual_seed(self.model_config.seed)
        self.sampler = Sampler(generator, self.model_config.logprobs_mode, self.ops)
        self.encoder_runner: EncoderRunner | None = None
        """Encoders of images and sounds; None for a text model."""
        self.kv_caches: list[Tensor] = []
        self.kv_cache_groups: list[KVCacheGroupSpec] = []
        self.attn_metadata_builders: dict[int, AttentionMetadataBuilder] = {}
        """Builder of each KV cache group, by its index."""
        self.execute_model_state: ExecuteModelState | None = None
        self.cudagraphs: CudaGraphs | None = None
        """Captured decode CUDA graphs, or None."""
        self.eager_reason = get_eager_reason(vllm_config)
        """Reason why no graphs are captured, or None."""
        self.prompt_logprobs = PromptLogprobs(self.model_config.get_vocab_size())

        # Inputs of a step. These buffers never move, so CUDA graphs (cudagraphs.py) can read them by address.
        self.arange_np = np.arange(max(self.max_num_tokens, self.max_num_reqs) + 1)
        self.input_ids = CpuGpuBuffer(self.max_num_tokens, dtype=torch.int32, device=device)
        self.positions = CpuGpuBuffer(self.max_num_tokens, dtype=torch.int64, device=device)
        self.query_start_loc = CpuGpuBuffer(self.max_num_reqs + 1, dtype=torch.int32, device=device)
        """Row i has the tokens query_start_loc[i] .. query_start_loc[i + 1] - 1."""
        self.seq_lens = CpuGpuBuffer(self.max_num_reqs, dtype=torch.int32, device=device)
        """Tokens of each row that are computed after the step."""
        self.logits_indices = CpuGpuBuffer(self.max_num_reqs, dtype=torch.int64, device=device)

        # Asynchronous scheduling: see async_output.py.
        self.use_async_scheduling = limits.async_scheduling
        self.prev_sampled = PrevSampledTokens(self.max_num_reqs, device)
        self.async_output: AsyncGPUModelRunnerOutput | None = None
        """Output of the previous step, or None."""
        on_gpu = limits.async_scheduling and device.type == "cuda"
        self.async_output_copy_stream = torch.cuda.Stream(device) if on_gpu else None
        self.inputs_copied = torch.cuda.Event() if on_gpu else None
        """Recorded when the inputs of the last step are on the device."""

    # -- start-up -----------------------------------------------------------------------------------------------------
    def load_model(self) -> None:
        """Load the model onto the device.

        Raises:
            ModelLoadError: it cannot be loaded; the message gives the reason.
        """
        with using_ops(self.ops):
            self.model = DefaultModelLoader().load_model(self.vllm_config)
        self.ops.prepare_weights(self.model)
        if isinstance(self.model, SupportsMultiModal):
            self.encoder_runner = EncoderRunner(self.model, self.device, self.model_config.dtype)

    @torch.inference_mode()
    def profile_run(self) -> None:
        """Run the largest possible step without a KV cache, and sample or pool, to measure its peak memory."""
        hidden_states = self._dummy_run(self.max_num_tokens)
        if self.is_pooling_model and isinstance(hidden_states, Tensor):
            functional.normalize(hidden_states.float(), dim=-1)  # the largest result: a vector for each token
        elif isinstance(hidden_states, Tensor):
            logits = self.model.compute_logits(hidden_states[: self.max_num_reqs])
            generator = torch.Generator(self.device)  # not that of the requests, whose tokens must not depend on it
            sampler = Sampler(generator, self.model_config.logprobs_mode, self.ops)
            sampler(logits, SamplingMetadata.for_dummy_run(logits.shape[0], logits.shape[1], self.device))

    @torch.inference_mode()
    def _dummy_run(self, num_tokens: int) -> Tensor | IntermediateTensors:
        """Compute a batch of tokens that belong to no request, without a KV cache; return the model's output."""
        ids = torch.zeros(num_tokens, dtype=torch.int32, device=self.device)
        received = None
        if not self.pp_group.is_first_rank:
            config = self.model_config
            received = IntermediateTensors.zeros(len(ids), config.get_hidden_size(), config.dtype, self.device)
        with set_forward_context(None):
            return self._model_forward(ids, torch.zeros_like(ids, dtype=torch.int64), received)

    def get_kv_cache_spec(self) -> dict[str, AttentionSpec]:
        """Return what each attention layer stores per token, by the layer's name."""
        return attn_utils.get_kv_cache_spec(self.model, self.vllm_config)

    def initialize_kv_cache(self, kv_cache_config: KVCacheConfig) -> None:
        """Make the batch and each layer's KV cache; see `attn_utils.init_kv_cache`.

        Raises:
            EngineError: the memory cannot hold the KV cache, or the inputs of the largest possible step.
        """
        self.kv_cache_groups = kv_cache_config.kv_cache_groups
        with explain_large_steps(self.vllm_config.scheduler_config):
            self.input_batch = InputBatch(
                max_num_reqs=self.max_num_reqs,
                max_model_len=self.model_config.max_model_len,
                max_num_batched_tokens=self.max_num_tokens,
                block_sizes=[group.kv_cache_spec.block_size for group in self.kv_cache_groups],
                vocab_size=self.model_config.get_vocab_size(),
                device=self.device,
                is_pooling_model=self.is_pooling_model,
            )
        self.attn_metadata_builders = attn_utils.init_attn_backend(self.model, kv_cache_config)
        self.kv_caches = attn_utils.init_kv_cache(self.model, kv_cache_config, self.device)

    def prefault_kv_cache(self) -> None:
        """Write to the whole KV cache, so that the system provides its memory now; CUDA has done so already."""
        if self.device.type == "cpu":
            for kv_cache in self.kv_caches:
                kv_cache.zero_()

    @torch.inference_mode()
    def capture_model(self) -> None:
        """Capture CUDA graphs of decode steps over the current KV cache, if this engine uses any.

        Their memory comes out of the share that `gpu_memory_utilization` leaves free, as in vLLM 0.11.1.
        """
        if self.eager_reason is None:
            self.cudagraphs = CudaGraphs(get_capture_sizes(min(self.max_num_reqs, self.max_num_tokens)))
            self.cudagraphs.capture(partial(make_decode_forward, self))

    # -- a step: the forward pass -------------------------------------------------------------------------------------
    @torch.inference_mode()
    def execute_model(
        self, scheduler_output: SchedulerOutput, intermediate_tensors: IntermediateTensors | None = None
    ) -> ModelRunnerOutput | IntermediateTensors | None:
        """Compute one step as planned, up to the logits, from the previous pipeline stage's results if there is one.

        Returns:
            None if `sample_tokens` must follow; results for the next stage; the output of a step that does not sample.
        """
        if self.inputs_copied is not None:
            self.inputs_copied.synchronize()  # from here on the host's side of the buffers may be overwritten
        self._update_states(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        inputs = self._prepare_inputs(scheduler_output)
        attn_metadata = self._build_attention_metadata(inputs)
        if self.inputs_copied is not None:
            self.inputs_copied.record()
        with set_forward_context(attn_metadata):
            inputs_embeds = self._preprocess(scheduler_output, inputs)
            hidden_states = self._model_forward(
                inputs.input_ids, inputs.positions, intermediate_tensors, inputs_embeds, inputs.graph_size
            )
        if isinstance(hidden_states, IntermediateTensors):
            return hidden_states
        if self.is_pooling_model:
            return self._pool(hidden_states, inputs)
        logits = self.model.compute_logits(hidden_states[inputs.logits_indices])
        self.execute_model_state = ExecuteModelState(inputs, logits, hidden_states)
        return None

    def _update_states(self, scheduler_output: SchedulerOutput) -> None:
        """Update requests and batch: remove ended and paused requests, add new and resumed ones, append blocks."""
        batch, cached = self.input_batch, scheduler_output.scheduled_cached_reqs
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
            self.prompt_logprobs.remove_request(req_id)
            batch.remove_request(req_id)
        # Preempted requests, and running ones that this step leaves out, lose their rows but stay in `requests`.
        scheduled = scheduler_output.num_scheduled_tokens.keys()
        for req_id in batch.req_id_to_index.keys() - scheduled | cached.resumed_req_ids:
            batch.remove_request(req_id)

        if self.encoder_runner is not None:
            self.encoder_runner.free(scheduler_output.free_encoder_mm_hashes)
        to_add: list[CachedRequestState] = []
        for new in scheduler_output.scheduled_new_reqs:
            request = self.requests[new.req_id] = CachedRequestState.from_new_request(new, self.device)
            self.prompt_logprobs.add_request(new)
            if self.encoder_runner is not None:
                self.encoder_runner.add_request(request)
            to_add.append(request)

        rows: list[int] = []  # rows of the requests that were in the step before, too
        num_computed: list[int] = []
        for index, (req_id, num_computed_tokens, new_block_ids) in enumerate(
            zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True)
        ):
            request = self.requests[req_id]
            request.update(num_computed_tokens, new_block_ids, req_id in cached.resumed_req_ids)
            row = batch.req_id_to_index.get(req_id)
            if not self.pp_group.is_last_rank:  # the last one has sampled these tokens
                token_ids = cached.new_token_ids[index][request.num_tokens - num_computed_tokens :]
                request.output_token_ids += token_ids
                if row is not None:
                    batch.add_tokens(row, token_ids)
            if row is None:
                to_add.append(request)
                continue
            rows.append(row)
            num_computed.append(num_computed_tokens)
            if new_block_ids is not None:
                batch.block_table.append_row(new_block_ids, row)
        batch.num_computed_tokens_cpu[rows] = num_computed

        for request in to_add:
            batch.add_request(request)
        batch.condense()
        batch.refresh_metadata()

    def _prepare_inputs(self, scheduler_output: SchedulerOutput) -> PreparedInputs:
        """Gather the step's tokens, their positions and their KV cache slots, and choose a CUDA graph."""
        batch = self.input_batch
        num_scheduled = np.array(
            [scheduler_output.num_scheduled_tokens[req_id] for req_id in batch.req_ids], dtype=np.int32
        )
        num_reqs, num_tokens = batch.num_reqs, int(num_scheduled.sum())
        num_computed = batch.num_computed_tokens_cpu[:num_reqs]
        ends = np.cumsum(num_scheduled)

        # Requests of 2, 1 and 3 tokens: rows = [0 0 1 2 2 2], and positions count up from each one's num_computed.
        rows: np.ndarray = self.arange_np[:num_reqs]
        positions: np.ndarray = num_computed
        if num_tokens > num_reqs:  # else every request decodes
            rows = np.repeat(rows, num_scheduled)
            positions = self.arange_np[:num_tokens] - np.repeat(ends - num_scheduled - num_computed, num_scheduled)
        self.positions.np[:num_tokens] = positions
        self.input_ids.np[:num_tokens] = batch.token_ids_cpu[rows, positions]
        batch.block_table.compute_slot_mapping(rows, positions)

        self.query_start_loc.np[1 : num_reqs + 1] = ends
        self.seq_lens.np[:num_reqs] = num_computed + num_scheduled
        self.logits_indices.np[:num_reqs] = ends - 1
        graph = None if self.cudagraphs is None else self.cudagraphs.choose(num_reqs, num_tokens)
        num_padded = num_tokens  # only decode steps are padded, with one token per request
        if graph is not None and graph.size is not None:
            num_padded = graph.size
            self.pad_inputs(num_reqs, num_padded)
        sampling_rows = np.flatnonzero(self.seq_lens.np[:num_reqs] == batch.num_tokens[:num_reqs])
        return PreparedInputs(
            input_ids=self._prepare_input_ids(num_tokens, num_padded),
            positions=self.positions.copy_to_gpu(num_padded)[:num_tokens],
            num_scheduled_tokens=num_scheduled,
            sampling_rows=sampling_rows.tolist(),
            logits_indices=self.logits_indices.copy_to_gpu(num_reqs),
            cudagraph=graph,
        )

    def pad_inputs(self, num_reqs: int, size: int) -> None:
        """Fill rows num_reqs .. size - 1 with requests of one token, whose key and value go to the null block."""
        self.input_ids.np[num_reqs:size] = 0
        self.positions.np[num_reqs:size] = 0
        self.query_start_loc.np[num_reqs : size + 1] = self.arange_np[num_reqs : size + 1]
        self.seq_lens.np[num_reqs:size] = 1
        self.input_batch.block_table.pad(num_reqs, size)

    def _prepare_input_ids(self, num_tokens: int, num_padded: int) -> Tensor:
        """Send the token ids to the device, and replace the placeholders of tokens that only the device has."""
        input_ids = self.input_ids.copy_to_gpu(num_padded)[:num_tokens]
        self.prev_sampled.replace_placeholders(self.input_ids.np[:num_tokens], input_ids)
        return input_ids

    def _build_attention_metadata(self, inputs: PreparedInputs) -> dict[str, AttentionMetadata]:
        """Return for each attention layer which tokens belong to which request, and where keys and values are."""
        num_reqs, num_tokens = len(inputs.num_scheduled_tokens), inputs.input_ids.shape[0]
        query_lens_cpu = inputs.num_scheduled_tokens.tolist()
        seq_lens_cpu = self.seq_lens.np[:num_reqs].tolist()
        padding = 0 if inputs.cudagraph is None else inputs.cudagraph.padding
        return self.make_attention_metadata(num_reqs, num_tokens, num_reqs + padding, query_lens_cpu, seq_lens_cpu)

    def make_attention_metadata(
        self,
        num_reqs: int,
        num_tokens: int,
        padded: int,
        query_lens_cpu: list[int],
        seq_lens_cpu: list[int],
        max_seq_len: int | None = None,
    ) -> dict[str, AttentionMetadata]:
        """Send the buffers to the device, with `padded` rows where some are padding."""
        query_start_loc = self.query_start_loc.copy_to_gpu(padded + 1)[: num_reqs + 1]
        seq_lens = self.seq_lens.copy_to_gpu(padded)[:num_reqs]
        attn_metadata: dict[str, AttentionMetadata] = {}
        for index, builder in self.attn_metadata_builders.items():
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
            layer_names = self.kv_cache_groups[index].layer_names
            attn_metadata |= dict.fromkeys(layer_names, builder.build(common))
        return attn_metadata

    def _preprocess(self, scheduler_output: SchedulerOutput, inputs: PreparedInputs) -> Tensor | None:
        """Encode the step's images and sounds, and set M-RoPE positions.

        Returns:
            The vectors [T, hidden] of the step's tokens; None if the model or an earlier stage looks all of them up.
        """
        if self.encoder_runner is None:
            return None
        if self.pp_group.is_first_rank:
            self._execute_mm_encoder(scheduler_output)
        step = self.input_batch.req_ids, inputs.num_scheduled_tokens.tolist(), self.requests
        if (positions := self.encoder_runner.get_mrope_positions(*step)) is not None:
            inputs.positions = positions
            if inputs.graph_size is not None:  # of decoded tokens, whose three positions are equal
                self.positions.gpu[: positions.shape[1]] = positions[0]
        return self.encoder_runner.get_inputs_embeds(inputs.input_ids, *step) if self.pp_group.is_first_rank else None

    def _execute_mm_encoder(self, scheduler_output: SchedulerOutput) -> None:
        """Encode the items that the scheduler has chosen."""
        if self.encoder_runner is not None and scheduler_output.scheduled_encoder_inputs:
            self.encoder_runner.execute(scheduler_output.scheduled_encoder_inputs, self.requests)

    def _model_forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
        graph_size: int | None = None,
    ) -> Tensor | IntermediateTensors:
        """Run the model on positions [T] and ids [T] or vectors [T, hidden], or replay its graph of this size."""
        if graph_size is not None:
            assert self.cudagraphs is not None
            return self.cudagraphs.replay(graph_size)[: len(input_ids)]
        further = {"intermediate_tensors": intermediate_tensors, "inputs_embeds": inputs_embeds}
        given = {name: value for name, value in further.items() if value is not None}
        output: Tensor | IntermediateTensors = self.model(input_ids, positions, **given)
        return output

    def _pool(self, hidden_states: Tensor, inputs: PreparedInputs) -> ModelRunnerOutput:
        """Pool the hidden states [T, hidden] of each request whose prompt is complete after the step."""
        metadata = self.input_batch.get_pooling_metadata()
        metadata.build_pooling_cursor(inputs.num_scheduled_tokens.tolist(), hidden_states.device)
        return make_pooling_output(self.input_batch, self.model.pooler(hidden_states, metadata), inputs.sampling_rows)

    # -- a step: sampling ---------------------------------------------------------------------------------------------
    @torch.inference_mode()
    def sample_tokens(
        self, grammar_output: GrammarOutput | None
    ) -> ModelRunnerOutput | AsyncGPUModelRunnerOutput | None:
        """Sample a token for each request whose tokens are now all computed, from the logits of the step.

        Returns:
            The step's output; None in a pipeline stage that is not the last one, which has no logits.

        Raises:
            EngineError: see `_bookkeeping_sync`.
        """
        if not self.pp_group.is_last_rank:
            return None
        assert self.execute_model_state is not None, "`execute_model` comes first, and returns None"
        inputs, logits, hidden_states = self.execute_model_state
        self.execute_model_state = None
        if grammar_output is not None:
            apply_grammar_bitmask(grammar_output, self.input_batch.req_id_to_index, logits)
        self._await_output_token_ids()
        sampler_output = self._sample(logits, inputs.sampling_rows)
        return self._bookkeeping_sync(sampler_output, inputs, logits, hidden_states)

    def _await_output_token_ids(self) -> None:
        """Wait for the tokens of the previous step if penalties or bad words need them."""
        metadata = self.input_batch.sampling_metadata
        if self.async_output is None or (metadata.no_penalties and not metadata.bad_words_token_ids):
            return
        if any(token_ids and token_ids[-1] < 0 for token_ids in metadata.output_token_ids):
            self.async_output.get_output()

    def _sample(self, logits: Tensor, sampling_rows: list[int]) -> SamplerOutput:
        """Pick a token for each row.

        Rows whose prompt is not complete get one, too, which is dropped: the batch need not be split. But their own
        generators are not used, so their random numbers do not depend on how the prompt is chunked.
        """
        metadata = self.input_batch.sampling_metadata
        if metadata.generators and len(sampling_rows) < len(logits):
            generators = {row: metadata.generators[row] for row in sampling_rows if row in metadata.generators}
            metadata = replace(metadata, generators=generators)
        output: SamplerOutput = self.sampler(logits, metadata)
        return output

    def _bookkeeping_sync(
        self, sampler_output: SamplerOutput, inputs: PreparedInputs, logits: Tensor, hidden_states: Tensor
    ) -> ModelRunnerOutput | AsyncGPUModelRunnerOutput:
        """Wait for the sampled tokens, and append them to the requests.

        Under asynchronous scheduling, append placeholders without waiting; the tokens come with the output later.

        Raises:
            EngineError: the logits are NaN; see `fill_output`.
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
        requests = [self.requests[batch.req_ids[row]] for row in rows]
        if self.use_async_scheduling:
            batch.append_tokens(rows, [placeholder(row) for row in rows])
            self.prev_sampled.token_ids = sampler_output.sampled_token_ids
            self.async_output = AsyncGPUModelRunnerOutput(
                output, tensors, rows, requests, self.async_output_copy_stream
            )
            return self.async_output
        tokens = fill_output(output, tensors, rows, requests)
        succeeded = [row for row in rows if tokens[row] >= 0]
        batch.append_tokens(succeeded, [tokens[row] for row in succeeded])
        return output

    def _get_prompt_logprobs_dict(self, inputs: PreparedInputs, hidden_states: Tensor) -> dict[str, LogprobsTensors]:
        """Return the prompt log probabilities of the requests whose prompt this step completed."""
        return self.prompt_logprobs.add_step(
            self.input_batch, self.query_start_loc.np, hidden_states, self.model.compute_logits
        )

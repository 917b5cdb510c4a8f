"""The names in each module of vLLM 0.11.1, with tracellm's modules that have them, for `--engine tracellm`.

Each module of vLLM lists tracellm's modules (below `tracellm.`) with the names from each; `theirs=ours` is a name that
differs. To offer another name, add it here. Tests check the table against tracellm and a real vLLM.

`vllm.AsyncLLM` is used in tracellm's documents; a real vLLM has it in `vllm.v1.engine.async_llm` only.
"""

__all__ = ["HOMES", "MISSING_AREAS", "PACKAGES", "VALUES", "VERSION"]

VERSION = "0.11.1"
"""Version of vLLM with these names."""

_OUTPUTS = (
    "RequestOutput CompletionOutput PoolingOutput PoolingRequestOutput EmbeddingOutput EmbeddingRequestOutput "
    "ScoringOutput ScoringRequestOutput"
)

_TABLE: dict[str, dict[str, str]] = {
    "vllm": {
        "engine.entrypoints.llm": "LLM",
        "engine.sample.sampling_params": "SamplingParams",
        "engine.pool.pooling_params": "PoolingParams",
        "engine.frontend.outputs": _OUTPUTS,
        "engine.frontend.async_llm": "AsyncLLM AsyncLLMEngine=AsyncLLM",
        "engine.frontend.llm_engine": "LLMEngine",
        "engine.frontend.preprocess": "PromptType",
        "as_vllm.definitions": "EngineArgs AsyncEngineArgs TextPrompt TokensPrompt",
    },
    "vllm.version": {},
    "vllm.envs": {"as_vllm.definitions": "VLLM_ENABLE_V1_MULTIPROCESSING"},
    "vllm.sampling_params": {
        "engine.sample.sampling_params": "SamplingParams RequestOutputKind SamplingType StructuredOutputsParams "
        "GuidedDecodingParams",
        "engine.entrypoints.beam_search": "BeamSearchParams",
    },
    "vllm.beam_search": {
        "engine.entrypoints.beam_search": "BeamSearchInstance BeamSearchOutput BeamSearchSequence "
        "get_beam_search_score",
    },
    "vllm.outputs": {
        "engine.frontend.outputs": _OUTPUTS,
    },
    "vllm.pooling_params": {"engine.pool.pooling_params": "PoolingParams"},
    "vllm.config.pooler": {"engine.config.pooler": "PoolerConfig"},
    "vllm.v1.pool.metadata": {"engine.pool.metadata": "PoolingCursor PoolingMetadata"},
    "vllm.logprobs": {"engine.frontend.logprobs": "Logprob LogprobsOnePosition PromptLogprobs SampleLogprobs"},
    "vllm.inputs": {
        "engine.frontend.preprocess": "PromptType TokenInputs",
        "as_vllm.definitions": "TextPrompt TokensPrompt",
    },
    "vllm.inputs.data": {
        "engine.frontend.preprocess": "PromptType TokenInputs",
        "as_vllm.definitions": "TextPrompt TokensPrompt",
    },
    "vllm.multimodal": {
        "engine.multimodal.registry": "MULTIMODAL_REGISTRY MultiModalRegistry",
        "engine.multimodal.hasher": "MultiModalHasher",
    },
    "vllm.multimodal.hasher": {"engine.multimodal.hasher": "MultiModalHasher"},
    "vllm.multimodal.inputs": {
        "engine.multimodal.inputs": "MultiModalFeatureSpec MultiModalKwargsItem PlaceholderRange",
    },
    "vllm.multimodal.parse": {"engine.multimodal.parse": "MultiModalDataItems MultiModalDataParser"},
    "vllm.multimodal.processing": {
        "engine.multimodal.processing": "BaseMultiModalProcessor PromptReplacement",
    },
    "vllm.multimodal.registry": {"engine.multimodal.registry": "MultiModalRegistry"},
    "vllm.config.multimodal": {"engine.config.multimodal": "MultiModalConfig"},
    "vllm.v1.core.encoder_cache_manager": {"engine.core.encoder_cache_manager": "EncoderCacheManager"},
    "vllm.inputs.preprocess": {"engine.frontend.preprocess": "InputPreprocessor"},
    "vllm.config": {
        "engine.config.vllm_config": "VllmConfig ModelConfig CacheConfig SchedulerConfig DeviceConfig",
        "engine.config.pooler": "PoolerConfig",
    },
    "vllm.config.vllm": {"engine.config.vllm_config": "VllmConfig"},
    "vllm.config.model": {"engine.config.vllm_config": "ModelConfig"},
    "vllm.config.cache": {"engine.config.vllm_config": "CacheConfig"},
    "vllm.config.scheduler": {"engine.config.vllm_config": "SchedulerConfig"},
    "vllm.config.device": {"engine.config.vllm_config": "DeviceConfig"},
    "vllm.utils": {"engine.entrypoints.openai.protocol": "random_uuid"},
    # entry points
    "vllm.entrypoints.llm": {"engine.entrypoints.llm": "LLM"},
    "vllm.entrypoints.cli.main": {},
    "vllm.entrypoints.openai.api_server": {
        "engine.entrypoints.openai.api_server": "build_app build_async_engine_client "
        "build_async_engine_client_from_engine_args init_app_state run_server run_server_worker",
    },
    "vllm.entrypoints.openai.protocol": {
        "engine.entrypoints.openai.protocol": "ChatCompletionRequest ChatCompletionResponse "
        "ChatCompletionStreamResponse ChatMessage CompletionRequest CompletionResponse CompletionStreamResponse "
        "DeltaMessage ErrorResponse ModelCard ModelList UsageInfo",
        "engine.entrypoints.openai.tokenize.protocol": "DetokenizeRequest DetokenizeResponse TokenizeRequest "
        "TokenizeResponse",
        "engine.entrypoints.openai.responses.protocol": "ResponsesRequest ResponsesResponse ResponseUsage "
        "InputTokensDetails OutputTokensDetails",
        "engine.entrypoints.pooling.protocol": "EmbeddingChatRequest EmbeddingCompletionRequest EmbeddingRequest "
        "EmbeddingResponse EmbeddingResponseData PoolingChatRequest PoolingCompletionRequest PoolingRequest "
        "PoolingResponse PoolingResponseData RerankDocument RerankRequest RerankResponse RerankResult RerankUsage "
        "ScoreRequest ScoreResponse ScoreResponseData",
    },
    "vllm.entrypoints.openai.serving_embedding": {
        "engine.entrypoints.pooling.serving_embedding": "OpenAIServingEmbedding",
    },
    "vllm.entrypoints.openai.serving_pooling": {"engine.entrypoints.pooling.serving_pooling": "OpenAIServingPooling"},
    "vllm.entrypoints.openai.serving_score": {"engine.entrypoints.pooling.serving_score": "ServingScores"},
    "vllm.entrypoints.openai.serving_chat": {"engine.entrypoints.openai.serving_chat": "OpenAIServingChat"},
    "vllm.entrypoints.openai.serving_completion": {
        "engine.entrypoints.openai.serving_completion": "OpenAIServingCompletion",
    },
    "vllm.entrypoints.openai.serving_engine": {"engine.entrypoints.openai.serving_engine": "OpenAIServing"},
    "vllm.entrypoints.openai.serving_models": {
        "engine.entrypoints.openai.serving_models": "OpenAIServingModels BaseModelPath",
    },
    "vllm.entrypoints.openai.serving_responses": {
        "engine.entrypoints.openai.responses.serving": "OpenAIServingResponses",
    },
    "vllm.entrypoints.openai.serving_tokenization": {
        "engine.entrypoints.openai.tokenize.serving": "OpenAIServingTokenization",
    },
    # the engine, front half
    "vllm.engine.arg_utils": {"as_vllm.definitions": "EngineArgs AsyncEngineArgs"},
    "vllm.engine.llm_engine": {"engine.frontend.llm_engine": "LLMEngine"},
    "vllm.engine.async_llm_engine": {"engine.frontend.async_llm": "AsyncLLMEngine=AsyncLLM"},
    "vllm.engine.protocol": {"engine.frontend.protocol": "EngineClient"},
    "vllm.v1.engine": {
        "engine.ipc.messages": "EngineCoreRequest EngineCoreRequestType EngineCoreOutput EngineCoreOutputs "
        "EngineCoreEvent EngineCoreEventType FinishReason UtilityOutput",
    },
    "vllm.v1.engine.async_llm": {"engine.frontend.async_llm": "AsyncLLM"},
    "vllm.v1.engine.llm_engine": {"engine.frontend.llm_engine": "LLMEngine"},
    "vllm.v1.engine.processor": {"engine.frontend.processor": "Processor"},
    "vllm.v1.engine.core_client": {
        "engine.ipc.core_client": "EngineCoreClient InprocClient",
        "engine.ipc.mp_client": "MPClient SyncMPClient AsyncMPClient BackgroundResources",
        "engine.ipc.dp_client": "DPLBAsyncMPClient",
    },
    "vllm.v1.engine.core": {
        "engine.core.core": "EngineCore",
        "engine.core.core_proc": "EngineCoreProc",
        "engine.core.dp_core_proc": "DPEngineCoreProc",
    },
    "vllm.v1.engine.utils": {"engine.ipc.launch": "CoreEngineProcManager"},
    "vllm.v1.engine.output_processor": {
        "engine.frontend.output_processor": "OutputProcessor OutputProcessorOutput RequestState",
        "engine.frontend.output_collector": "RequestOutputCollector",
    },
    "vllm.v1.engine.detokenizer": {"engine.frontend.detokenizer": "FastIncrementalDetokenizer IncrementalDetokenizer"},
    "vllm.v1.engine.logprobs": {"engine.frontend.logprobs": "LogprobsProcessor"},
    "vllm.v1.engine.parallel_sampling": {"engine.frontend.parallel_sampling": "ParentRequest"},
    "vllm.v1.engine.exceptions": {"engine.config.errors": "EngineDeadError EngineGenerateError"},
    "vllm.v1.serial_utils": {"engine.ipc.serial_utils": "MsgpackEncoder MsgpackDecoder"},
    "vllm.v1.metrics.loggers": {
        "engine.metrics.loggers": "StatLoggerBase LoggingStatLogger StatLoggerManager StatLoggerFactory",
        "engine.metrics.prometheus": "PrometheusStatLogger",
    },
    "vllm.v1.metrics.stats": {
        "engine.metrics.stats": "IterationStats RequestStateStats FinishedRequestStats SchedulerStats PrefixCacheStats "
        "CachingMetrics",
    },
    # the engine, back half
    "vllm.v1.request": {"engine.core.request": "Request RequestStatus"},
    "vllm.v1.outputs": {
        "engine.worker.model_runner_output": "ModelRunnerOutput SamplerOutput LogprobsLists LogprobsTensors "
        "EMPTY_MODEL_RUNNER_OUTPUT",
    },
    "vllm.v1.core.sched.scheduler": {"engine.core.sched.scheduler": "Scheduler"},
    "vllm.v1.core.sched.output": {
        "engine.core.sched.output": "SchedulerOutput NewRequestData CachedRequestData GrammarOutput",
    },
    "vllm.v1.core.sched.request_queue": {
        "engine.core.sched.request_queue": "RequestQueue FCFSRequestQueue PriorityRequestQueue SchedulingPolicy "
        "create_request_queue",
    },
    "vllm.v1.core.block_pool": {"engine.core.kv_cache.block_pool": "BlockPool BlockHashToBlockMap"},
    "vllm.v1.core.kv_cache_manager": {"engine.core.kv_cache.kv_cache_manager": "KVCacheManager KVCacheBlocks"},
    "vllm.v1.core.kv_cache_coordinator": {
        "engine.core.kv_cache.kv_cache_coordinator": "KVCacheCoordinator KVCacheCoordinatorNoPrefixCache "
        "UnitaryKVCacheCoordinator HybridKVCacheCoordinator",
    },
    "vllm.v1.core.kv_cache_utils": {
        "engine.core.kv_cache.kv_cache_utils": "BlockHash KVCacheBlock FreeKVCacheBlockQueue hash_block_tokens",
    },
    "vllm.v1.core.single_type_kv_cache_manager": {
        "engine.core.kv_cache.single_type_kv_cache_manager": "SingleTypeKVCacheManager FullAttentionManager "
        "SlidingWindowManager",
    },
    "vllm.v1.kv_cache_interface": {
        "engine.core.kv_cache.kv_cache_interface": "AttentionSpec FullAttentionSpec SlidingWindowSpec KVCacheConfig "
        "KVCacheGroupSpec KVCacheTensor",
    },
    "vllm.v1.structured_output": {"engine.core.structured_output.manager": "StructuredOutputManager"},
    "vllm.v1.executor.abstract": {
        "engine.executor.abstract": "Executor",
        "engine.executor.uniproc_executor": "UniProcExecutor",
    },
    "vllm.v1.executor.uniproc_executor": {"engine.executor.uniproc_executor": "UniProcExecutor"},
    "vllm.v1.worker.worker_base": {"engine.worker.worker_base": "WorkerWrapperBase"},
    "vllm.v1.worker.gpu_worker": {"engine.worker.gpu_worker": "Worker"},
    "vllm.v1.worker.gpu_model_runner": {"engine.worker.gpu_model_runner": "GPUModelRunner"},
    "vllm.v1.worker.gpu_input_batch": {"engine.worker.gpu_input_batch": "InputBatch CachedRequestState"},
    "vllm.v1.worker.block_table": {"engine.worker.block_table": "BlockTable MultiGroupBlockTable"},
    "vllm.v1.sample.sampler": {"engine.sample.sampler": "Sampler"},
    "vllm.v1.sample.metadata": {"engine.sample.metadata": "SamplingMetadata"},
    # the model
    "vllm.attention.backends.abstract": {
        "engine.attention.backend": "AttentionBackend AttentionImpl AttentionMetadata",
    },
    "vllm.v1.attention.backends.utils": {
        "engine.attention.backend": "AttentionMetadataBuilder CommonAttentionMetadata",
    },
    "vllm.attention.layer": {"engine.model_executor.layers.attention": "Attention"},
    "vllm.model_executor.layers.activation": {"engine.model_executor.layers.activation": "SiluAndMul GeluAndMul"},
    "vllm.model_executor.layers.layernorm": {"engine.model_executor.layers.layernorm": "RMSNorm GemmaRMSNorm"},
    "vllm.model_executor.layers.linear": {
        "engine.model_executor.layers.linear": "ColumnParallelLinear MergedColumnParallelLinear "
        "QKVParallelLinear ReplicatedLinear RowParallelLinear",
    },
    "vllm.model_executor.layers.pooler": {
        "engine.model_executor.layers.pooler": "AllPool CLSPool DispatchPooler EmbeddingPoolerHead LastPool MeanPool "
        "Pooler",
    },
    "vllm.model_executor.layers.rotary_embedding": {
        "engine.model_executor.layers.rotary_embedding": "RotaryEmbedding get_rope"
    },
    "vllm.model_executor.layers.vocab_parallel_embedding": {
        "engine.model_executor.layers.vocab_embedding": "VocabParallelEmbedding ParallelLMHead",
    },
    "vllm.model_executor.models.adapters": {"engine.model_executor.models.adapters": "as_embedding_model"},
    "vllm.model_executor.models.gemma2": {"engine.model_executor.models.gemma2": "Gemma2ForCausalLM Gemma2Model"},
    "vllm.model_executor.models.gemma3": {"engine.model_executor.models.gemma3": "Gemma3ForCausalLM Gemma3Model"},
    "vllm.model_executor.models.gpt2": {"engine.model_executor.models.gpt2": "GPT2LMHeadModel GPT2Model"},
    "vllm.model_executor.models.llama": {"engine.model_executor.models.llama": "LlamaForCausalLM LlamaModel"},
    "vllm.model_executor.models.opt": {"engine.model_executor.models.opt": "OPTForCausalLM OPTModel"},
    "vllm.model_executor.models.phi3": {"engine.model_executor.models.phi3": "Phi3ForCausalLM"},
    "vllm.model_executor.models.qwen2": {"engine.model_executor.models.qwen2": "Qwen2ForCausalLM Qwen2Model"},
    "vllm.model_executor.models.qwen3": {"engine.model_executor.models.qwen3": "Qwen3ForCausalLM Qwen3Model"},
}


def _homes(row: dict[str, str]) -> dict[str, tuple[str, str]]:
    found = {}
    for module, names in row.items():
        for name in names.split():
            theirs, _, ours = name.partition("=")
            found[theirs] = (f"tracellm.{module}", ours or theirs)
    return found


def _packages(modules: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module in modules:
        while "." in module:
            package, _, name = module.rpartition(".")
            if name not in found.setdefault(package, []):
                found[package].append(name)
            module = package
    return found


HOMES: dict[str, dict[str, tuple[str, str]]] = {module: _homes(row) for module, row in _TABLE.items()}
"""The names in each module of vLLM, with the module of tracellm and the name there."""

PACKAGES: dict[str, list[str]] = _packages(list(_TABLE))
"""The packages of vLLM, with the names of their modules; some have no names of their own."""

_OWN = f"{VERSION}+tracellm"
VALUES: dict[str, dict[str, object]] = {
    module: {"__version__": _OWN, "__version_tuple__": (*map(int, VERSION.split(".")), "tracellm")}
    for module in ("vllm", "vllm.version")
}
"""Names with values of their own."""

MISSING_AREAS: dict[str, str] = {
    "vllm.ClassificationOutput": "no classification",
    "vllm.ClassificationRequestOutput": "no classification",
    "vllm.ModelRegistry": "only the models that `tracellm.engine.model_executor.models` lists",
    "vllm.assets": "no sample images, audio or video",
    "vllm.attention": "only the backends that `tracellm.engine.attention.backends` holds",
    "vllm.benchmarks": "none of vLLM's benchmarks",
    "vllm.compilation": "no compilation and no CUDA graphs",
    "vllm.distributed": "tensor and pipeline parallelism only, in `tracellm.engine.distributed`",
    "vllm.engine.multiprocessing": "no engine of V0",
    "vllm.entrypoints.openai": "chat, completions, responses, pooling and tokenization, and nothing else of the server",
    "vllm.lora": "no LoRA adapters",
    "vllm.model_executor.layers.quantization": "no quantization",
    "vllm.model_executor.models": "only the models that `tracellm.engine.model_executor.models` lists",
    "vllm.multimodal": "no video, and only what `tracellm.engine.multimodal` holds",
    "vllm.platforms": "the CPU and CUDA by PyTorch alone",
    "vllm.plugins": "no plugins",
    "vllm.reasoning": "parsers with an interface of their own, in `tracellm.engine.reasoning`",
    "vllm.v1.attention": "only the backends that `tracellm.engine.attention.backends` holds",
    "vllm.v1.spec_decode": "no speculative decoding",
}
"""tracellm's replacement for a module or class of vLLM, and for everything below it."""

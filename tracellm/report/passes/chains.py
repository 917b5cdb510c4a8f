"""The calls that tell most about how a request is served: what a diagram of limited size shows first.

The names are vLLM's. Some calls are known by the class that defines them, `MPClient.launch_core_engines`, whichever
client it is.
"""

__all__ = ["INSIDE", "OTHER_CHAINS", "RETURNS", "SHORT_CHAIN", "STEP_CHAIN", "TAKEN_IN"]

STEP_CHAIN = frozenset({
    "LLM.generate",
    "LLM.chat",
    "OpenAIServingChat.create_chat_completion",
    "OpenAIServingCompletion.create_completion",
    "AsyncLLM.generate",
    "LLMEngine.step",
    "InprocClient.get_output",
    "SyncMPClient.get_output",
    "EngineCoreProc._process_engine_step",
    "EngineCore.step_fn",
    "EngineCore._schedule",
    "Scheduler.schedule",
    "EngineCore._execute_model",
    "UniProcExecutor.execute_model",
    "Worker.execute_model",
    "GPUModelRunner.execute_model",
    "UniProcExecutor.sample_tokens",
    "Worker.sample_tokens",
    "GPUModelRunner.sample_tokens",
    "Sampler.forward",
    "EngineCore._process_model_outputs",
    "Scheduler.update_from_output",
})  # fmt: skip
"""The calls by which a token is made; the model's own forward, whatever the model's class, is one of them."""

SHORT_CHAIN = frozenset({
    "LLMEngine.step",
    "SyncMPClient.get_output",
    "EngineCore.step_fn",
    "Scheduler.schedule",
    "UniProcExecutor.execute_model",
    "Worker.execute_model",
    "GPUModelRunner.execute_model",
    "Scheduler.update_from_output",
})  # fmt: skip
"""The same in short, for when it has been told before."""

TAKEN_IN = frozenset({
    "SyncMPClient.add_request",
    "AsyncMPClient.add_request_async",
    "EngineCoreProc._handle_client_request",
    "Scheduler.add_request",
})  # fmt: skip
"""The calls by which a request gets over the boundary, on either side of it."""

OTHER_CHAINS = frozenset({
    "run_server",
    "build_app",
    "LLM.__init__",
    "LLMEngine.__init__",
    "EngineCoreClient.make_client",
    "InprocClient.__init__",
    "AsyncLLM.__init__",
    "AsyncLLM.from_vllm_config",
    "EngineCoreClient.make_async_mp_client",
    "SyncMPClient.__init__",
    "AsyncMPClient.__init__",
    "MPClient.launch_core_engines",
    "EngineCoreProc.run_engine_core",
    "EngineCoreProc.__init__",
    "EngineCoreProc.process_input_sockets",
    "EngineCoreProc.process_output_sockets",
    "EngineCoreProc.run_busy_loop",
    "SyncMPClient.process_outputs_socket",
    "AsyncMPClient.process_outputs_socket",
    "AsyncLLM.output_handler",
    "EngineCore.__init__",
    "UniProcExecutor.__init__",
    "Worker.load_model",
    "GPUModelRunner.load_model",
    "EngineCore._initialize_kv_caches",
    "Scheduler.__init__",
    "LLMEngine.add_request",
    "AsyncLLM.add_request",
    "InprocClient.add_request",
    "SyncMPClient.add_request",
    "AsyncMPClient.add_request_async",
    "EngineCoreProc._handle_client_request",
    "EngineCoreProc.add_request",
    "Processor.process_inputs",
    "EngineCore.add_request",
    "Scheduler.add_request",
    "OutputProcessor.process_outputs",
})  # fmt: skip
"""The calls by which the engine is built, and a request gets in and out."""

RETURNS = frozenset({
    "LLM.generate",
    "LLM.chat",
    "EngineCoreClient.make_client",
    "Scheduler.schedule",
    "UniProcExecutor.execute_model",
    "Sampler.forward",
    "Scheduler.update_from_output",
})  # fmt: skip
"""The calls whose result says what the call was for, as does that of the model's forward."""

INSIDE = frozenset({
    "KVCacheManager.allocate_slots",
    "GPUModelRunner._prepare_inputs",
    "Scheduler.get_grammar_bitmask",
    "GPUModelRunner._sample",
    "EngineCore.post_step",
})  # fmt: skip
"""What the scheduler and the runner do along the chain."""

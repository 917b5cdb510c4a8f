"""Which targets of the catalog a version of vLLM is known to lack, so that nobody is told of it as of something amiss.

What is the same function under another name is not said here, but beside its first name (`Entry.other_targets`). These
have no counterpart, or one that has an entry of its own as it does something else. Two versions are known: a version
between them that lacks one more is told of, and works.
"""

__all__ = ["is_known_to_lack"]

GONE: dict[str, str] = {
    "vllm.entrypoints.llm:LLM._process_inputs": "0.32.0",
    "vllm.entrypoints.llm:LLM._validate_and_add_requests": "0.32.0",
    "vllm.entrypoints.llm:LLM.preprocess_chat": "0.32.0",
    "vllm.entrypoints.openai.serving_engine:OpenAIServing._preprocess_chat": "0.32.0",
    "vllm.entrypoints.openai.serving_engine:OpenAIServing._process_inputs": "0.32.0",
    "vllm.inputs.preprocess:InputPreprocessor._process_decoder_only_prompt": "0.32.0",
    "vllm.inputs.preprocess:InputPreprocessor._process_text": "0.32.0",
    "vllm.inputs.preprocess:InputPreprocessor._process_tokens": "0.32.0",
    "vllm.inputs.preprocess:InputPreprocessor._prompt_to_llm_inputs": "0.32.0",
    "vllm.inputs.preprocess:InputPreprocessor._tokenize_prompt": "0.32.0",
    "vllm.inputs.preprocess:InputPreprocessor.preprocess": "0.32.0",
    "vllm.transformers_utils.tokenizer:init_tokenizer_from_configs": "0.32.0",
}
"""The first version known to be without it."""

NEW: dict[str, str] = {
    "vllm.entrypoints.common.offline:OfflineInferenceMixin._preprocess_chat": "0.32.0",
    "vllm.entrypoints.common.offline:OfflineInferenceMixin._preprocess_cmpl": "0.32.0",
    "vllm.entrypoints.common.offline:OfflineInferenceMixin._render_and_add_requests": "0.32.0",
    "vllm.entrypoints.launchers.api_server.entry:build_and_serve": "0.32.0",
    "vllm.renderers.base:BaseRenderer.process_for_engine": "0.32.0",
    "vllm.renderers.base:BaseRenderer.render_chat": "0.32.0",
    "vllm.renderers.base:BaseRenderer.render_chat_async": "0.32.0",
    "vllm.renderers.base:BaseRenderer.render_cmpl": "0.32.0",
    "vllm.renderers.base:BaseRenderer.render_cmpl_async": "0.32.0",
    "vllm.renderers.base:BaseRenderer.tokenize_prompt": "0.32.0",
    "vllm.renderers.hf:HfRenderer.render_messages": "0.32.0",
    "vllm.renderers.online_renderer:OnlineRenderer.preprocess_chat": "0.32.0",
    "vllm.renderers.online_renderer:OnlineRenderer.render_chat": "0.32.0",
    "vllm.renderers.online_renderer:OnlineRenderer.render_completion": "0.32.0",
    "vllm.renderers.registry:renderer_from_config": "0.32.0",
    "vllm.v1.engine.input_processor:InputProcessor.assign_request_id": "0.32.0",
    "vllm.v1.structured_output:StructuredOutputManager._create_grammar": "0.32.0",
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.__init__": "0.32.0",
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.get_kv_cache_spec": "0.32.0",
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.initialize_kv_cache": "0.32.0",
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.load_model": "0.32.0",
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.profile_run": "0.32.0",
}
"""The first version known to have it."""


def is_known_to_lack(version: str, target: str) -> bool:
    """Is it no surprise that this version of vLLM does not have the target?"""
    gone, new = GONE.get(target), NEW.get(target)
    known = _numbers(version)
    return (gone is not None and known >= _numbers(gone)) or (new is not None and known < _numbers(new))


def _numbers(version: str) -> tuple[int, ...]:
    """`0.11.1.post2+cpu` as (0, 11, 1)."""
    parts = version.partition("+")[0].split(".")[:3]
    return tuple(int(part) for part in parts if part.isdecimal())

"""Tasks of an engine: generation, or one or two kinds of pooling.

The `Processor` checks each request against them; the server has routes for them.

vLLM: vllm/tasks.py, and `GPUModelRunner.get_supported_tasks`. Left out: classification, scores by a model, plugins,
transcription.
"""

from tracellm.engine.config.vllm_config import VllmConfig

__all__ = ["get_supported_tasks"]


def get_supported_tasks(vllm_config: VllmConfig) -> tuple[str, ...]:
    """Return the tasks: `generate`; or `embed`, a vector for a prompt, and `token_embed`, one for each token.

    The vectors of all tokens come from one step, so `token_embed` needs prompts that are never computed in chunks.
    """
    pooler_config, scheduler_config = vllm_config.model_config.pooler_config, vllm_config.scheduler_config
    if pooler_config is None:
        return ("generate",)
    in_chunks = scheduler_config.enable_chunked_prefill or scheduler_config.long_prefill_token_threshold > 0
    token_embed = () if in_chunks else ("token_embed",)
    return token_embed if pooler_config.pooling_type == "ALL" else (*token_embed, "embed")

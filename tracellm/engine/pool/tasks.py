"""Tasks of an engine: generation, or one or two kinds of pooling.

The `Processor` checks each request against them; the server has routes for them.

vLLM: vllm/tasks.py, and `GPUModelRunner.get_supported_tasks`. Left out: classification, scores by a model, plugins,
transcription.
"""

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["check_task", "get_supported_tasks"]


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


def check_task(params: SamplingParams | PoolingParams, supported_tasks: tuple[str, ...]) -> None:
    """Check that the engine has the task of a request, in the words of later versions of vLLM.

    Raises:
        InvalidRequestError: it does not.
    """
    generates = "generate" in supported_tasks
    if isinstance(params, SamplingParams):
        if not generates:
            raise InvalidRequestError("This model does not support generation: it was loaded for pooling.")
    elif generates:
        raise InvalidRequestError("This model does not support pooling: it was loaded to generate.")
    elif params.task not in supported_tasks:
        raise InvalidRequestError(f"Unsupported task: {params.task!r} Supported tasks: {list(supported_tasks)}")

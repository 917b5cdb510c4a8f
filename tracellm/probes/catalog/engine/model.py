"""Models, layers and operations: patterns for all model families.

`nn.Module.__call__` calls `forward`, which is wrapped. Shapes and dtypes of arguments and results are recorded. Regions
that vLLM compiles with torch.compile have no probes (catalog/vllm/torch_compile.py).

vLLM: vllm/model_executor/models/, vllm/model_executor/layers/, vllm/_custom_ops.py, vllm/v1/attention/backends/.
"""

from collections import Counter
from typing import Any

from tracellm.probes.catalog.entries import argument, ours_only, plain, vllm_only
from tracellm.trace import names

__all__ = ["ENTRIES"]


_num_collectives: Counter[str] = Counter()
"""Operations of this process so far, by group; all members count the same ones."""


def _capture_collective(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    group = args[0]
    number = getattr(group, "num_collectives", None)
    if number is None:  # in vLLM, a group does not count them
        _num_collectives[group.unique_name] += 1
        number = _num_collectives[group.unique_name]
    return argument(args, kwargs, 1, "input_").nbytes, list(group.ranks), number


def _collective(facts: Any) -> dict[str, Any]:
    num_bytes, ranks, number = facts
    return {
        names.ARGUMENTS: [f"input_={num_bytes} bytes"],
        names.COLLECTIVE_BYTES: num_bytes,
        names.COLLECTIVE_RANKS: ranks,
        names.COLLECTIVE_NUMBER: number,
    }


ENTRIES = (
    *plain("request", "model_executor.models.*:*ForCausalLM", "__init__", "load_weights"),
    *plain("step", "model_executor.models.*:*ForCausalLM", "forward", "compute_logits"),
    *plain("request", "model_executor.models.*:*ForConditionalGeneration", "__init__", "load_weights"),
    *plain("step", "model_executor.models.*:*ForConditionalGeneration", "forward", "compute_logits"),
    *ours_only("step", "model_executor.models.*:*ForConditionalGeneration", "get_multimodal_embeddings"),
    *vllm_only("step", "model_executor.models.*:*ForConditionalGeneration", "embed_multimodal"),
    *plain("step", "model_executor.models.*:*Model", "__init__", "forward"),
    *plain("step", "model_executor.models.*:*Decoder", "forward"),
    *plain("layer", "model_executor.models.*:", "*Layer.forward", "*Attention.forward", "*MLP.forward"),
    *vllm_only("layer", "model_executor.models.*:*Block", "forward"),
    *ours_only("kernel", "model_executor.layers.linear:ReplicatedLinear", "forward"),
    *ours_only("kernel", "model_executor.layers.linear:RowParallelLinear", "forward"),
    *ours_only(
        "kernel",
        "distributed.parallel_state:GroupCoordinator",
        "all_reduce",
        "all_gather",
        capture=_capture_collective,
        attributes=_collective,
    ),
    *(
        entry
        for name in ("all_reduce", "all_gather")  # what they call with more than one worker, compiled or not
        for entry in vllm_only(
            "kernel",
            "distributed.parallel_state:GroupCoordinator",
            f"_{name}_out_place",
            span_name=f"GroupCoordinator.{name}",
            capture=_capture_collective,
            attributes=_collective,
        )
    ),
    *vllm_only("kernel", "model_executor.layers.linear:*Linear", "forward"),
    *vllm_only("layer", "model_executor.custom_op:CustomOp", "forward"),  # RMSNorm, RotaryEmbedding, SiluAndMul, ...
    *vllm_only(
        "layer", "attention.layer:Attention", "forward", later="model_executor.layers.attention.attention:Attention"
    ),
    *plain("layer", "model_executor.layers.*:*", "forward"),
    *ours_only(
        "kernel", "model_executor.ops.*:*Ops", "rms_norm", "fused_add_rms_norm", "gemma_rms_norm", "rotary_embedding"
    ),
    *ours_only("kernel", "model_executor.ops.*:*Ops", "gelu_tanh_and_mul", "silu_and_mul"),
    *ours_only("layer", "attention.backend:AttentionImpl", "forward"),
    *ours_only("kernel", "attention.backends.*:*Impl", "reshape_and_cache", "paged_attention"),
    *vllm_only("kernel", "_custom_ops:", "rms_norm", "fused_add_rms_norm", "rotary_embedding"),
    *vllm_only("kernel", "_custom_ops:", "reshape_and_cache", "reshape_and_cache_flash"),
    *vllm_only("kernel", "_custom_ops:", "cpu_attn_reshape_and_cache", "cpu_attention_with_kv_cache"),
    *vllm_only("kernel", "v1.attention.backends.*:*Impl", "forward"),
)

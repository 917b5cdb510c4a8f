"""A vLLM's models and their layers: one entry covers every model family that is there now or comes later.

Shapes tell all: the arguments and the result. Where vLLM compiles a model, as it does on a GPU unless it is told not to
(`enforce_eager=True`), what lies inside belongs to the compiler: see probes/catalog/vllm/torch_compile.py.

vLLM: vllm/model_executor/models/, vllm/model_executor/layers/.
"""

from tracellm.probes.catalog.vllm.entries import at, plain

__all__ = ["ENTRIES"]

_MODELS, _LAYERS = "model_executor.models.*", "model_executor.layers.*"

ENTRIES = (
    *plain("request", _MODELS, "*ForCausalLM.__init__", "*ForCausalLM.load_weights"),
    *plain("step", _MODELS, "*ForCausalLM.forward", "*ForCausalLM.compute_logits"),
    *plain("step", _MODELS, "*Model.__init__", "*Model.forward", "*Decoder.forward"),
    *plain("layer", _MODELS, "*Layer.forward", "*Block.forward", "*Attention.forward", "*MLP.forward"),
    *plain("kernel", "model_executor.layers.linear", "*Linear.forward"),
    *plain("layer", "model_executor.custom_op", "CustomOp.forward"),  # RMSNorm, RotaryEmbedding, SiluAndMul, ...
    *plain(
        "layer",
        "attention.layer",
        "Attention.forward",
        other_targets=(at("model_executor.layers.attention.attention:Attention.forward"),),
    ),
    *plain("layer", _LAYERS, "*.forward"),
)

"""Models and their layers: one entry covers every model family that is there now or comes later.

A layer is called through `nn.Module.__call__`, which calls `forward`, which is what is wrapped. Shapes tell all: the
arguments and the result.
"""

from tracellm.probes.catalog.helpers import plain

__all__ = ["ENTRIES"]

ENTRIES = (
    *plain("request", "model_executor.models.*", "*ForCausalLM.__init__", "*ForCausalLM.load_weights"),
    *plain("step", "model_executor.models.*", "*ForCausalLM.forward", "*ForCausalLM.compute_logits"),
    *plain("step", "model_executor.models.*", "*Model.__init__", "*Model.forward", "*Decoder.forward"),
    *plain("layer", "model_executor.models.*", "*Layer.forward", "*Attention.forward", "*MLP.forward"),
    *plain("kernel", "model_executor.layers.linear", "ReplicatedLinear.forward"),
    *plain("layer", "model_executor.layers.*", "*.forward"),
)

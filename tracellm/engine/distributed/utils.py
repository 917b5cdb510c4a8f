"""Division of the layers between the stages of a pipeline.

At start-up: the engine checks the division, and `make_layers` (model_executor/models/utils.py) makes a stage's layers.

vLLM: vllm/distributed/utils.py::get_pp_indices.
"""

import os

from tracellm.engine.config.errors import EngineError

__all__ = ["get_pp_indices"]


def get_pp_indices(num_hidden_layers: int, pp_rank: int, pp_size: int) -> tuple[int, int]:
    """Return the first layer of stage `pp_rank` and the layer after its last.

    What an even division leaves over goes to the stages before the last, one layer each from the back, because the last
    one also computes the logits. VLLM_PP_LAYER_PARTITION replaces the division: numbers of layers, with commas.

    Raises:
        EngineError: there are fewer layers than stages, or the variable is not such a list.
    """
    if (partition := os.environ.get("VLLM_PP_LAYER_PARTITION")) is not None:
        sizes = _parse(partition, num_hidden_layers, pp_size)
    elif num_hidden_layers < pp_size:
        raise EngineError(
            f"LLM: `pipeline_parallel_size={pp_size}` needs a layer for each stage, and the model has "
            f"{num_hidden_layers}."
        )
    else:
        even, left = divmod(num_hidden_layers, pp_size)
        sizes = [even + (pp_size - 1 - left <= rank < pp_size - 1) for rank in range(pp_size)]
    start = sum(sizes[:pp_rank])
    return start, start + sizes[pp_rank]


def _parse(partition: str, num_hidden_layers: int, pp_size: int) -> list[int]:
    try:
        sizes = [int(size) for size in partition.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) != pp_size or sum(sizes) != num_hidden_layers or min(sizes) < 1:
        raise EngineError(
            f"The environment variable VLLM_PP_LAYER_PARTITION must be {pp_size} numbers with commas between, each at "
            f"least 1, {num_hidden_layers} in all (the model's layers); it is {partition!r}."
        )
    return sizes

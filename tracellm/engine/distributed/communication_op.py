"""Collective operations of the layers. In a group of one they return their input.

vLLM: vllm/distributed/communication_op.py.
"""

from torch import Tensor

from tracellm.engine.distributed.parallel_state import get_tensor_model_parallel_world_size, get_tp_group

__all__ = ["tensor_model_parallel_all_gather", "tensor_model_parallel_all_reduce"]


def tensor_model_parallel_all_reduce(input_: Tensor) -> Tensor:
    """Return the sum of all workers' tensors; `input_` may be overwritten."""
    return input_ if get_tensor_model_parallel_world_size() == 1 else get_tp_group().all_reduce(input_)


def tensor_model_parallel_all_gather(input_: Tensor, dim: int = -1) -> Tensor:
    """Return all workers' tensors side by side along `dim`."""
    return input_ if get_tensor_model_parallel_world_size() == 1 else get_tp_group().all_gather(input_, dim)

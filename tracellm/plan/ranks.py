"""Memory and messages of each rank, from its part of the model, made and run on the `meta` device.

The code is the engine's, so the parts of weights, the layers of a stage and the collective operations are those of a
real run. Only the groups are others: they count the bytes of each tensor instead of sending it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tracellm.engine.config.vllm_config import DeviceConfig, VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheGroupSpec
from tracellm.engine.core.kv_cache.kv_cache_utils import (
    get_bytes_per_block,
    get_kv_cache_groups,
    project_kv_cache_groups_to_worker,
)
from tracellm.engine.distributed.parallel_state import GroupCoordinator, using_groups
from tracellm.engine.distributed.utils import get_pp_indices
from tracellm.engine.model_executor.layers.forward_context import set_forward_context
from tracellm.engine.model_executor.model_loader.default_loader import default_dtype
from tracellm.engine.model_executor.models.registry import resolve_model_cls
from tracellm.engine.model_executor.models.utils import CausalLM, IntermediateTensors
from tracellm.engine.model_executor.ops import make_ops, using_ops
from tracellm.engine.worker.attn_utils import get_kv_cache_spec

__all__ = [
    "Collective",
    "Operation",
    "StagePlan",
    "StepSize",
    "get_bytes_per_block_of_stages",
    "get_groups",
    "plan_stages",
]

Operation = Literal["all_reduce", "all_gather", "send"]


class StepSize(NamedTuple):
    """Size of a step: tokens to compute, and tokens to sample."""

    num_tokens: int
    num_logits: int


class Collective(NamedTuple):
    """Calls of one operation in a step, each with a tensor of this size.

    Attributes:
        operation: `all_reduce`, `all_gather`, or `send` to the next stage.
        num_bytes: size of this rank's tensor; of all tensors together for `send`.
        num_calls: number of calls.
    """

    operation: Operation
    num_bytes: int
    num_calls: int


@dataclass(frozen=True)
class StagePlan:
    """The ranks of one pipeline stage, which are alike.

    Attributes:
        ranks: their numbers.
        layers: first layer, and the layer after the last.
        weight_bytes: size of the parameters of each.
        kv_cache_spec: what each attention layer of a rank stores, by name.
        collectives: operations of a rank in each step of `plan_stages`.
    """

    ranks: list[int]
    layers: tuple[int, int]
    weight_bytes: int
    kv_cache_spec: dict[str, AttentionSpec]
    collectives: list[list[Collective]]


class _CountingGroup(GroupCoordinator):
    """A group that sends nothing, and counts what it would send."""

    def __init__(self, ranks: list[int], rank: int) -> None:
        super().__init__(ranks, rank)
        self.counts: Counter[tuple[Operation, int]] = Counter()

    def all_reduce(self, input_: Tensor) -> Tensor:
        self.counts["all_reduce", input_.nbytes] += 1
        return input_

    def all_gather(self, input_: Tensor, dim: int = -1) -> Tensor:
        self.counts["all_gather", input_.nbytes] += 1
        return torch.cat([input_] * self.world_size, dim=dim)

    def collectives(self) -> list[Collective]:
        found = [Collective(*what, count) for what, count in self.counts.items()]
        self.counts.clear()
        return found


def plan_stages(vllm_config: VllmConfig, steps: list[StepSize]) -> list[StagePlan]:
    """Return the plan of every pipeline stage, for these sizes of steps.

    Args:
        vllm_config: the model, and the division in its `parallel_config`.
        steps: the steps to count.

    Raises:
        ModelLoadError: the architecture is not supported, or cannot be divided.
    """
    config = replace(vllm_config, device_config=DeviceConfig(torch.device("meta")))
    between: list[IntermediateTensors | None] = [None] * len(steps)
    plans = []
    for stage in range(vllm_config.parallel_config.pipeline_parallel_size):
        plan, between = _plan_stage(config, stage, between, steps)
        plans.append(plan)
    return plans


def _plan_stage(
    config: VllmConfig, stage: int, received: list[IntermediateTensors | None], steps: list[StepSize]
) -> tuple[StagePlan, list[IntermediateTensors | None]]:
    """Return a stage's plan, and what its first rank sends to the next stage in each step."""
    size, stages = config.parallel_config.tensor_parallel_size, config.parallel_config.pipeline_parallel_size
    ranks = list(range(stage * size, (stage + 1) * size))
    tp = _CountingGroup(ranks, ranks[0])
    pp = GroupCoordinator([i * size for i in range(stages)], ranks[0])
    with (
        using_groups(tp, pp),
        using_ops(make_ops("torch")),
        default_dtype(config.model_config.dtype),
        torch.device("meta"),
        torch.inference_mode(),
    ):
        model_class: Any = resolve_model_cls(config.model_config.hf_config.architectures)
        model: CausalLM = model_class(config)
        collectives, sent = [], []
        for step, given in zip(steps, received, strict=True):
            output = _run(model, step, given)
            collectives.append(tp.collectives())
            if isinstance(output, IntermediateTensors):
                num_bytes = sum(tensor.nbytes for tensor in output.tensors.values())
                collectives[-1].append(Collective("send", num_bytes, 1))
            sent.append(output if isinstance(output, IntermediateTensors) else None)
    spec = get_kv_cache_spec(model, config)
    parameters = {id(parameter): parameter.nbytes for parameter in model.parameters()}
    layers = get_pp_indices(config.model_config.get_num_layers(), stage, stages)
    return StagePlan(ranks, layers, sum(parameters.values()), spec, collectives), sent


def _run(model: CausalLM, step: StepSize, received: IntermediateTensors | None) -> Tensor | IntermediateTensors:
    """Run a step up to the logits."""
    ids, positions = torch.zeros(step.num_tokens, dtype=torch.int32), torch.zeros(step.num_tokens, dtype=torch.int64)
    given = {} if received is None else {"intermediate_tensors": received}
    with set_forward_context(None):
        output: Tensor | IntermediateTensors = model(ids, positions, **given)
    if isinstance(output, Tensor):
        model.compute_logits(output[: step.num_logits])
    return output


def get_groups(vllm_config: VllmConfig, plans: list[StagePlan]) -> list[KVCacheGroupSpec]:
    """Return the groups of the whole model's layers; each takes blocks of its own for a request's tokens.

    Raises:
        EngineError: the layers cannot be grouped.
    """
    merged = {name: spec for plan in plans for name, spec in plan.kv_cache_spec.items()}
    return get_kv_cache_groups(vllm_config, merged)


def get_bytes_per_block_of_stages(vllm_config: VllmConfig, plans: list[StagePlan]) -> list[int]:
    """Return the bytes of one block in the KV cache of each stage's ranks.

    Raises:
        EngineError: the layers cannot be grouped.
    """
    groups = get_groups(vllm_config, plans)
    return [get_bytes_per_block(project_kv_cache_groups_to_worker(groups, plan.kv_cache_spec)) for plan in plans]

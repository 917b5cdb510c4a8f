"""A plan in words and numbers: what `tracellm plan` prints.

The least time of an operation is that of the ring algorithm at the link's speed, without latency: each rank sends
2 (n - 1) / n of its tensor for an all-reduce, its part n - 1 times for an all-gather, and a whole tensor to the next
stage. Source: Patarasuk and Yuan, 2009 (https://doi.org/10.1016/j.jpdc.2008.09.002).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_utils import get_max_num_blocks
from tracellm.plan.gpus import Gpu
from tracellm.plan.ranks import Collective, StagePlan, StepSize, get_bytes_per_block_of_stages, get_groups
from tracellm.report.texts import Language, text
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.wording.quantities import byte_size
from tracellm.report.wording.titles import time

__all__ = ["Machine", "blocks", "least_seconds", "num_kv_blocks"]


@dataclass(frozen=True)
class Machine:
    """The hardware of a plan.

    Attributes:
        name: name of the GPU.
        gpu: its figures.
        gpus_per_node: GPUs of one machine.
        network_bytes_per_second: speed of the network between machines, for each GPU, in one direction.
        usable: share of the memory that the engine uses (`gpu_memory_utilization`).
        reserved_bytes: memory for activations, buffers and the driver.
    """

    name: str
    gpu: Gpu
    gpus_per_node: int
    network_bytes_per_second: float
    usable: float
    reserved_bytes: int

    def kv_cache_bytes(self, plan: StagePlan) -> int:
        """Return what is left for a rank's KV cache; negative if its weights do not fit."""
        return int(self.gpu.memory_bytes * self.usable) - self.reserved_bytes - plan.weight_bytes

    def link(self, first: int, last: int) -> float:
        """Return the speed of the slowest link between consecutive ranks, in bytes per second."""
        same_node = first // self.gpus_per_node == last // self.gpus_per_node
        return self.gpu.link_bytes_per_second if same_node else self.network_bytes_per_second


def num_kv_blocks(vllm_config: VllmConfig, plans: list[StagePlan], machine: Machine) -> int:
    """Return the blocks of the KV cache, which all ranks have: as many as fit into each; 0 if the weights do not fit.

    Raises:
        EngineError: the layers cannot be grouped.
    """
    sizes = get_bytes_per_block_of_stages(vllm_config, plans)
    return max(0, min(machine.kv_cache_bytes(plan) // size for plan, size in zip(plans, sizes, strict=True)))


def least_seconds(one: Collective, group_size: int, bytes_per_second: float) -> float:
    """Return the least time of all calls of an operation between `group_size` ranks."""
    sent: dict[str, float] = {
        "all_reduce": 2 * (group_size - 1) / group_size * one.num_bytes,
        "all_gather": (group_size - 1) * one.num_bytes,
        "send": one.num_bytes,
    }
    return one.num_calls * sent[one.operation] / bytes_per_second


def blocks(
    vllm_config: VllmConfig, plans: list[StagePlan], steps: list[tuple[str, StepSize]], machine: Machine, lang: Language
) -> list[Block]:
    """Return the parts of the output.

    Args:
        vllm_config: the model and its division.
        plans: all ranks.
        steps: the planned steps, each with the key of its name.
        machine: the hardware.
        lang: language of the texts.
    """
    size = vllm_config.parallel_config.tensor_parallel_size
    found: list[Block] = [
        Heading(
            text(
                lang,
                "plan.title",
                model=vllm_config.model_config.hf_config.architectures[0],
                dtype=str(vllm_config.model_config.dtype).removeprefix("torch."),
                gpus=len(plans) * size,
                gpu=machine.name,
                tp=size,
                pp=len(plans),
            )
        ),
        _memory(vllm_config, plans, machine, lang),
        _kv_blocks(vllm_config, plans, machine, lang),
    ]
    for position, (name, step) in enumerate(steps):
        title = text(lang, f"plan.step.{name}", tokens=step.num_tokens, requests=step.num_logits)
        rows = tuple(_rows(plans, position, size, machine, lang))
        if rows:
            heads = ("ranks", "operation", "calls", "bytes", "time")
            columns = tuple(Column(text(lang, f"plan.head.{head}"), number=head != "operation") for head in heads)
            found.append(Table(columns, rows, title))
    note = "plan.note" if len(plans) * size > 1 else "plan.note_one"
    found.append(
        Paragraph(
            text(
                lang,
                note,
                usable=f"{machine.usable:g}",
                reserved=byte_size(machine.reserved_bytes),
                link=machine.gpu.link,
                speed=f"{machine.gpu.link_bytes_per_second / 1e9:g}",
                network=f"{machine.network_bytes_per_second / 1e9:g}",
                node=machine.gpus_per_node,
            )
        )
    )
    return found


def _memory(vllm_config: VllmConfig, plans: list[StagePlan], machine: Machine, lang: Language) -> Table:
    heads = ("stage", "ranks", "layers", "weights", "kv_cache", "block")
    columns = tuple(Column(text(lang, f"plan.head.{head}"), number=True) for head in heads)
    per_block = get_bytes_per_block_of_stages(vllm_config, plans)
    rows = tuple(
        (
            [str(stage)],
            [_span(plan.ranks[0], plan.ranks[-1])],
            [_span(plan.layers[0], plan.layers[1] - 1)],
            [byte_size(plan.weight_bytes)],
            [byte_size(max(0, machine.kv_cache_bytes(plan)))],
            [byte_size(num_bytes)],
        )
        for stage, (plan, num_bytes) in enumerate(zip(plans, per_block, strict=True))
    )
    return Table(columns, rows, text(lang, "plan.memory"))


def _kv_blocks(vllm_config: VllmConfig, plans: list[StagePlan], machine: Machine, lang: Language) -> Paragraph:
    largest = max(plans, key=lambda plan: plan.weight_bytes)
    if machine.kv_cache_bytes(largest) <= 0:
        available = int(machine.gpu.memory_bytes * machine.usable) - machine.reserved_bytes
        return Paragraph(
            text(
                lang,
                "plan.too_small",
                rank=largest.ranks[0],
                needed=byte_size(largest.weight_bytes),
                available=byte_size(max(0, available)),
            )
        )
    num_blocks, block_size = num_kv_blocks(vllm_config, plans, machine), vllm_config.cache_config.block_size
    length, groups = vllm_config.model_config.max_model_len, get_groups(vllm_config, plans)
    return Paragraph(
        text(
            lang,
            "plan.blocks",
            blocks=num_blocks,
            block_size=block_size,
            tokens=num_blocks * block_size // len(groups),
            requests=f"{num_blocks / get_max_num_blocks(groups, length, vllm_config):.1f}",
            length=length,
        )
    )


def _rows(
    plans: list[StagePlan], step: int, size: int, machine: Machine, lang: Language
) -> Iterator[tuple[list[str], ...]]:
    for plan in plans:
        first, last = plan.ranks[0], plan.ranks[-1]
        for one in plan.collectives[step]:
            ends = [(rank, rank + size) for rank in plan.ranks] if one.operation == "send" else [(first, last)]
            speed = min(machine.link(*pair) for pair in ends)
            nanoseconds = round(least_seconds(one, size, speed) * 1e9)
            yield (
                [_span(first, last)],
                [text(lang, f"plan.operation.{one.operation}")],
                [f"{one.num_calls:,}"],
                [byte_size(one.num_bytes)],
                [time(nanoseconds)],
            )


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"

"""`tracellm plan`: memory and traffic of a model on several GPUs, from its config, without a GPU or the weights."""

import sys
from math import isfinite

import click

from tracellm.cli.errors import CommandError
from tracellm.cli.options import Command, as_option, language_option, option
from tracellm.cli.reports import FILE_WIDTH
from tracellm.cli.stdout import print_out, width_of_terminal
from tracellm.plan.gpus import GPUS
from tracellm.report.texts import Language
from tracellm.report.wording.blocks import plain

__all__ = ["plan"]

_GB = 10**9
_POSITIVE = click.FloatRange(0, min_open=True)
_NOT_NEGATIVE = click.FloatRange(0)


@click.command(cls=Command, usage=["MODEL"], help="cli.help.plan")
@click.argument("model")
@option("--tp", "--tensor-parallel-size", "tp", type=int, default=1, metavar="N", help="cli.help.plan.tp")
@option("--pp", "--pipeline-parallel-size", "pp", type=int, default=1, metavar="N", help="cli.help.plan.pp")
@option("--gpu", default="h100", metavar="NAME", help="cli.help.plan.gpu")
@option("--dtype", default="auto", metavar="NAME", help="cli.help.plan.dtype")
@option("--max-model-len", type=int, metavar="N", help="cli.help.plan.max_model_len")
@option("--max-num-seqs", type=int, default=256, metavar="N", help="cli.help.plan.max_num_seqs")
@option("--max-num-batched-tokens", type=int, default=8192, metavar="N", help="cli.help.plan.budget")
@option("--block-size", type=int, default=16, metavar="N", help="cli.help.plan.block_size")
@option("--gpu-memory-utilization", type=float, default=0.9, metavar="SHARE", help="cli.help.plan.utilization")
@option("--reserve", type=_NOT_NEGATIVE, default=2.0, metavar="GB", help="cli.help.plan.reserve")
@option("--gpus-per-node", type=click.IntRange(1), default=8, metavar="N", help="cli.help.plan.gpus_per_node")
@option("--network", type=_POSITIVE, default=50.0, metavar="GB/S", help="cli.help.plan.network")
@language_option
def plan(
    model: str,
    tp: int,
    pp: int,
    gpu: str,
    dtype: str,
    max_model_len: int | None,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    block_size: int,
    gpu_memory_utilization: float,
    reserve: float,
    gpus_per_node: int,
    network: float,
    lang: Language,
) -> int:
    """Print each rank's memory, the KV cache blocks, and the collective operations of a step.

    Raises:
        CommandError: an unknown GPU or model, or a division that the engine refuses.
    """
    if gpu.lower() not in GPUS:
        raise CommandError("plan.gpu", gpu=gpu, known=", ".join(GPUS))
    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.config.errors import EngineError
    from tracellm.plan.ranks import StepSize, plan_stages
    from tracellm.plan.summary import Machine, blocks

    steps = [("decode", StepSize(max_num_seqs, max_num_seqs)), ("prefill", StepSize(max_num_batched_tokens, 1))]
    if not (isfinite(reserve) and isfinite(network)):
        raise CommandError("plan.not_finite")
    machine = Machine(
        gpu.lower(), GPUS[gpu.lower()], gpus_per_node, network * _GB, gpu_memory_utilization, int(reserve * _GB)
    )
    try:
        config = EngineArgs(
            model=model,
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
            gpu_memory_utilization=gpu_memory_utilization,
            tensor_parallel_size=tp,
            pipeline_parallel_size=pp,
            distributed_executor_backend=None if tp * pp == 1 else "ray",  # these GPUs need not be here
            skip_tokenizer_init=True,
        ).create_engine_config()
        plans = plan_stages(config, [step for _, step in steps])
        shown = blocks(config, plans, steps, machine, lang)
    except EngineError as error:
        raise CommandError("plan.refused", message=as_option(str(error))) from None
    print_out(plain(shown, width_of_terminal() if sys.stdout.isatty() else FILE_WIDTH).rstrip("\n"))
    return 0

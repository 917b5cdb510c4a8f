"""`tracellm bench kernels`: each operation of a layer by itself, in each implementation, beside the machine's limit.

vLLM: benchmarks/kernels/ in its repository.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tracellm.cli.bench.figures import Spread, number, plain_table
from tracellm.cli.bench.kernel_turns import make_turn
from tracellm.cli.bench.machine import Ceilings, describe, described, measure_ceilings
from tracellm.cli.bench.throughput import interleaved
from tracellm.cli.engine_options import as_option
from tracellm.cli.errors import CommandError
from tracellm.cli.out import print_out
from tracellm.report.texts import Language, text

if TYPE_CHECKING:
    from tracellm.cli.bench.kernel_cases import Case
    from tracellm.engine.config import VllmConfig

__all__ = ["Row", "kernels"]


@dataclass(frozen=True)
class Row:
    """One operation in one implementation."""

    case: str
    tokens: int
    ops: str
    microseconds: Spread
    gigabytes_per_second: float
    gigaflops_per_second: float
    of_limit: float
    """The ideal time over the median one. Small tensors may lie in the cache, which is faster than memory: above 1."""
    launch_microseconds: Spread | None
    """On a GPU: how long the host takes to ask for it, beside which the GPU's own time is `microseconds`."""


def kernels(
    model: str | None,
    engine: Mapping[str, Any],
    lang: Language,
    *,
    names: Sequence[str],
    tokens: Sequence[int],
    context: int,
    repeats: int,
    as_json: bool,
) -> int:
    """Measure, and print. `names` are the implementations, by default those that run well here. Returns 0.

    Raises:
        CommandError: the engine refuses the model or a setting, or an implementation cannot run here.
    """
    from tracellm.cli.bench.kernel_cases import Sizes, cases

    config = _config(model, engine)
    device = config.device_config.device
    chosen = list(names) or list(dict.fromkeys(["torch", config.ops_choice.name]))
    _check(chosen, config)
    ceilings = measure_ceilings(config.model_config.dtype, device)
    rows = []
    for count in tokens:
        for case in cases(Sizes.of(config.model_config, device, count, context)):
            rows += _measured(case, count, chosen, ceilings, repeats, device)
    if as_json:
        told = {"machine": describe(), "ceilings": asdict(ceilings), "rows": [asdict(row) for row in rows]}
        print_out(json.dumps(told))
        return 0
    name = config.model_config.served_model_name
    heads = text(lang, "bench.kernels.headlines", model=name, context=context)
    if device.type == "cuda":
        heads += text(lang, "bench.kernels.gpu") + "\n"
    print_out(f"{described(ceilings, lang)}\n{heads}\n{_table(rows, lang)}")
    return 0


def _config(model: str | None, engine: Mapping[str, Any]) -> "VllmConfig":
    from tracellm.engine.arg_utils import EngineArgs
    from tracellm.engine.errors import EngineError
    from tracellm.engine.hf_config import EMBEDDED_MODEL

    try:
        return EngineArgs.from_arguments(**{"model": model or EMBEDDED_MODEL, **engine}).create_engine_config()
    except EngineError as error:
        raise CommandError("bench.refused", message=as_option(str(error))) from None


def _check(names: Sequence[str], config: "VllmConfig") -> None:
    from tracellm.engine.errors import EngineError
    from tracellm.engine.ops.choice import choose_ops

    for name in names:
        try:
            choose_ops(name, config.device_config.device)
        except EngineError as error:
            raise CommandError(
                "bench.refused", message=as_option(str(error)).replace("--attention-backend", "--ops")
            ) from None


def _measured(
    case: "Case", tokens: int, names: Sequence[str], ceilings: Ceilings, repeats: int, device: Any
) -> list[Row]:
    """One operation, its implementations in turn."""
    import torch

    from tracellm.engine.ops import make_ops

    with torch.inference_mode():
        turns = {name: make_turn(case.make(make_ops(name)), device) for name in dict.fromkeys(names)}
        taken: dict[str, list[float]] = {name: [] for name in turns}
        asked: dict[str, list[float]] = {name: [] for name in turns}
        for name in interleaved(list(turns), repeats):
            taken[name].append(turns[name].seconds())
            launching = turns[name].launch_seconds()
            asked[name] += [] if launching is None else [launching]
    return [_row(case, tokens, name, taken[name], asked[name], ceilings) for name in turns]


def _row(
    case: "Case", tokens: int, name: str, taken: Sequence[float], asked: Sequence[float], ceilings: Ceilings
) -> Row:
    """From the seconds of each repeat: of a call, and, on a GPU, of asking for it."""
    spread = Spread.of([one * 1e6 for one in taken])
    median = spread.median / 1e6
    return Row(
        case=case.name,
        tokens=tokens,
        ops=name,
        microseconds=spread,
        gigabytes_per_second=case.num_bytes / median / 1e9,
        gigaflops_per_second=case.flops / median / 1e9,
        of_limit=ceilings.seconds(case.num_bytes, case.flops) / median,
        launch_microseconds=Spread.of([one * 1e6 for one in asked]) if asked else None,
    )


def _table(rows: Sequence[Row], lang: Language) -> str:
    heads = text(lang, "bench.kernels.heads").split("|")
    lines = [
        [
            row.case,
            str(row.tokens),
            row.ops,
            str(row.microseconds),
            number(row.gigabytes_per_second),
            number(row.gigaflops_per_second) if row.gigaflops_per_second else "-",
            f"{row.of_limit:.0%}",
        ]
        for row in rows
    ]
    if any(row.launch_microseconds for row in rows):
        heads.append(text(lang, "bench.kernels.launch"))
        for line, row in zip(lines, rows, strict=True):
            line.append(str(row.launch_microseconds))
    return plain_table(heads, lines)

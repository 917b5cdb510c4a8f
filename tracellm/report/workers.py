"""Several workers, for `tracellm show RUN workers` and the page: executor, parts of the model, time, waits.

Both show the same blocks, made here; `facts/workers/` finds the numbers.
"""

from collections import Counter
from collections.abc import Sequence

from tracellm.report.facts.startup import engine_config, startup_spans
from tracellm.report.facts.workers.groups import KINDS, Kind, RankStep, WorkerGroup, worker_groups
from tracellm.report.facts.workers.parts import WeightPart, WorkerPart
from tracellm.report.texts import text
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table, plain
from tracellm.report.wording.quantities import byte_size, clip
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import time
from tracellm.trace.model import Trace

__all__ = ["parts_blocks", "time_blocks", "workers_blocks", "workers_text"]

_MOST_STEPS = 20
_EXECUTORS = {
    "mp": "MultiprocExecutor",
    "ray": "RayDistributedExecutor",
    "external_launcher": "ExecutorWithExternalLauncher",
}


def workers_text(trace: Trace, *, lang: str = "en", width: int = 100) -> str:
    """Return the workers as plain text, lines of at most `width` columns, ending in a newline."""
    return plain(workers_blocks(trace, lang) or [Paragraph(text(lang, "workers.none"))], width)


def workers_blocks(trace: Trace, lang: str) -> list[Block]:
    """Return the workers of all engines; nothing for a run with one worker."""
    groups = worker_groups(trace)
    blocks: list[Block] = []
    for n, group in enumerate(groups, 1):
        blocks.append(Heading(text(lang, "workers") if len(groups) == 1 else text(lang, "workers.engine", n=n)))
        blocks += [*parts_blocks(trace, group, lang), *time_blocks(group, lang)]
    return blocks


def parts_blocks(trace: Trace, group: WorkerGroup, lang: str) -> list[Block]:
    """Return the executor, the memory of each rank, and its parts of the weights."""
    columns = ("rank", "process", "stage", "layers", "weights", "kv")
    rows = [
        (
            [str(part.rank)],
            [visible(part.process.name)],
            [str(part.stage)],
            [part.layers or text(lang, "workers.unknown")],
            [byte_size(part.weight_bytes) if part.weights else text(lang, "workers.unknown")],
            [text(lang, "workers.unknown") if part.kv_cache_bytes is None else byte_size(part.kv_cache_bytes)],
        )
        for part in group.parts
    ]
    heads = [Column(text(lang, f"workers.{name}"), number=name in ("weights", "kv")) for name in columns]
    blocks: list[Block] = [Paragraph(_executor(trace, group, lang)), Table(tuple(heads), tuple(rows))]
    for stage in range(group.num_stages):
        if table := _weights([part for part in group.parts if part.stage == stage], group.num_stages, lang):
            blocks.append(table)
    if any(len(weight.ranges) > 1 for part in group.parts for weight in part.weights):
        blocks.append(Paragraph(text(lang, "workers.parts.several")))
    return blocks


def _executor(trace: Trace, group: WorkerGroup, lang: str) -> str:
    """Return which executor was chosen and why, and the number of workers."""
    space = "" if lang == "zh" else " "
    settings = {setting.name: setting for setting in engine_config(startup_spans(trace))}
    tp, pp = len(group.parts[0].tp_ranks), group.num_stages
    sizes = text(lang, "workers.sizes", tp=tp, pp=pp, n=tp * pp)
    backend = settings.get("distributed_executor_backend")
    if backend is None:
        return sizes
    key = f"workers.why.{backend.origin}" if backend.origin in ("argument", "default") else "workers.why"
    executor = _EXECUTORS.get(backend.value, visible(backend.value))
    return text(lang, "workers.executor", executor=executor, why=text(lang, key)) + space + sizes


def _weights(parts: Sequence[WorkerPart], num_stages: int, lang: str) -> Table | None:
    """Return the weights of a stage, whole and in parts; None if they were not recorded."""
    by_rank = {part.rank: {weight.name: weight for weight in part.weights} for part in parts}
    names_of = dict.fromkeys(name for weights in by_rank.values() for name in weights)
    if not names_of:
        return None
    heads = [
        Column(text(lang, "workers.weight"), code=True),
        Column(text(lang, "workers.whole")),
        *(Column(text(lang, "workers.of_rank", rank=rank)) for rank in by_rank),
    ]
    rows = []
    for name in names_of:
        found = [weights.get(name) for weights in by_rank.values()]
        whole = next(weight for weight in found if weight is not None)
        shape = "×".join(map(str, whole.whole))
        rows.append(([visible(name.removesuffix(".weight"))], [shape], *(_range(weight, lang) for weight in found)))
    stage = parts[0].stage
    title = text(lang, "workers.parts" if num_stages > 1 else "workers.parts.one", stage=stage)
    return Table(tuple(heads), tuple(rows), title)


def _range(weight: WeightPart | None, lang: str) -> list[str]:
    """Return the part of a weight, `rows 0-127`."""
    if weight is None:
        return [text(lang, "workers.nobody")]
    if weight.dim is None:
        return [text(lang, "workers.all")]
    ranges = ", ".join(f"{start}-{start + size - 1}" for start, size, _ in weight.ranges)
    return [text(lang, f"workers.dim.{min(weight.dim, 1)}", ranges=ranges)]


def time_blocks(group: WorkerGroup, lang: str) -> list[Block]:
    """Return the time of each rank, who waits for whom, and the time of each step."""
    if group.unknown:
        return [Paragraph(text(lang, f"workers.unknown.{group.unknown}"))]
    if not group.steps:
        return []
    blocks: list[Block] = [_totals(group, lang), Paragraph(text(lang, "workers.what"))]
    if group.left_out:
        blocks.append(Paragraph(text(lang, "workers.left_out", n=group.left_out)))
    blocks += [_waits(group, lang), *_steps(group, lang)]
    if group.num_stages > 1:
        blocks.append(Paragraph(text(lang, "workers.pipeline")))
    return blocks


def _kinds(group: WorkerGroup) -> list[Kind]:
    """Return the kinds of time that occur in a group."""
    return [kind for kind in KINDS if any(one.time(kind) for one in group.steps)]


def _times(work: Sequence[RankStep], kinds: Sequence[Kind], count: int = 1) -> list[list[str]]:
    """Return the time of each kind and the idle time as cells: the sum over `work`, divided by `count`."""
    totals = [*(sum(one.time(kind) for one in work) for kind in kinds), sum(one.idle_ns for one in work)]
    return [[time(round(total / count))] for total in totals]


def _totals(group: WorkerGroup, lang: str) -> Table:
    kinds = _kinds(group)
    heads = [
        Column(text(lang, "workers.rank")),
        *(Column(text(lang, f"workers.{kind}"), number=True) for kind in (*kinds, "idle")),
    ]
    rows = [
        ([str(part.rank)], *_times([one for one in group.steps if one.rank == part.rank], kinds))
        for part in group.parts
    ]
    return Table(tuple(heads), tuple(rows), text(lang, "workers.time"))


def _waits(group: WorkerGroup, lang: str) -> Table:
    """Return how often each rank was the last to arrive, how long others waited for it, and it for others."""
    number = {"last", "caused", "waited"}
    heads = [
        Column(text(lang, f"workers.{name}"), number=name in number)
        for name in ("rank", "last", "caused", "waited", "for_whom")
    ]
    last = Counter(operation.last for operation in group.operations)
    waited: dict[int, Counter[int]] = {part.rank: Counter() for part in group.parts}
    for one in group.steps:
        waited[one.rank].update(one.waits)
    rows = []
    for part in group.parts:
        for_whom = [
            text(lang, "workers.for_rank", rank=rank, time=time(spent))
            for rank, spent in waited[part.rank].most_common()
        ]
        caused = sum(counts[part.rank] for counts in waited.values())
        rows.append(
            (
                [str(part.rank)],
                [f"{last[part.rank]:,}"],
                [time(caused)],
                [time(waited[part.rank].total())],
                for_whom or [text(lang, "workers.nobody")],
            )
        )
    return Table(tuple(heads), tuple(rows), text(lang, "workers.waits", n=len(group.operations)))


def _steps(group: WorkerGroup, lang: str) -> list[Block]:
    """Return the time of each step and stage, and its longest wait of one rank for another."""
    stages = {part.rank: part.stage for part in group.parts}
    by_step: dict[tuple[int, int], list[RankStep]] = {}
    for one in group.steps:
        by_step.setdefault((one.step.index, stages[one.rank]), []).append(one)
    shown, more = clip(sorted({index for index, _ in by_step}), _MOST_STEPS)
    kinds, staged = _kinds(group), group.num_stages > 1
    heads = [Column(text(lang, "workers.step"))]
    heads += [Column(text(lang, "workers.stage"))] if staged else []
    heads += [Column(text(lang, f"workers.{kind}"), number=True) for kind in (*kinds, "idle")]
    heads += [Column(text(lang, "workers.longest"))]
    rows = []
    for (index, stage), work in sorted(by_step.items()):
        if index in shown:
            cells = [[str(index)], *([[str(stage)]] if staged else []), *_times(work, kinds, len(work))]
            rows.append((*cells, [_longest(work, lang)]))
    blocks: list[Block] = [Table(tuple(heads), tuple(rows), text(lang, "workers.step_time"))]
    return [*blocks, Paragraph(text(lang, "workers.steps_more", n=more))] if more else blocks


def _longest(work: Sequence[RankStep], lang: str) -> str:
    waits = [(spent, one.rank, last) for one in work for last, spent in one.waits.items()]
    if not waits:
        return text(lang, "workers.nobody")
    spent, waiting, last = max(waits)
    return text(lang, "workers.longest.cell", waiting=waiting, last=last, time=time(spent))

"""`tracellm bench kernels`: time of each operation of a layer, in each implementation, beside the machine's limit.

In a model, a layer's weights and keys are no longer in the processor's cache when the layer runs. So each case has more
copies of its tensors than the cache holds, and uses them in turn.

On a GPU a call only launches a kernel, which often takes the host longer than the work takes the GPU. So many calls are
captured into one CUDA graph, and two events around its replay measure them. The time of a launch is shown beside it.

    host   launch, launch, ... (once, for the capture)      replay
    GPU                                                       |event| call | call | call | ... | call |event|

vLLM: benchmarks/kernels/ in its repository, which uses `triton.testing.do_bench_cudagraph`.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from math import ceil
from typing import Any, Protocol

import torch
from torch import Tensor

from tracellm.bench.figures import Spread, number, plain_table
from tracellm.bench.machine import Ceilings, describe, described, measure_ceilings
from tracellm.bench.throughput import interleaved
from tracellm.engine.attention.backend import AttentionImpl, CommonAttentionMetadata
from tracellm.engine.attention.selector import get_attn_backend
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.hf_config import BUNDLED_MODEL
from tracellm.engine.config.vllm_config import ModelConfig, VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
from tracellm.engine.model_executor.layers.linear import ReplicatedLinear
from tracellm.engine.model_executor.ops import Ops, make_ops, using_ops
from tracellm.engine.model_executor.ops.choice import choose_ops
from tracellm.report.texts import Language, text

__all__ = ["Case", "Row", "Sizes", "Timer", "cases", "kernels", "make_timer"]

_COLD_BYTES = 1 << 28
_MOST_COPIES = 64
_EPSILON = 1e-6
_BLOCK_SIZE = 16
_TURN_SECONDS = 0.02
_MOST_CALLS = 10_000
_MOST_LAUNCHES = 1_000
"""Limit of the calls in a graph, and of those in the GPU's queue."""

Calls = Sequence[Callable[[], object]]
"""The calls of an operation, one for each copy of its tensors."""


@dataclass(frozen=True)
class Row:
    """Measurements of one operation in one implementation."""

    case: str
    tokens: int
    ops: str
    microseconds: Spread
    gigabytes_per_second: float
    gigaflops_per_second: float
    of_limit: float
    """Ideal time over median time; above 1 for small tensors, which stay in the cache."""
    launch_microseconds: Spread | None
    """The host's time to launch it on a GPU; None on a CPU."""


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
) -> str:
    """Measure, and return the figures as text or JSON. `names`: implementations, by default torch and the engine's.

    Raises:
        EngineError: the model, a setting or an implementation is not supported on this machine.
    """
    config = EngineArgs.from_arguments(**{"model": model or BUNDLED_MODEL, **engine}).create_engine_config()
    device = config.device_config.device
    chosen = list(names) or list(dict.fromkeys(["torch", config.ops_choice.name]))
    _check(chosen, config)
    ceilings = measure_ceilings(config.model_config.dtype, device)
    rows = []
    for count in tokens:
        for case in cases(Sizes.of(config.model_config, device, count, context)):
            rows += _measured(case, count, chosen, ceilings, repeats, device)
    if as_json:
        figures = {"machine": describe(), "ceilings": asdict(ceilings), "rows": [asdict(row) for row in rows]}
        return json.dumps(figures)
    name = config.model_config.served_model_name
    heads = text(lang, "bench.kernels.headlines", model=name, context=context)
    if device.type == "cuda":
        heads += text(lang, "bench.kernels.gpu") + "\n"
    return f"{described(ceilings, lang)}\n{heads}\n{_table(rows, lang)}"


def _check(names: Sequence[str], config: VllmConfig) -> None:
    for name in names:
        try:
            choose_ops(name, config.device_config.device)
        except EngineError as error:
            raise EngineError(str(error).replace("`attention_backend`", "`ops`")) from None


def _measured(
    case: "Case", tokens: int, names: Sequence[str], ceilings: Ceilings, repeats: int, device: Any
) -> list[Row]:
    """Measure one operation, alternating between its implementations."""
    with torch.inference_mode():
        timers = {name: make_timer(case.make(make_ops(name)), device) for name in dict.fromkeys(names)}
        times: dict[str, list[float]] = {name: [] for name in timers}
        launches: dict[str, list[float]] = {name: [] for name in timers}
        for name in interleaved(list(timers), repeats):
            times[name].append(timers[name].seconds())
            launching = timers[name].launch_seconds()
            launches[name] += [] if launching is None else [launching]
    return [_row(case, tokens, name, times[name], launches[name], ceilings) for name in timers]


def _row(
    case: "Case", tokens: int, name: str, times: Sequence[float], launches: Sequence[float], ceilings: Ceilings
) -> Row:
    """Return the row, from each repeat's seconds for a call and, on a GPU, for its launch."""
    spread = Spread.of([seconds * 1e6 for seconds in times])
    median = spread.median / 1e6
    return Row(
        case=case.name,
        tokens=tokens,
        ops=name,
        microseconds=spread,
        gigabytes_per_second=case.num_bytes / median / 1e9,
        gigaflops_per_second=case.flops / median / 1e9,
        of_limit=ceilings.seconds(case.num_bytes, case.flops) / median,
        launch_microseconds=Spread.of([seconds * 1e6 for seconds in launches]) if launches else None,
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


# -- the operations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model and of a step with `tokens` tokens; in attention each has `context` tokens before it."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    dtype: torch.dtype
    device: torch.device
    tokens: int
    context: int

    @classmethod
    def of(cls, config: ModelConfig, device: torch.device, tokens: int, context: int) -> "Sizes":
        """Return a model's sizes. An `intermediate_size` that is not in config.json is four times the hidden size."""
        hidden = config.get_hidden_size()
        return cls(
            hidden=hidden,
            intermediate=getattr(config.hf_config, "intermediate_size", None) or 4 * hidden,
            heads=config.get_num_attention_heads(),
            kv_heads=config.get_num_kv_heads(),
            head_size=config.get_head_size(),
            vocab=config.get_vocab_size(),
            dtype=config.dtype,
            device=device,
            tokens=tokens,
            context=context,
        )

    def random(self, *shape: int) -> Tensor:
        """Return a random tensor of the model's dtype."""
        return torch.randn(shape, device=self.device).to(self.dtype)


@dataclass(frozen=True)
class Case:
    """One operation."""

    name: str
    num_bytes: int
    """Bytes to read and write, each once."""
    flops: int
    """FLOPs of matrix multiplications; 0 for operations that are bound by memory."""
    make: Callable[[Ops], list[Callable[[], object]]]
    """Returns the calls of the operation, one for each copy of its tensors."""


def cases(sizes: Sizes) -> Iterator[Case]:
    """Yield the elementwise operations of a layer, then its linear layers, then attention."""
    yield from _elementwise(sizes)
    query_size = sizes.heads * sizes.head_size
    kv_size = sizes.kv_heads * sizes.head_size
    yield _linear(sizes, "linear qkv", sizes.hidden, query_size + 2 * kv_size)
    yield _linear(sizes, "linear gate_up", sizes.hidden, 2 * sizes.intermediate)
    yield _linear(sizes, "linear down", sizes.intermediate, sizes.hidden)
    yield _linear(sizes, "linear lm_head", sizes.hidden, sizes.vocab)
    yield _attention(sizes, "attention decode", [1] * sizes.tokens, [sizes.context] * sizes.tokens)
    if sizes.tokens > 1:
        yield _attention(sizes, "attention prefill", [sizes.tokens], [sizes.tokens])


def _elementwise(sizes: Sizes) -> Iterator[Case]:
    tokens, width = sizes.tokens, sizes.dtype.itemsize
    x, residual, weight = (
        sizes.random(tokens, sizes.hidden),
        sizes.random(tokens, sizes.hidden),
        sizes.random(sizes.hidden),
    )
    row = tokens * sizes.hidden * width
    yield Case("rms_norm", 2 * row, 0, lambda ops: [lambda: ops.rms_norm(x, weight, _EPSILON)])
    yield Case(
        "fused_add_rms_norm", 4 * row, 0, lambda ops: [lambda: ops.fused_add_rms_norm(x, residual, weight, _EPSILON)]
    )
    gates = sizes.random(tokens, 2 * sizes.intermediate)
    yield Case(
        "silu_and_mul", 3 * tokens * sizes.intermediate * width, 0, lambda ops: [lambda: ops.silu_and_mul(gates)]
    )
    query = sizes.random(tokens, sizes.heads, sizes.head_size)
    key = sizes.random(tokens, sizes.kv_heads, sizes.head_size)
    table = sizes.random(sizes.context + tokens, sizes.head_size)
    positions = torch.arange(tokens, device=sizes.device)
    turned = 2 * tokens * (sizes.heads + sizes.kv_heads) * sizes.head_size * width
    yield Case("rotary_embedding", turned, 0, lambda ops: [lambda: ops.rotary_embedding(positions, query, key, table)])
    blocks = ceil(tokens / _BLOCK_SIZE)
    cache = sizes.random(2, blocks, _BLOCK_SIZE, sizes.kv_heads, sizes.head_size)
    slots = torch.randperm(blocks * _BLOCK_SIZE, device=sizes.device)[:tokens]

    def write(ops: Ops) -> list[Callable[[], object]]:
        impl = _impl(sizes, ops)
        return [lambda: impl.reshape_and_cache(key, key, cache[0], cache[1], slots)]

    yield Case("reshape_and_cache", 4 * key.numel() * width, 0, write)


def _linear(sizes: Sizes, name: str, inputs: int, outputs: int) -> Case:
    width = sizes.dtype.itemsize
    weight_bytes = inputs * outputs * width

    def make(ops: Ops) -> list[Callable[[], object]]:
        x = sizes.random(sizes.tokens, inputs)
        layers = []
        for _ in range(_copies(weight_bytes)):
            with using_ops(ops):
                layer = ReplicatedLinear(inputs, outputs, bias=False).to(sizes.device, sizes.dtype)
            layer.weight.data.uniform_(-0.1, 0.1)
            ops.prepare_weights(layer)
            layers.append(layer)
        return [lambda layer=layer: layer(x) for layer in layers]  # type: ignore[misc]

    return Case(
        name,
        weight_bytes + sizes.tokens * (inputs + outputs) * width,
        2 * sizes.tokens * inputs * outputs,
        make,
    )


def _attention(sizes: Sizes, name: str, query_lens: list[int], seq_lens: list[int]) -> Case:
    """Return attention over sequences with their blocks scattered over the cache."""
    width = sizes.dtype.itemsize
    per_sequence = ceil(max(seq_lens) / _BLOCK_SIZE)
    num_blocks = per_sequence * len(seq_lens)
    kv_bytes = 2 * sum(seq_lens) * sizes.kv_heads * sizes.head_size * width

    def make(ops: Ops) -> list[Callable[[], object]]:
        table = torch.randperm(num_blocks).view(len(seq_lens), per_sequence).to(torch.int32)
        query = sizes.random(sum(query_lens), sizes.heads, sizes.head_size)
        starts = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)

        common = CommonAttentionMetadata(
            query_start_loc=starts.to(sizes.device),
            seq_lens=torch.tensor(seq_lens, dtype=torch.int32, device=sizes.device),
            block_table=table.to(sizes.device),
            slot_mapping=torch.zeros(sum(query_lens), dtype=torch.int64, device=sizes.device),
            query_lens_cpu=query_lens,
            seq_lens_cpu=seq_lens,
            block_table_cpu=table.numpy(),
        )
        impl = _impl(sizes, ops)
        spec = FullAttentionSpec(_BLOCK_SIZE, sizes.kv_heads, sizes.head_size, sizes.dtype)
        metadata = get_attn_backend(ops.name).get_builder_cls()(spec, [impl]).build(common)
        shape = (2, num_blocks, _BLOCK_SIZE, sizes.kv_heads, sizes.head_size)
        caches = [sizes.random(*shape) for _ in range(_copies(kv_bytes))]
        return [
            lambda cache=cache: impl.paged_attention(query, cache[0], cache[1], metadata)  # type: ignore[misc]
            for cache in caches
        ]

    pairs = sum(
        queries * length - queries * (queries - 1) // 2 for queries, length in zip(query_lens, seq_lens, strict=True)
    )
    return Case(
        name,
        kv_bytes + 2 * sum(query_lens) * sizes.heads * sizes.head_size * width,
        4 * pairs * sizes.heads * sizes.head_size,
        make,
    )


def _impl(sizes: Sizes, ops: Ops) -> AttentionImpl:
    """Return a layer's attention, by the backend that belongs to `ops`."""
    impl_cls = get_attn_backend(ops.name).get_impl_cls()
    return impl_cls(sizes.heads, sizes.head_size, sizes.head_size**-0.5, sizes.kv_heads)


def _copies(num_bytes: int) -> int:
    return max(1, min(_MOST_COPIES, ceil(_COLD_BYTES / num_bytes)))


# -- the timers --------------------------------------------------------------------------------------------------------


class Timer(Protocol):
    """A timer of one operation in one implementation."""

    def seconds(self) -> float:
        """Return the mean time of a call."""
        ...

    def launch_seconds(self) -> float | None:
        """Return the host's mean time to launch a call; None on a CPU."""
        ...


def make_timer(calls: Calls, device: Any) -> Timer:
    """Return a timer, after a call on each copy that compiles, tunes and touches all memory."""
    for call in calls:
        call()
    return OnGpu(calls) if device.type == "cuda" else OnCpu(calls)


class OnCpu:
    """Timer on a CPU; makes enough calls for the clock's resolution."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._count = len(calls)
        while (once := self.seconds()) * self._count < _TURN_SECONDS and self._count < _MOST_CALLS:
            self._count = min(_MOST_CALLS, max(2 * self._count, int(_TURN_SECONDS / once)))

    def seconds(self) -> float:
        """See `Timer.seconds`."""
        return _host_seconds(self._calls, self._count)

    def launch_seconds(self) -> None:
        """Return None: a CPU has no launches."""


class OnGpu:
    """Timer on a GPU; replays a CUDA graph of whole rounds over the copies.

    Args:
        calls: calls that do not synchronize with the GPU, and have been made once.
        cuda: `torch.cuda`, or a replacement in tests.
    """

    def __init__(self, calls: Calls, cuda: Any = None) -> None:
        if cuda is None:
            from torch import cuda
        self._calls, self._cuda = calls, cuda
        once = self._between_events(lambda: self._call(len(calls))) / len(calls)  # includes the host's time
        rounds = ceil(min(_TURN_SECONDS / max(once, 1e-9), _MOST_LAUNCHES) / len(calls))
        self._count = max(1, rounds) * len(calls)
        self._graph = cuda.CUDAGraph()
        with cuda.graph(self._graph):
            self._call(self._count)
        self.seconds()  # the first replay uploads the graph

    def seconds(self) -> float:
        """See `Timer.seconds`."""
        return self._between_events(self._graph.replay) / self._count

    def launch_seconds(self) -> float:
        """See `Timer.launch_seconds`."""
        self._cuda.synchronize()  # empties the queue, so that no launch waits
        times = _host_seconds(self._calls, min(self._count, _MOST_LAUNCHES))
        self._cuda.synchronize()
        return times

    def _call(self, count: int) -> None:
        for call in islice(cycle(self._calls), count):
            call()

    def _between_events(self, work: Callable[[], object]) -> float:
        """Return the GPU's time for this work, in seconds."""
        before, after = (self._cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        work()
        after.record()
        after.synchronize()
        milliseconds: float = before.elapsed_time(after)
        return milliseconds / 1e3


def _host_seconds(calls: Calls, count: int) -> float:
    """Return the mean time of `count` calls, by the host's clock."""
    start = time.perf_counter()
    for call in islice(cycle(calls), count):
        call()
    return (time.perf_counter() - start) / count

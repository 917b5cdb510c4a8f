"""A run as four tidy tables, for pandas, Polars or PyArrow: spans, steps, requests and blocks.

Times are milliseconds, `start_ms` since the start of the run. Values that were not recorded are null. Each library is
imported when it is asked for.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tracellm.report.facts.engines import engines, step_positions
from tracellm.trace.steps import step_around

if TYPE_CHECKING:
    from tracellm.notebook.run import Run

__all__ = ["COLUMNS", "Tables", "as_arrow", "as_pandas", "as_polars"]

T = TypeVar("T")


class Tables(NamedTuple, Generic[T]):
    """The tables of a run.

    Attributes:
        spans: a row for each recorded call.
        steps: a row for each step of an engine.
        requests: a row for each request.
        blocks: a row for each KV cache block that a request had, with the steps in which it had it.
    """

    spans: T
    steps: T
    requests: T
    blocks: T

    def __repr__(self) -> str:
        """Return the tables by name, with their numbers of rows."""
        sizes = ", ".join(f".{name} ({len(table):,} rows)" for name, table in self._asdict().items())
        return f"<tables of a run: {sizes}>"


COLUMNS: Tables[dict[str, type]] = Tables(
    spans={
        "span_id": str, "parent_span_id": str, "name": str, "lifeline": str, "level": str, "process": str, "pid": int,
        "thread": str, "engine": int, "step": int, "start_ms": float, "duration_ms": float, "recording_ms": float,
        "error": str,
    },
    steps={
        "engine": int, "step": int, "kind": str, "start_ms": float, "duration_ms": float, "budget": int, "tokens": int,
        "prefill": int, "decode": int, "requests": int, "running": int, "waiting": int, "preempted": int,
        "finished": int, "prefix_hit_tokens": int, "free_blocks": int, "total_blocks": int,
    },
    requests={
        "request": str, "prompt": str, "output": str, "prompt_tokens": int, "output_tokens": int, "finish_reason": str,
        "start_ms": float, "queued_ms": float, "prefill_ms": float, "first_token_ms": float, "decode_ms": float,
        "steps": int, "preemptions": int, "prefix_hit_tokens": int,
    },
    blocks={
        "engine": int, "request": str, "index": int, "block": int, "from_cache": bool, "first_step": int,
        "last_step": int,
    },
)  # fmt: skip
"""Names and types of the columns."""


def as_arrow(run: "Run") -> Tables[Any]:
    """Return the tables as `pyarrow.Table`."""
    with _needed("pyarrow"):
        import pyarrow

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    return _convert(
        run, lambda columns, values: pyarrow.table(values, pyarrow.schema([(n, types[columns[n]]) for n in columns]))
    )


def as_pandas(run: "Run") -> Tables[Any]:
    """Return the tables as `pandas.DataFrame`, with types that have nulls."""
    with _needed("pandas"):
        import pandas

    types = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}
    return _convert(
        run,
        lambda columns, values: pandas.DataFrame(
            {name: pandas.array(values[name], dtype=types[columns[name]]) for name in columns}
        ),
    )


def as_polars(run: "Run") -> Tables[Any]:
    """Return the tables as `polars.DataFrame`."""
    with _needed("polars"):
        import polars

    types = {str: polars.String, int: polars.Int64, float: polars.Float64, bool: polars.Boolean}
    return _convert(
        run, lambda columns, values: polars.DataFrame(values, schema={name: types[columns[name]] for name in columns})
    )


@contextmanager
def _needed(name: str) -> Iterator[None]:
    """Add to the error of an import how to install the library."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == name:
            raise ModuleNotFoundError(f"{name} is not installed: pip install {name}", name=name) from None
        raise


def _convert(run: "Run", make: Any) -> Tables[Any]:
    rows = (_spans(run), _steps(run), _requests(run), _blocks(run))
    return Tables(*(make(columns, _as_columns(columns, found)) for columns, found in zip(COLUMNS, rows, strict=True)))


def _as_columns(columns: dict[str, type], rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return rows as lists by column."""
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for row in rows:
        for cell, column in zip(row, values.values(), strict=True):
            column.append(cell)
    return values


def _spans(run: "Run") -> Iterator[tuple[Any, ...]]:
    trace = run.trace
    begin = trace.spans[0].start_ns if trace.spans else 0
    places = step_positions(trace)
    numbers = [[step.index for step in engine.steps] for engine in engines(trace)]
    for span in trace.spans:
        around = step_around(trace, span)
        engine, position = places.get(around.span_id, (None, None)) if around is not None else (None, None)
        yield (
            span.span_id, span.parent_span_id, span.name, span.lifeline, span.level,
            span.process.name if span.process else None, span.process.pid if span.process else None, span.thread[2],
            engine, None if engine is None or position is None else numbers[engine][position],
            (span.start_ns - begin) / 1e6, span.duration_ns / 1e6, span.recording_ns / 1e6, span.error,
        )  # fmt: skip


def _steps(run: "Run") -> Iterator[tuple[Any, ...]]:
    for step in run.steps:
        yield (
            step.engine, step.number, step.kind, step.start_ms, step.duration_ms, step.budget, step.tokens,
            step.prefill, step.decode, len(step.scheduled), len(step.running), step.num_waiting, len(step.preempted),
            len(step.finished), sum(step.prefix_hits.values()), step.free_blocks, step.total_blocks,
        )  # fmt: skip


def _requests(run: "Run") -> Iterator[tuple[Any, ...]]:
    for request in run.requests:
        own = request.steps
        yield (
            request.id, request.prompt, request.output, request.num_prompt_tokens, request.num_output_tokens,
            request.finish_reason, request.start_ms, request.queued_ms, request.prefill_ms, request.first_token_ms,
            request.decode_ms, len(own), request.num_preemptions,
            next((step.prefix_hits.get(request.id, 0) for step in own), 0),
        )  # fmt: skip


def _blocks(run: "Run") -> Iterator[tuple[Any, ...]]:
    """Yield a row for each block of a request, in the order in which requests got them."""
    open_rows: dict[tuple[int, str], list[list[Any]]] = {}
    rows: list[list[Any]] = []
    for step in run.steps:
        tables = step.kv_blocks
        fresh = step.new_blocks
        for request_id, table in tables.items():
            own = open_rows.setdefault((step.engine, request_id), [])
            if [row[3] for row in own] != table[: len(own)]:  # preempted and resumed, or another request of this id
                own.clear()
            for row in own:
                row[6] = step.number
            for index in range(len(own), len(table)):
                from_cache = table[index] not in fresh.get(request_id, ())
                own.append([step.engine, request_id, index, table[index], from_cache, step.number, step.number])
                rows.append(own[-1])
        for key in [key for key in open_rows if key[0] == step.engine and key[1] not in tables]:
            del open_rows[key]
    yield from map(tuple, rows)

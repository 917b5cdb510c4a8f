"""A run as data frames: one table each for spans, steps, requests and blocks, in three libraries."""

from collections import Counter
from typing import Any

import pandas
import polars
import pyarrow
import pytest

from tests.notebook.conftest import Recorded
from tracellm.notebook.tables import COLUMNS, Tables


@pytest.fixture(scope="module")
def arrow(recorded: Recorded) -> Tables[Any]:
    """The tables of the run, in PyArrow."""
    return recorded[0].to_arrow()


def test_three_libraries_have_the_same_tables(recorded: Recorded, arrow: Tables[Any]):
    """Columns, types and values of pandas and Polars are those of PyArrow."""
    run, *_ = recorded
    for columns, mine, pandas_frame, polars_frame in zip(COLUMNS, arrow, run.to_pandas(), run.to_polars(), strict=True):
        assert isinstance(pandas_frame, pandas.DataFrame)
        assert isinstance(polars_frame, polars.DataFrame)
        assert mine.column_names == list(pandas_frame) == polars_frame.columns == list(columns)
        rows = mine.to_pylist()
        assert polars_frame.to_dicts() == rows
        assert pyarrow.Table.from_pandas(pandas_frame, mine.schema, preserve_index=False).to_pylist() == rows


def test_spans_have_their_steps(recorded: Recorded, arrow: Tables[Any]):
    """There is a row for each span, and each step's rows begin with the step itself."""
    run, *_ = recorded
    rows = arrow.spans.to_pylist()
    assert [row["span_id"] for row in rows] == [span.span_id for span in run.trace.spans]
    firsts = {row["step"]: row["name"] for row in reversed(rows) if row["step"] is not None}
    assert firsts == dict.fromkeys((step.number for step in run.steps), "EngineCore.step_fn")
    assert {row["step"] for row in rows if row["name"] == "LLM.generate"} == {None}


def test_steps_and_requests_add_up(recorded: Recorded, arrow: Tables[Any]):
    """Sums over the table of steps are those of the requests and of the outputs."""
    outputs = recorded[2]
    steps, requests = arrow.steps.to_pylist(), arrow.requests.to_pylist()
    assert sum(row["preempted"] for row in steps) == sum(row["preemptions"] for row in requests) > 0
    assert sum(row["finished"] for row in steps) == len(requests) == len(outputs)
    assert [row["output"] for row in requests] == [output.outputs[0].text for output in outputs]
    assert all(row["tokens"] == row["prefill"] + row["decode"] <= row["budget"] for row in steps)


def test_blocks_tell_who_had_which_block_when(recorded: Recorded, arrow: Tables[Any]):
    """The blocks of a step are those whose rows include it, and no block has two requests at a time but shared ones."""
    run, *_ = recorded
    rows = arrow.blocks.to_pylist()
    for step in run.steps:
        here = [row for row in rows if row["first_step"] <= step.number <= row["last_step"]]
        tables: dict[str, list[int]] = {}
        for row in sorted(here, key=lambda row: row["index"]):
            tables.setdefault(row["request"], []).append(row["block"])
        assert tables == {request_id: table for request_id, table in step.kv_blocks.items() if table}
        owners = Counter(row["block"] for row in here if not row["from_cache"])
        assert set(owners.values()) <= {1}

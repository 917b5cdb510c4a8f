"""`%%explain` in a real kernel: the cell runs as always, the run is a variable, and nothing is left behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel

from scripts.notebooks import execute_in

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by jupyter_client and tornado

LOAD = "%load_ext tracellm\nfrom tracellm import LLM, SamplingParams\nllm = LLM(dtype='float32', max_model_len=64)"
ONE = "llm.generate('Hello', SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)[0].outputs[0].text"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One kernel for all tests: a start takes seconds."""
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("TRACELLM_LANG", "en")
        manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), startup_timeout=90)
    try:
        client.stop_channels()
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


@pytest.fixture
def run_cells(kernel: KernelManager, tmp_path: Path):
    """A function that runs cells in the kernel, in an empty folder, and returns the outputs of each."""

    def run(*sources: str) -> list[list[dict[str, Any]]]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        execute_in(kernel, notebook, str(tmp_path), allow_errors=True)
        return [cell.outputs for cell in notebook.cells]

    return run


def shown(outputs: list[dict[str, Any]], kind: str = "text/plain") -> str:
    """Return everything that a cell shows."""
    return "\n".join(
        "".join(one.get("traceback", ())) + one.get("text", "") + one.get("data", {}).get(kind, "") for one in outputs
    )


def test_a_cell_shows_its_value_and_the_answer(run_cells: Any, tmp_path: Path):
    """The cell's last value is shown, then the answer as text and HTML; the variable is the run."""
    _, cell, after, line, named = run_cells(
        LOAD,
        f"%%explain --detail step --as mine\n{ONE}",
        "len(mine.steps), mine.requests[0].output",
        f"%explain {ONE}",
        f"%explain --out kept {ONE}",
    )
    assert [one["output_type"] for one in cell] == ["execute_result", "display_data"]
    assert cell[0]["data"]["text/plain"] in after[0]["data"]["text/plain"]
    assert after[0]["data"]["text/plain"].startswith("(3, ")
    assert "Finished" in shown(cell[1:])
    assert "<table" in shown(cell[1:], "text/html")
    assert "<script" not in shown(cell[1:], "text/html")
    assert shown(line[:1]) == shown(cell[:1]) == shown(named[:1])
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_diagrams_and_trees_are_shown_as_they_are(run_cells: Any):
    """The last value of a cell may be a diagram or a tree: its lines are shown as lines, without quotes."""
    *_, diagram, tree = run_cells(LOAD, f"%explain {ONE}", "run.sequence(focus='Scheduler')", "run.tree()")
    assert shown(diagram).startswith("sequenceDiagram\n    ")
    assert shown(diagram) == shown(diagram, "text/vnd.mermaid")
    assert "<svg" in shown(diagram, "text/html")
    assert "\n" in shown(tree)
    assert "\\n" not in shown(tree)


def test_cells_and_their_functions_have_names(run_cells: Any):
    """A line has the number of its cell, which no kernel changes; a function of a cell is found by its own name."""
    ask = "@tracellm.probe\ndef ask():\n    return llm.generate('Hello', SamplingParams(max_tokens=1), use_tqdm=False)"
    number = "get_ipython().displayhook.prompt_count"
    *_, before, _, tree, drawn, kept, failed = run_cells(
        LOAD, f"import tracellm\n{ask}", number, "%%explain --out 'a b'\nask()", "print(run.tree())",
        "print(run.sequence(focus='ask'))", "run.folder.name", "%explain 1 / 0",
    )  # fmt: skip
    cell = int(shown(before)) + 1
    assert f"└ In[{cell}]:1  ask()" in shown(tree)
    assert f"In[{cell - 2}]:4  return llm.generate(" in shown(tree)
    assert "notebook->>+notebook: ask()" in shown(drawn)
    assert "notebook->>+LLM: generate(" in shown(drawn)
    assert "Scheduler" not in shown(drawn)
    assert shown(kept) == "'a b'"
    assert "ZeroDivisionError" in shown(failed)


def test_an_error_in_the_cell_is_shown_and_recorded(run_cells: Any):
    """A failing cell shows its own traceback, the run has the error, and the next cell can be recorded."""
    _, failing, status, again = run_cells(
        LOAD,
        f"%%explain\n{ONE}\n1 / 0",
        "run.manifest['status'], run.manifest['error']['type'], len(run.steps)",
        f"%explain {ONE}",
    )
    assert "ZeroDivisionError" in shown(failing)
    assert "magics.py" not in shown(failing)
    assert shown(status) == "('failed', 'ZeroDivisionError', 3)"
    assert "Finished" in shown(again)


def test_wrong_options_are_one_message(run_cells: Any):
    """An unknown option, a wrong level, no code, and a recording within a recording are one line each."""
    outputs = run_cells(
        "%load_ext tracellm",
        "%explain --deep step f()",
        "%explain --detail deep f()",
        "%explain",
        "%explain --as 1 f()",
        "%%explain\nawait f()",
        "%%explain\n%explain f()",
    )
    for cell, message in zip(
        outputs[1:],
        (
            "--deep: not an option",
            "request, step, layer",
            "nothing to run",
            "--as 1: not a name",
            "cannot run await",
            "under way",
        ),
        strict=True,
    ):
        assert message in shown(cell)
        assert "Traceback" not in shown(cell)

"""The notebooks run from their first cell to their last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of jupyter_client and tornado
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs without an error, and the ones that show something show it."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # no profile of the user's own
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "".join(
        output.get("text", "") or "".join(output.get("data", {}).values())
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    for expected in ("Paris", "EngineCore.step_fn", "sequenceDiagram", "prefill"):
        assert expected in shown


def test_notebooks_are_kept_without_outputs() -> None:
    """What is committed holds no outputs and no counts, so that a run changes nothing in the file."""
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                assert (cell.outputs, cell.execution_count) == ([], None), path.name

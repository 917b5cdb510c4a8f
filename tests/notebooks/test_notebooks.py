"""The notebooks run from their first cell to their last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by jupyter_client and tornado
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs without an error, and the outputs have the expected parts."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # without the user's profile
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
    """Committed notebooks have no outputs and no execution counts, so a run changes nothing."""
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                assert (cell.outputs, cell.execution_count) == ([], None), path.name

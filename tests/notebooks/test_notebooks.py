"""The lessons in notebooks/: they run, their kept outputs are of the kinds that a run gives, both languages agree."""

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest

from scripts.notebooks import ROOT, execute, kinds, read_source, sources
from tests.real_vllm import require_vllm

LESSONS = sources()


def kept(path: Path) -> Any:
    """Return the committed notebook of a text."""
    return nbformat.read(path.with_suffix(".ipynb"), as_version=4)


ENGLISH = [path for path in LESSONS if path.parent.name == "en"]
"""Those that run in the tests: the Chinese ones have the same code, as another test checks."""


@pytest.mark.parametrize("path", ENGLISH, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by jupyter_client and tornado
def test_a_lesson_runs(path: Path) -> None:
    """Every cell runs, and gives outputs of the kinds that both committed notebooks have."""
    if "vllm" in path.stem:
        require_vllm()
    made = execute(path)
    other = ROOT / "zh" / path.name
    assert [kinds(cell) for cell in made.cells] == [kinds(cell) for cell in kept(other).cells]
    assert [(cell.source, kinds(cell)) for cell in made.cells] == [
        (cell.source, kinds(cell)) for cell in kept(path).cells
    ], "run python -m scripts.notebooks"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: str(path.relative_to(ROOT).with_suffix("")))
def test_a_committed_notebook_is_that_of_its_text(path: Path) -> None:
    """The cells are those of the text, every code cell was run, and no output is an error or has a local path."""
    cells = kept(path).cells
    assert [(cell.cell_type, cell.source) for cell in cells] == [
        (cell.cell_type, cell.source) for cell in read_source(path).cells
    ], "run python -m scripts.notebooks"
    for cell in cells:
        if cell.cell_type == "code":
            assert cell.execution_count, cell.source
            assert all(output.output_type != "error" and "/tmp/" not in str(output) for output in cell.outputs)


def test_both_languages_have_the_same_lessons() -> None:
    """A lesson has the same cells in English and in Chinese, with the same code apart from texts and comments."""
    names = {language: [path.name for path in LESSONS if path.parent.name == language] for language in ("en", "zh")}
    assert names["en"] == names["zh"]
    for name in names["en"]:
        english, chinese = (read_source(ROOT / language / name).cells for language in ("en", "zh"))
        assert [cell.cell_type for cell in english] == [cell.cell_type for cell in chinese], name
        for one, other in zip(english, chinese, strict=True):
            if one.cell_type == "code":
                assert _without_texts(one.source) == _without_texts(other.source), name


def _without_texts(code: str) -> str:
    """Return the code of a cell without the words of its texts, and without comments."""
    lines = ["pass" if line.startswith(("%", "!")) else line for line in code.splitlines()]
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            node.values = [value for value in node.values if isinstance(value, ast.FormattedValue)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)

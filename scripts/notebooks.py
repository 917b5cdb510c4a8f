"""Lessons in notebooks/: each .py file, a text in jupytext's percent format, makes the .ipynb beside it, with outputs.

    python -m scripts.notebooks                       # all lessons, in both languages
    python -m scripts.notebooks en/01_first_look ...  # some of them

A notebook runs in a new kernel of this environment, in an empty folder. Lesson 9 runs a real vLLM by the interpreter in
TRACELLM_VLLM_PYTHON, or that of .venv-vllm. `tests/notebooks/test_notebooks.py` runs all again.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

__all__ = ["ROOT", "execute", "execute_in", "kinds", "read_source", "sources"]

ROOT = Path(__file__).parents[1] / "notebooks"
_FOLDERS = re.compile(r"/[\w/.-]*/(?:tracellm-\w+|lesson-\w+)(?=[/<\s]|$)")
"""Folders that differ from run to run."""


_EMPTY = """\
%reset -f
get_ipython().extension_manager.loaded.discard("tracellm")
import gc; gc.collect()
%cd -q {folder}
%reset -f"""
"""Cell that empties a kernel: names, the extension, engines and their processes; it goes to an empty folder."""


_LIVE_LINE = {"text/plain": ""}
"""Rest of the live line of a cell that took some seconds."""


def sources() -> list[Path]:
    """Return the text of every lesson, in order."""
    return sorted(ROOT.glob("*/[0-9]*.py"))


def read_source(path: Path) -> Any:
    """Return the notebook of a text, without outputs; its cells have the ids 1, 2, 3, ..."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = str(number)
        cell["metadata"] = {}
    notebook["metadata"] = {key: notebook["metadata"][key] for key in ("kernelspec",)}
    notebook["nbformat_minor"] = 5
    return notebook


def execute(path: Path) -> Any:
    """Return the notebook of a text with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = read_source(path)
    with tempfile.TemporaryDirectory(prefix="lesson-") as folder, _environment(path.parent.name, folder):
        NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell["metadata"] = {}
        if cell.cell_type == "code":
            outputs = [output for output in cell.outputs if output.get("data") != _LIVE_LINE]
            cell.outputs = [_cleaned(output) for output in merged(outputs)]
    notebook["metadata"] = {"kernelspec": notebook["metadata"]["kernelspec"]}
    return notebook


def execute_in(kernel: KernelManager, notebook: Any, folder: str, **options: Any) -> None:
    """Execute the cells of a notebook in a running kernel, without the names it has, in a folder.

    Args:
        kernel: the kernel.
        notebook: the notebook, which gets the outputs.
        folder: the current directory of the cells.
        options: those of NotebookClient.
    """
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_EMPTY.format(folder=folder)))
    client = NotebookClient(notebook, km=kernel, **options)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
        del notebook.cells[0]


def kinds(cell: Any) -> list[str]:
    """Return the kind of each output of a cell: a stream's name, the media types of a display, an error's name."""
    return [
        output.get("name") or output.get("ename") or ", ".join(sorted(output.data))
        for output in cell.get("outputs", ())
    ]


@contextmanager
def _environment(language: str, folder: str) -> Iterator[None]:
    """Context in which a kernel starts without the user's profile, and with a lesson's language."""
    before = dict(os.environ)
    os.environ |= {"IPYTHONDIR": f"{folder}/.ipython", "TRACELLM_LANG": language, "OMP_NUM_THREADS": "1"}
    os.environ |= {"PYTHONPATH": str(ROOT.parent)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def merged(outputs: Sequence[Any]) -> list[Any]:
    """Return outputs with adjacent pieces of one stream joined: a busy kernel sends what is printed in pieces."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1]["text"] += output.text
        else:
            joined.append(output)
    return joined


def _cleaned(output: Any) -> Any:
    """Return an output with paths of temporary folders shortened."""
    if "text" in output:
        output["text"] = _FOLDERS.sub("…", output["text"])
    for kind, content in output.get("data", {}).items():
        if isinstance(content, str):
            output["data"][kind] = _FOLDERS.sub("…", content)
    return output


def main() -> None:
    """Write the notebooks."""
    wanted = sys.argv[1:]
    chosen = [path for path in sources() if not wanted or str(path.relative_to(ROOT).with_suffix("")) in wanted]
    if len(chosen) < len(wanted):
        sys.exit(f"not all lessons exist: {' '.join(wanted)}")
    for path in chosen:
        notebook = execute(path)
        target = path.with_suffix(".ipynb")
        nbformat.write(notebook, target)
        print(f"made {target.relative_to(ROOT.parent)}, {target.stat().st_size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()

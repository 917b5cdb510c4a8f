"""JupyterLab in a real browser: cells run, the run's frame works, the stop button stops, and the cell runs again."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.browser import Browser, require_browser

LOAD = "%load_ext tracellm\nfrom tracellm import LLM, SamplingParams"
SHORT = (
    "%%explain --as short\n"
    "LLM().generate('Hello', SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)[0].outputs[0].text"
)
LONG = (
    "%%explain\nllm = LLM(max_model_len=2048)\nprint('begun', flush=True)\n"
    "outputs = llm.generate(['Hello'] * 4, SamplingParams(max_tokens=2000, ignore_eos=True), use_tqdm=False)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that JupyterLab serves."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves a folder, to which the tests may write."""
    require_browser()
    settings = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token=",
                "--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={folder}"]  # fmt: skip
    homes = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    homes |= {"IPYTHONDIR": str(folder / "ipython"), "TRACELLM_LANG": "en"}
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *settings],
        env=os.environ | homes,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stderr is not None
        lines = []
        for line in server.stderr:
            lines.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+/lab", line):
                break
        else:
            pytest.fail("JupyterLab has not started: " + "".join(lines))
        yield address[0]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


def open_notebook(browser: Browser, lab: str, folder: Path, *sources: str) -> None:
    """Open a new notebook with these cells, and wait for its kernel."""
    name = f"{len(list(folder.glob('*.ipynb')))}.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / name)
    # `reset` opens no notebook of an earlier test; cells out of sight have no elements.
    browser.visit(f"{lab}/tree/{name}?reset", width=1200, height=5000)
    assert browser.wait(f"document.querySelectorAll('.jp-CodeCell').length === {len(sources)}", seconds=60)
    kernel = "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
    assert browser.wait(f"{kernel}?.connectionStatus === 'connected' && {kernel}.status === 'idle'", seconds=60)


def execute(browser: Browser, command: str, arguments: dict[str, object] | None = None) -> None:
    """Execute one of JupyterLab's commands, without waiting for what it starts."""
    browser.run(
        f"window.jupyterapp.commands.execute({json.dumps(command)}, {json.dumps(arguments or {})}); return true"
    )


def output(cell: int) -> str:
    """Return the expression of a cell's output."""
    return f"document.querySelectorAll('.jp-CodeCell')[{cell}]?.querySelector('.jp-Cell-outputArea')"


def shows(browser: Browser, cell: int, part: str) -> bool:
    """Return whether a cell's output has some text, within a minute or so."""
    return browser.wait(f"{output(cell)}?.textContent.includes({json.dumps(part)})", seconds=90)


def run_again(browser: Browser, cell: int, count: int) -> None:
    """Run a cell, and wait until it is the `count`-th one that was run."""
    browser.click(f".jp-CodeCell:nth-child({cell + 1}) .cm-content")
    execute(browser, "notebook:run-cell")
    prompt = f"document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[{cell}].textContent"
    assert browser.wait(f"{prompt} === '[{count}]:'", seconds=60)


def test_cells_run_stop_and_run_again(lab: str, folder: Path):
    """Run all, stop a cell in mid-generation, walk through the frame of a run, and run its cell again."""
    with Browser() as browser:
        open_notebook(browser, lab, folder, LOAD, SHORT, LONG, "run.manifest['status']")
        execute(browser, "notebook:run-all-cells")
        assert shows(browser, 2, "begun")
        execute(browser, "notebook:interrupt-kernel")
        assert shows(browser, 2, "KeyboardInterrupt")
        assert shows(browser, 2, "Interrupted")
        assert shows(browser, 3, "interrupted")
        browser.click(".jp-CodeCell:nth-child(2) summary")
        browser.enter(".jp-CodeCell:nth-child(2) iframe")
        assert browser.wait("document.documentElement.dataset.ready")
        browser.click(".step-bar button:nth-of-type(4)")
        assert browser.run("return document.querySelector('#step h3').textContent").startswith("Step 2")
        browser.leave()
        run_again(browser, 1, 5)
        assert shows(browser, 1, "Finished")


def test_a_widgets_selection_is_pythons(lab: str, folder: Path):
    """A click in the widget's frame sets its step and request in Python, and Python sets the frame's."""
    ask = "view.step, view.request, view.selected_step.kind, view.selected_request"
    with Browser() as browser:
        open_notebook(browser, lab, folder, LOAD, SHORT, "view = short.widget()\nview", ask, "view.step = 1")
        execute(browser, "notebook:run-all-cells")
        assert shows(browser, 3, "(1, None, 'prefill', None)")
        assert browser.wait(f"{output(2)}.querySelector('iframe')", seconds=60)
        browser.run(f"{output(2)}.querySelector('iframe').scrollIntoView()")
        browser.enter(".jp-CodeCell:nth-child(3) iframe")
        assert browser.wait("document.documentElement.dataset.ready")
        browser.click(".step-bar button:nth-of-type(4)")
        browser.click("#request-table [data-request='0']")
        browser.leave()
        run_again(browser, 3, 6)
        assert shows(browser, 3, "(2, '0', 'decode', <request 0: ")
        run_again(browser, 4, 7)
        browser.enter(".jp-CodeCell:nth-child(3) iframe")
        assert browser.wait("document.querySelector('#step h3').textContent.startsWith('Step 1')")

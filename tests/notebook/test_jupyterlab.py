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

CELLS = [
    "%load_ext tracellm\nfrom tracellm import LLM, SamplingParams",
    "%%explain --as short\n"
    "LLM().generate('Hello', SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)[0].outputs[0].text",
    "%%explain\nllm = LLM(max_model_len=2048)\nprint('begun', flush=True)\n"
    "outputs = llm.generate(['Hello'] * 4, SamplingParams(max_tokens=2000, ignore_eos=True), use_tqdm=False)",
    "run.manifest['status'], short.sequence(focus='Scheduler')",
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab, which serves a folder with the notebook of CELLS."""
    require_browser()
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "cells.ipynb")
    settings = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token=",
                "--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={tmp_path}"]  # fmt: skip
    homes = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    homes |= {"IPYTHONDIR": str(tmp_path / "ipython"), "TRACELLM_LANG": "en"}
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


def execute(browser: Browser, command: str, arguments: dict[str, object] | None = None) -> None:
    """Execute one of JupyterLab's commands, without waiting for what it starts."""
    browser.run(
        f"window.jupyterapp.commands.execute({json.dumps(command)}, {json.dumps(arguments or {})}); return true"
    )


def output(cell: int) -> str:
    """Return the expression of a cell's output."""
    return f"document.querySelectorAll('.jp-CodeCell')[{cell}]?.querySelector('.jp-Cell-outputArea')"


def test_cells_run_stop_and_run_again(lab: str):
    """Run all, look into the frame of a run, stop a cell in mid-generation, and run the rest."""
    with Browser() as browser:
        browser.visit(f"{lab}/tree/cells.ipynb", width=1200, height=5000)
        assert browser.wait("document.querySelectorAll('.jp-CodeCell').length === 4", seconds=60)
        kernel = "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
        assert browser.wait(f"{kernel}?.connectionStatus === 'connected' && {kernel}.status === 'idle'", seconds=60)
        execute(browser, "notebook:run-all-cells")
        assert browser.wait(f"{output(2)}?.textContent.includes('begun')", seconds=90)
        execute(browser, "notebook:interrupt-kernel")
        assert browser.wait(f"{output(2)}?.textContent.includes('KeyboardInterrupt')", seconds=60)
        assert browser.wait(f"{output(2)}?.textContent.includes('Interrupted')", seconds=60)
        browser.run(f"{output(1)}.querySelector('iframe').scrollIntoView()")
        browser.enter(".jp-CodeCell:nth-child(2) iframe")
        assert browser.wait("document.documentElement.dataset.ready")
        browser.click(".step-bar button:nth-of-type(4)")
        assert browser.run("return document.querySelector('#step h3').textContent").startswith("Step 2")
        browser.leave()
        assert browser.wait(f"{output(3)}?.textContent.includes('interrupted')", seconds=60)
        browser.click(".jp-CodeCell:nth-child(2) .cm-content")
        execute(browser, "notebook:run-cell")
        prompt = "document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[1].textContent"
        assert browser.wait(f"{prompt} === '[5]:' && {output(1)}.textContent.includes('Finished')", seconds=60)

"""A notebook's kernel under `%%explain`: the live line, the stop button, several engines, and cells run again."""

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by jupyter_client and tornado

HANG_GUARD = 90.0
"""Seconds after which a hanging test fails; not a measure of speed."""
LOAD = """
%load_ext tracellm
from pathlib import Path
from tracellm import LLM, SamplingParams

def children():
    tasks = Path("/proc/self/task").glob("*/children")
    names = [Path(f"/proc/{pid}/cmdline").read_bytes() for task in tasks for pid in task.read_text().split()]
    return sum(b"spawn_main" in name for name in names)

def probed():
    return hasattr(LLM.generate, "__wrapped__")
"""
LONG = """
%%explain
llm = LLM(dtype="float32", multiprocess_mode={processes}, max_model_len=2048)
print("begun", flush=True)
llm.generate(["Hello"] * 4, SamplingParams(max_tokens=2000, ignore_eos=True), use_tqdm=False)
"""


class Kernel:
    """A kernel, and the client that runs cells in it."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(self, code: str, interrupt_after: str | None = None) -> tuple[str, str]:
        """Run a cell, and return what it shows and the name of its error; interrupt it once it has printed a text."""
        shown = ""

        def take(message: dict[str, Any]) -> None:
            nonlocal shown, interrupt_after
            content = message["content"]
            shown += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            if interrupt_after is not None and interrupt_after in shown:
                interrupt_after = None
                self.manager.interrupt_kernel()

        reply = self.client.execute_interactive(code, output_hook=take, timeout=HANG_GUARD)["content"]
        return shown, reply.get("ename", "")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with the magics: one for all tests, as each leaves nothing behind."""
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("TRACELLM_LANG", "en")
        manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), startup_timeout=HANG_GUARD)
    try:
        kernel = Kernel(manager, client)
        kernel.run(LOAD)
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("processes", [False, True])
def test_the_stop_button_leaves_nothing_behind(kernel: Kernel, processes: bool):
    """A cell stopped in mid-generation is an interrupted run; no probe is left, and the cell can run again."""
    cell = LONG.format(processes=processes)
    for _ in range(2):
        kernel.run(cell, interrupt_after="begun")
        assert "KeyboardInterrupt" in kernel.run("import sys\nsys.last_type")[0]
        assert (
            kernel.run("run.manifest['status'], probed(), children()")[0] == f"('interrupted', False, {int(processes)})"
        )
    short = cell.replace("2000, ignore_eos=True", "2")
    assert "Finished" in kernel.run(short)[0]
    assert kernel.run("len(run.steps) >= 2, children()")[0] == f"(True, {int(processes)})"
    assert kernel.run("del llm\nimport gc\ngc.collect()\nchildren()")[0] == "0"


def test_a_long_cell_has_a_live_line_that_is_gone_afterwards(kernel: Kernel):
    """While the cell generates, a line has the step, the queues and the KV cache; at its end it is empty."""
    kernel.run("import tracellm.notebook.live_line as line\nline._FIRST_SECONDS = line._SECONDS = 0.0")
    shown, error = kernel.run(LONG.format(processes=False).replace("2000, ", "30, "))
    assert error == ""
    assert "· decode · 4 running, 0 waiting · 4 of" in shown
    kernel.run(
        "from IPython.display import DisplayHandle\nshown = []\n"
        "DisplayHandle.update = lambda self, data, **more: shown.append(data['text/plain'])"
    )
    kernel.run(LONG.format(processes=False).replace("2000, ", "30, "))
    assert kernel.run("shown[-1], len(shown) > 1")[0] == "('', True)"

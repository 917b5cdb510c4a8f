"""Shared setup of all tests: golden files, a plain environment, and failure of skipped tests in CI.

`python -m pytest --update-golden` writes the expected outputs anew; check them with `git diff` before committing.
"""

import compileall
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

# Before torch or huggingface_hub is imported: tests share two cores, and must not use the network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# No run remembers that it has shown the explanations: every run of a test shows them.
os.environ["XDG_STATE_HOME"] = os.devnull
# Background jobs of a shell ignore Ctrl-C, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

settings.register_profile("tracellm", deadline=None)  # no test fails on a busy machine
settings.load_profile("tracellm")

# Fixtures: forks of a process with torch, parse_mermaid (real Mermaid's diagrams), and runs of a real vLLM.
pytest_plugins = ["tests.forked", "tests.mermaid", "tests.real_vllm"]

Golden = Callable[[Path, str], None]
"""Type of the `golden` fixture, which compares a text with a file."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the package and the kernels for this CPU once for the hundreds of processes that tests start.

    Otherwise each would compile the package, and with PYTHONDONTWRITEBYTECODE none would keep the result; the first
    explained runs on a machine would have the time of the kernels' compilation in their outputs.
    """
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "tracellm", quiet=2)
        kernels = "from tracellm.engine.model_executor.ops.cpu import native; native.load()"
        subprocess.run([sys.executable, "-c", kernels], check=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of `pytest_collection_modifyitems`, and run Triton's kernels in its interpreter.

    Only with `-m gpu` Triton compiles. It reads this setting once per process, when it is imported, possibly by the
    first test.
    """
    config.option.loadscopereorder = False  # pytest-xdist would sort the files by their number of tests
    leads_workers = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if config.option.markexpr == "gpu" or leads_workers or find_spec("triton") is None:
        return
    if "triton" in sys.modules:
        raise pytest.UsageError("A conftest.py imports triton; import it in fixtures, after TRITON_INTERPRET is set.")
    with pytest.MonkeyPatch.context() as patch:  # for the import only, not for the tests' processes
        patch.setenv("TRITON_INTERPRET", "1")
        import triton.experimental.gluon  # noqa: F401  (the first launch would import it, and must find the same)

        import tracellm.engine.attention.backends.triton_attn
        import tracellm.engine.model_executor.ops.triton  # noqa: F401


_PYTHONS = ("TRACELLM_VLLM_PYTHON", "TRACELLM_PHOENIX_PYTHON", "TRACELLM_CLIENTS_PYTHON")
"""Settings that name the environments of tests/real_vllm.py, tests/otel/phoenix.py and tests/clients."""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give tests English and the default settings, independent of the shell."""
    for name in [name for name in os.environ if name.startswith(("TRACELLM_", "VLLM_", "OTEL_"))]:
        if name not in _PYTHONS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRACELLM_CHECK_PASSES", "1")  # checks the call tree after each pass
    monkeypatch.setenv("LANG", "C.UTF-8")
    of_shells = ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
    of_callers = ("TRACEPARENT", "TRACESTATE")  # set if the shell runs within a traced span
    for name in (*of_shells, *of_callers):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return a function that compares a text with a file, or writes the file under --update-golden."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path} is missing: run `python -m pytest --update-golden {request.node.nodeid}`")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; --update-golden writes it anew"

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Turn skipped tests into failed ones in CI, except GPU tests."""
    report = yield
    allowed = hasattr(report, "wasxfail") or item.get_closest_marker("gpu")
    if report.skipped and not allowed and os.environ.get("CI"):
        reason = call.excinfo and call.excinfo.value
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips only GPU tests: {reason}"
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Turn files skipped during collection into failures in CI."""
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} skipped itself, and CI skips only GPU tests: {report.longrepr}"


_LONGEST = (
    "vllm/test_attach.py",  # its runs of a real vLLM are used by other files too (real_vllm.py)
    "lab/test_labs.py",
    "docs/test_understand_pages.py",
    "vllm/test_front_real.py",
    "otel/test_phoenix.py",
    "faults/test_signals.py",
    "engine/executor/test_parallel.py",
    "engine/executor/test_ray_executor.py",
    "docs/test_docs.py",
    "alias/test_run.py",
    "engine/clients/test_processes.py",
    "benchmarks/test_compare.py",
    "faults/test_leftovers.py",
    "clients/test_clients.py",
    "server/test_serve.py",
    "faults/test_engine_killed.py",
    "engine/ops/test_triton_cudagraphs.py",
    "engine/test_libraries.py",
    "faults/test_start.py",
    "cli/test_examples.py",
    "cli/test_example_async.py",
    "engine/ops/test_kernels_compile.py",
    "notebooks/test_notebooks.py",
    "probes/test_probe_cost.py",
    "docs/test_server_page.py",
    "docs/test_reading_page.py",
)
"""Test files that take longest for their number of tests, mostly in processes that they start; longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest files first, so that no core idles at the end; skip tests marked `gpu` without a CUDA device."""
    tests = Path(__file__).parent
    ranks = {tests / name: rank for rank, name in enumerate(_LONGEST)}
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -sizes[item.path], item.path))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))

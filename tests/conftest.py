"""What all tests share: golden files, a plain environment, and the rule that CI skips nothing but GPU tests.

`python -m pytest --update-golden` writes the expected outputs anew; look at the difference with `git diff` before
committing it.
"""

import compileall
import os
import signal
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

# Before anything imports torch or huggingface_hub: two cores are shared by all, and no test may reach the network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A shell has what it starts in the background ignore Ctrl-C, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

settings.register_profile("tracellm", deadline=None)  # a busy machine makes no test fail
settings.load_profile("tracellm")

# The fixtures parse_mermaid, a diagram as real Mermaid reads it, and what a real vLLM did.
pytest_plugins = ["tests.mermaid", "tests.real_vllm"]

Golden = Callable[[Path, str], None]
"""Compares a text with a file; the type of the `golden` fixture."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the package: where nobody does, each of the hundreds of processes that tests start does so for itself,
    and with PYTHONDONTWRITEBYTECODE, which may be set, none keeps it for the next."""
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "tracellm", quiet=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --update-golden."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Unless GPU tests alone were asked for, Triton's kernels are those of its interpreter.

    Triton decides that once for a process, when it is imported, which any test might be the first to do.
    """
    leads_workers = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if config.option.markexpr == "gpu" or leads_workers or find_spec("triton") is None:
        return
    with pytest.MonkeyPatch.context() as patch:  # for the import only: no process that a test starts shall inherit it
        patch.setenv("TRITON_INTERPRET", "1")
        import triton.experimental.gluon  # noqa: F401  (the first launch would import it, and it must find the same)

        import tracellm.engine.attention.backends.triton_attn
        import tracellm.engine.model_executor.ops.triton  # noqa: F401


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see English and the default settings, whatever the shell that runs them has set."""
    for name in [name for name in os.environ if name.startswith(("TRACELLM_", "VLLM_", "OTEL_"))]:
        if name not in ("TRACELLM_VLLM_PYTHON", "TRACELLM_PHOENIX_PYTHON"):  # tests/real_vllm.py, tests/otel/phoenix.py
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRACELLM_CHECK_PASSES", "1")  # all that a pass over a call tree must keep, after each of them
    monkeypatch.setenv("LANG", "C.UTF-8")
    of_shells = ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
    of_callers = ("TRACEPARENT", "TRACESTATE")  # a shell that is itself a span of somebody's trace
    for name in (*of_shells, *of_callers):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(path, text)` holds `text` equal to the file at `path`, or writes it there under --update-golden."""

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
    """In CI a skipped test is a failed one, unless it needs a GPU: nothing may go missing unseen."""
    report = yield
    allowed = hasattr(report, "wasxfail") or item.get_closest_marker("gpu")
    if report.skipped and not allowed and os.environ.get("CI"):
        reason = call.excinfo and call.excinfo.value
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips only GPU tests: {reason}"
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """The same for a whole file that skips itself while it is collected."""
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} skipped itself, and CI skips only GPU tests: {report.longrepr}"


_FIRST = ("test_front_real.py", "test_attach.py")
"""Files of tests that start a real vLLM for a minute or two; what the second has run, others use (real_vllm.py)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that no core waits for another at the end, and tests marked `gpu` are skipped
    where there is no CUDA device."""
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name not in _FIRST, -sizes[item.path], item.path))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))

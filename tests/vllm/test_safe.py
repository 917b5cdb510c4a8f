"""Wrapping vLLM breaks no run, records no call twice, and does not grow memory."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.probes.tracing import outline, record
from tests.vllm.small_vllm import small_vllm
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.probes.catalog.vllm import CATALOG
from tracellm.probes.catalog.vllm import step as catalog
from tracellm.probes.catalog.vllm.torch_compile import compile_patches
from tracellm.probes.record.record_file import Header
from tracellm.probes.spans.builder import SpanBuilder, SpanSite
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The small package's modules."""
    with small_vllm(tmp_path / "installed") as modules:
        yield modules


def test_a_function_that_another_module_imports_is_told_once(vllm: dict[str, Any], tmp_path: Path) -> None:
    """A function that 0.32 re-exports from its launchers is recorded once."""
    folder = Path(sys.modules["vllm"].__path__[0])
    (folder / "launcher.py").write_text("def run_server(): pass")
    (folder / "api_server.py").write_text("from vllm.launcher import run_server")
    importlib.invalidate_caches()
    entries = [Entry("vllm.api_server:run_server", "request", other_targets=("vllm.launcher:run_server",))]
    run = lambda: importlib.import_module("vllm.api_server").run_server()  # noqa: E731
    assert outline(record(tmp_path / "run", run, entries)) == "script.py\n  run_server"


def test_a_version_with_another_client_starts_its_thread(vllm: dict[str, Any], tmp_path: Path) -> None:
    """A loop in a renamed function still runs, unrecorded."""
    client = vllm["core_client"]
    del client.AsyncMPClient._ensure_output_queue_task
    trace = record(
        tmp_path / "run", lambda: client.EngineCoreClient.make_client(True, False, None, dict, False), CATALOG
    )
    [made] = [span for span in trace.spans if span.name == "EngineCoreClient.make_client"]
    assert made.error is None
    assert "SyncMPClient.add_request" in outline(trace)


def test_a_worker_whose_configuration_cannot_be_read_is_made() -> None:
    """A configuration that cannot be read counts as compiled."""
    left: list[Any] = []
    made: list[Any] = []
    [make] = compile_patches(left.append).values()
    make(lambda self, config, **more: made.append((config, more)))(None, SimpleNamespace(), rank=1)
    assert made == [(SimpleNamespace(), {"rank": 1})]
    assert len(left) == 1


def test_refusals_that_nobody_takes_do_not_pile_up() -> None:
    """Refusals do not pile up when `Scheduler.schedule` is not recorded."""

    class Manager:
        block_pool = SimpleNamespace(get_num_free_blocks=lambda: 0)
        coordinator = SimpleNamespace(single_type_managers=())

        def allocate_slots(self, request: Any, num_new_tokens: int) -> None:
            pass

    manager = Manager()
    for number in range(2 * catalog._MAX_REFUSALS):
        catalog.capture_allocation((manager, SimpleNamespace(request_id=str(number)), 1), {}, None)
    assert len(catalog._refusals[manager]) == catalog._MAX_REFUSALS


def test_what_a_forked_worker_tells_steps_is_not_kept() -> None:
    """Facts for a step of the parent process are dropped in a forked worker."""
    forked = Header(
        {"process.pid": 1, "tracellm.process.name": "worker"}, (0, 0), 1, [(1, 0), (10, 99)], "a" * 32, "b" * 16
    )
    builder = SpanBuilder(forked, {})
    sampled = SpanSite("_sample", {}, "R._sample", gives=lambda facts: {"tokens": facts}, gives_to=("E.step",))
    builder.sites = {1: sampled, 2: SpanSite("execute_model", {}, "W.execute_model")}
    for call in range(10, 20, 2):
        assert len(list(builder.build((1, call + 1, call, 0, 1, 2, [7], None)))) == 1
        assert len(list(builder.build((2, call, 5, 0, 1, 2, None, None)))) == 1
        assert len(list(builder.build((1, call + 1, 5, 0, 1, 2, [7], None)))) == 1
    assert builder.forwarded == {}


def test_a_request_that_is_not_taken_has_no_life(vllm: dict[str, Any], tmp_path: Path) -> None:
    """The span of a refused request is dropped."""
    processor = vllm["output_processor"].OutputProcessor()
    asked = SimpleNamespace(
        request_id="a", prompt_token_ids=[5], priority=0, sampling_params=SamplingParams(), trace_headers=None
    )

    class Full(dict[str, Any]):
        def __setitem__(self, name: str, state: Any) -> None:
            raise ValueError("too many")

    processor.request_states = Full()
    trace = record(tmp_path / "run", lambda: processor.add_request(asked, "x"), CATALOG)
    assert [span.error for span in trace.spans if span.name == "OutputProcessor.add_request"] == [
        "ValueError: too many"
    ]
    assert [span.name for span in trace.spans if span.name == names.REQUEST_SPAN] == []


def test_a_worker_for_the_cpu_is_a_worker(vllm: dict[str, Any], tmp_path: Path) -> None:
    """Inherited and own methods of a subclass have the same lifeline."""
    folder = Path(sys.modules["vllm"].__path__[0]) / "v1" / "worker"
    folder.mkdir()
    methods = "def load_model(self): pass\n    def init_device(self): pass"
    (folder / "gpu_worker.py").write_text(f"class Worker:\n    {methods}")
    own = "def init_device(self): pass"
    (folder / "cpu_worker.py").write_text(
        f"from vllm.v1.worker.gpu_worker import Worker\nclass CPUWorker(Worker):\n    {own}"
    )
    importlib.invalidate_caches()

    def run() -> None:
        worker = importlib.import_module("vllm.v1.worker.cpu_worker").CPUWorker()
        worker.init_device()
        worker.load_model()

    spans = [span for span in record(tmp_path / "run", run, CATALOG).spans if span.lifeline == "Worker"]
    assert [span.name for span in spans] == ["Worker.init_device", "Worker.load_model"]
    ran = [str(span.attributes[names.CODE_FUNCTION]).rpartition("_worker.")[2] for span in spans]
    assert ran == ["CPUWorker.init_device", "Worker.load_model"]

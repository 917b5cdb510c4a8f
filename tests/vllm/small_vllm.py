"""A package `vllm` of a few lines: the shape that the front half of the catalog expects, without a model.

Its code does the same as the real vLLM's (vllm/v1/engine/output_processor.py, core_client.py, async_llm.py of
0.32.0); test_front_real.py checks that.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import tracellm.probes.catalog.vllm

__all__ = ["small_vllm"]

catalog: Any = tracellm.probes.catalog.vllm

_OUTPUT_PROCESSOR = """
from types import SimpleNamespace

class RequestOutputCollector:
    def put(self, output):
        self.output = output

class OutputProcessor:
    def __init__(self, tokenizer=None):
        self.tokenizer, self.request_states = tokenizer, {}

    def add_request(self, request, prompt, parent_req=None, request_index=0, queue=None):
        if request.request_id in self.request_states:
            raise ValueError("already running")
        self.request_states[request.request_id] = request, parent_req, request_index, queue

    def process_outputs(self, engine_core_outputs):
        outputs = []
        for new in engine_core_outputs:
            request, parent, index, queue = self.request_states[new.request_id]
            one = SimpleNamespace(index=index, text="abc", token_ids=new.new_token_ids, finish_reason=new.finish_reason)
            known_as = (parent or request).external_req_id
            output = SimpleNamespace(request_id=known_as, outputs=[one], finished=new.finish_reason is not None)
            queue.put(output) if queue else outputs.append(output)
            if new.finish_reason is not None:
                del self.request_states[new.request_id]
        return SimpleNamespace(request_outputs=outputs, reqs_to_abort=[])
"""

_CORE_CLIENT = """
import asyncio
from threading import Thread
from types import SimpleNamespace

class EngineCoreClient:
    @staticmethod
    def make_client(multiprocess_mode, asyncio_mode, vllm_config, executor_class, log_stats):
        if asyncio_mode and not multiprocess_mode:
            raise NotImplementedError("not supported")
        return SyncMPClient() if multiprocess_mode else InprocClient()

class InprocClient(EngineCoreClient):
    def __init__(self):
        pass

class SyncMPClient(EngineCoreClient):
    def __init__(self):
        def process_outputs_socket():
            self.add_request(None)
        self.output_queue_thread = Thread(target=process_outputs_socket, name="EngineCoreOutputQueueThread")
        self.output_queue_thread.start()
        self.output_queue_thread.join()

    def add_request(self, request):
        pass

class AsyncMPClient(EngineCoreClient):
    resources = SimpleNamespace(output_queue_task=None)

    def _ensure_output_queue_task(self):
        if self.resources.output_queue_task is not None:
            return
        async def process_outputs_socket():
            await self.get_output_async()
        self.resources.output_queue_task = asyncio.create_task(process_outputs_socket())

    async def get_output_async(self):
        await asyncio.sleep(0)
"""

_ASYNC_LLM = """
import asyncio

class AsyncLLM:
    output_handler = None

    def _run_output_handler(self):
        if self.output_handler is not None:
            return
        engine_core = self.engine_core
        async def output_handler():
            await engine_core.get_output_async()
        self.output_handler = asyncio.create_task(output_handler())

    async def add_request(self):
        self._run_output_handler()
        self.engine_core._ensure_output_queue_task()
"""

_UTILS = """
import contextlib

@contextlib.contextmanager
def launch_core_engines(vllm_config):
    CoreEngineProcManager()
    yield "launched"

class CoreEngineProcManager:
    def __init__(self):
        pass
"""

_MODULES = {
    "v1/engine/output_processor.py": _OUTPUT_PROCESSOR,
    "v1/engine/core_client.py": _CORE_CLIENT,
    "v1/engine/async_llm.py": _ASYNC_LLM,
    "v1/engine/utils.py": _UTILS,
}


@contextmanager
def small_vllm(folder: Path) -> Iterator[dict[str, ModuleType]]:
    """Make the package importable, with its modules by file name, during the block."""
    for path, source in _MODULES.items():
        file = folder / "vllm" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    for within in (folder / "vllm", *(folder / "vllm").rglob("*/")):
        (within / "__init__.py").touch()
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        names = [path.removesuffix(".py").replace("/", ".") for path in _MODULES]
        yield {name.rpartition(".")[2]: importlib.import_module(f"vllm.{name}") for name in names}
    finally:
        sys.path.remove(str(folder))
        for name in [one for one in sys.modules if one.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        if sys.modules.pop("tracellm.probes.catalog.vllm.closures", None) is not None:  # it holds these modules
            del catalog.closures

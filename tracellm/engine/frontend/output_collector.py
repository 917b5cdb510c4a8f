"""`RequestOutputCollector`: the queue between the output handler of `AsyncLLM` and the reader of one request.

In a request's life: from `AsyncLLM.add_request` to its last output. `OutputProcessor.process_outputs` puts outputs in,
`AsyncLLM.generate` and `encode` take them out.

vLLM: vllm/v1/engine/output_processor.py::RequestOutputCollector.
"""

import asyncio
from typing import Any

from tracellm.engine.frontend.outputs import PoolingRequestOutput, RequestOutput
from tracellm.engine.sample.sampling_params import RequestOutputKind

__all__ = ["RequestOutputCollector"]


class RequestOutputCollector:
    """Queue of one request's outputs under `AsyncLLM`, holding at most one entry.

    Outputs not yet taken are merged, so a slow reader costs no more memory than its text. A request for pooling has one
    output. Used from one event loop only.
    """

    def __init__(self, output_kind: RequestOutputKind) -> None:
        self.aggregate = output_kind is RequestOutputKind.DELTA
        """True if outputs add to each other; otherwise a later output contains all of an earlier one."""
        self.output: RequestOutput | PoolingRequestOutput[Any] | Exception | None = None
        self.ready = asyncio.Event()
        self._positions: dict[int, int] | None = None
        """Positions of the completions in `output` once another has been added; see `RequestOutput.add`."""

    def put(self, output: RequestOutput | PoolingRequestOutput[Any] | Exception) -> None:
        """Add an output and wake the reader. An error replaces what is there, and nothing replaces an error."""
        if isinstance(self.output, RequestOutput) and isinstance(output, RequestOutput):
            if self._positions is None:
                self._positions = self.output.positions()
            self.output.add(output, self.aggregate, self._positions)
        elif not isinstance(self.output, Exception):
            self.output, self._positions = output, None
        self.ready.set()

    async def get(self) -> RequestOutput | PoolingRequestOutput[Any]:
        """Wait for the next output and take it. Raises a queued error."""
        while (output := self.get_nowait()) is None:
            await self.ready.wait()
        return output

    def get_nowait(self) -> RequestOutput | PoolingRequestOutput[Any] | None:
        """Take the next output, or return None. Raises a queued error."""
        output, self.output = self.output, None
        self.ready.clear()
        if isinstance(output, Exception):
            raise output
        return output

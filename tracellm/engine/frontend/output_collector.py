"""Between the task that receives outputs and the one that waits for them: a place for one request's next output.

The output handler of `AsyncLLM` puts outputs in as they come, the request's `generate` takes them out. Where it is
slower, what has come meanwhile is merged, so that there is never more than one: a slow reader costs no memory but its
text.

vLLM: vllm/v1/engine/output_processor.py::RequestOutputCollector. Left out: pooling.
"""

from __future__ import annotations

import asyncio

from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.sample.sampling_params import RequestOutputKind

__all__ = ["RequestOutputCollector"]


class RequestOutputCollector:
    """Holds what a request's reader has not taken yet: an output, an error, or nothing. Of one event loop."""

    def __init__(self, output_kind: RequestOutputKind) -> None:
        self.aggregate = output_kind is RequestOutputKind.DELTA
        """Do outputs add to each other? Otherwise the later one holds all that the earlier one did."""
        self.output: RequestOutput | Exception | None = None
        self.ready = asyncio.Event()
        self._places: dict[int, int] = {}
        """Of `output`; see `RequestOutput.add`."""

    def put(self, output: RequestOutput | Exception) -> None:
        """Add an output, and wake the reader. An error takes the place of what was there, and then stays."""
        if isinstance(self.output, RequestOutput) and isinstance(output, RequestOutput):
            self.output.add(output, self.aggregate, self._places)
        elif not isinstance(self.output, Exception):
            self.output = output
            if isinstance(output, RequestOutput):
                self._places = output.places()
        self.ready.set()

    async def get(self) -> RequestOutput:
        """Take the output, as soon as there is one. Raises the error, if that is what there is."""
        while (output := self.get_nowait()) is None:
            await self.ready.wait()
        return output

    def get_nowait(self) -> RequestOutput | None:
        """Take the output, `None` when there is none. Raises the error, if that is what there is."""
        output, self.output = self.output, None
        self.ready.clear()
        if isinstance(output, Exception):
            raise output
        return output

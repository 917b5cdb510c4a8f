"""An engine to measure: made from settings, it takes the requests of a workload, recorded or not."""

import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracellm.bench.errors import BenchError
from tracellm.bench.limits import ModelCost, cost_of
from tracellm.bench.workload import Lengths, Workload, random_workload

if TYPE_CHECKING:
    import torch

    from tracellm.engine.config.vllm_config import ModelConfig, VllmConfig
    from tracellm.engine.frontend.outputs import RequestOutput
    from tracellm.engine.sample.sampling_params import SamplingParams
    from tracellm.probes.recording import Recording

__all__ = ["Depth", "Trial", "recorded"]

Depth = Literal["default", "request", "step", "layer", "kernel"]
"""The depth of a recording, as of `--detail`; "default" is without it."""


class Trial:
    """One engine, warm, and its requests. The prefix cache is off by default: repeats would find all in it."""

    def __init__(self, model: str | None, engine: Mapping[str, Any], requests: int, inputs: Lengths, outputs: Lengths):
        """Load the model.

        Raises:
            EngineError: the engine refuses the model or a setting.
            BenchError: a request would be too long for the model.
        """
        from tracellm.engine.config.hf_config import BUNDLED_MODEL
        from tracellm.engine.entrypoints.llm import LLM

        self.llm = LLM(model or BUNDLED_MODEL, **{"enable_prefix_caching": False, **engine})
        self._engine = self.llm.llm_engine
        longest = inputs.most + outputs.most
        if longest > self.model.max_model_len:
            raise BenchError("too_long", tokens=longest, most=self.model.max_model_len)
        self.workload = random_workload(self.model.get_vocab_size(), requests, inputs, outputs, self.model.seed)

    @property
    def config(self) -> "VllmConfig":
        """All of the engine's settings."""
        return self._engine.vllm_config

    @property
    def model(self) -> "ModelConfig":
        """The model's settings."""
        return self.config.model_config

    @property
    def device(self) -> "torch.device":
        """The model's device."""
        return self.config.device_config.device

    @property
    def at_once(self) -> int:
        """The most requests in a step."""
        return min(self.config.scheduler_config.max_num_seqs, len(self.workload.prompts))

    def cost(self) -> ModelCost:
        """The reading and computing that the model takes."""
        return cost_of(self.model)

    def seconds(self, workload: Workload) -> float:
        """The engine's time for these requests, given all at once."""
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in workload.prompts]
        params = [_params(length) for length in workload.lengths]
        start = time.perf_counter()
        self.llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - start

    def steps(self, workload: Workload) -> Iterator[tuple[float, list["RequestOutput"]]]:
        """The outputs of each step, and the seconds since the requests were given."""
        start = time.perf_counter()
        for index, (prompt, length) in enumerate(zip(workload.prompts, workload.lengths, strict=True)):
            self._engine.add_request(f"bench-{index}", {"prompt_token_ids": list(prompt)}, _params(length))
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            yield time.perf_counter() - start, outputs


def _params(length: int) -> "SamplingParams":
    """Greedy, exactly so many tokens."""
    from tracellm.engine.sample.sampling_params import SamplingParams

    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


@contextmanager
def recorded(depth: Depth | None) -> Iterator["Recording | None"]:
    """Record, as `tracellm run --explain` does, and throw the recording away; None: do not record."""
    if depth is None:
        yield None
        return
    from tracellm.probes.install.selection import Selection
    from tracellm.probes.recording import Recording
    from tracellm.report.console import Console

    selection = Selection.of(None if depth == "default" else depth)
    console = Console("en", io.StringIO())
    with (
        tempfile.TemporaryDirectory() as folder,
        Recording(Path(folder) / "run", selection=selection, listener=console) as recording,
    ):
        yield recording

"""The engine under test, which `throughput` and `latency` measure, with or without a recording."""

import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracellm.bench.limits import ModelCost, cost_of
from tracellm.bench.workload import BenchError, Lengths, Workload, random_workload

if TYPE_CHECKING:
    import torch

    from tracellm.engine.config.vllm_config import ModelConfig, VllmConfig
    from tracellm.engine.frontend.outputs import RequestOutput
    from tracellm.engine.sample.sampling_params import SamplingParams
    from tracellm.probes.recording import Recording

__all__ = ["Depth", "Trial", "recorded"]

Depth = Literal["default", "request", "step", "layer", "kernel"]
"""Level of a recording, as for `--detail`; "default" is without that option."""


class Trial:
    """One engine and its requests. The prefix cache is off by default, or repeats would find every prompt cached."""

    def __init__(self, model: str | None, engine: Mapping[str, Any], requests: int, inputs: Lengths, outputs: Lengths):
        """Load the model.

        Raises:
            EngineError: the model or a setting is not supported.
            BenchError: a request is too long for the model.
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
        """The engine's configuration."""
        return self._engine.vllm_config

    @property
    def model(self) -> "ModelConfig":
        """The model's configuration."""
        return self.config.model_config

    @property
    def device(self) -> "torch.device":
        """The model's device."""
        return self.config.device_config.device

    @property
    def at_once(self) -> int:
        """Maximum number of requests in a step."""
        return min(self.config.scheduler_config.max_num_seqs, len(self.workload.prompts))

    def cost(self) -> ModelCost:
        """Return the bytes and FLOPs that the model takes."""
        return cost_of(self.model)

    def seconds(self, workload: Workload) -> float:
        """Return the engine's time for these requests, added all at once."""
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in workload.prompts]
        params = [_params(length) for length in workload.lengths]
        start = time.perf_counter()
        self.llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - start

    def steps(self, workload: Workload) -> Iterator[tuple[float, list["RequestOutput"]]]:
        """Yield each step's outputs, with the seconds since the requests were added."""
        start = time.perf_counter()
        for index, (prompt, length) in enumerate(zip(workload.prompts, workload.lengths, strict=True)):
            self._engine.add_request(f"bench-{index}", {"prompt_token_ids": list(prompt)}, _params(length))
        while self._engine.has_unfinished_requests():
            outputs: list[Any] = self._engine.step()
            yield time.perf_counter() - start, outputs


def _params(length: int) -> "SamplingParams":
    """Return parameters for exactly `length` tokens, sampled greedily."""
    from tracellm.engine.sample.sampling_params import SamplingParams

    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


@contextmanager
def recorded(depth: Depth | None) -> Iterator["Recording | None"]:
    """Context with a recording, as by `tracellm run --explain`, that is deleted at its end; None: no recording."""
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

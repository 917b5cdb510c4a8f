"""An engine to measure: made from the command's options, it takes the requests of a workload."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tracellm.cli.bench.limits import ModelCost, cost_of
from tracellm.cli.bench.workload import Lengths, Workload, random_workload
from tracellm.cli.engine_options import as_option
from tracellm.cli.errors import CommandError

if TYPE_CHECKING:
    import torch

    from tracellm.engine.config import ModelConfig, VllmConfig
    from tracellm.engine.outputs import RequestOutput
    from tracellm.engine.sampling_params import SamplingParams

__all__ = ["Trial"]


class Trial:
    """One engine, warm, and its requests. The prefix cache is off unless asked for: repeats would find all in it."""

    def __init__(self, model: str | None, engine: Mapping[str, Any], requests: int, inputs: Lengths, outputs: Lengths):
        """Load the model.

        Raises:
            CommandError: the engine refuses the model or a setting.
        """
        from tracellm.engine.entrypoints.llm import LLM
        from tracellm.engine.errors import EngineError
        from tracellm.engine.hf_config import EMBEDDED_MODEL

        try:
            self.llm = LLM(model or EMBEDDED_MODEL, **{"enable_prefix_caching": False, **engine})
        except EngineError as error:
            raise CommandError("bench.refused", message=as_option(str(error))) from None
        self._engine = self.llm.llm_engine
        longest = inputs.most + outputs.most
        if longest > self.model.max_model_len:
            raise CommandError("bench.too_long", tokens=longest, most=self.model.max_model_len)
        self.workload = random_workload(self.model.get_vocab_size(), requests, inputs, outputs, self.model.seed)

    @property
    def config(self) -> "VllmConfig":
        """All of the engine's settings."""
        return self._engine.vllm_config

    @property
    def model(self) -> "ModelConfig":
        """Those of the model."""
        return self.config.model_config

    @property
    def device(self) -> "torch.device":
        """Where the model is."""
        return self.config.device_config.device

    @property
    def at_once(self) -> int:
        """The most requests in a step."""
        return min(self.config.scheduler_config.max_num_seqs, len(self.workload.prompts))

    def cost(self) -> ModelCost:
        """What the model reads and computes."""
        return cost_of(self.model)

    def seconds(self, workload: Workload) -> float:
        """How long the engine takes for these requests, given all at once."""
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
    from tracellm.engine.sampling_params import SamplingParams

    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)

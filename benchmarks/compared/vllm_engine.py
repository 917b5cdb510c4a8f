"""A real vLLM for the benchmarks, run by the Python of its own environment.

It is compiled, vLLM's default on a CPU, unless the setting `eager` is on. Its engine core runs in this process, so that
OMP_NUM_THREADS applies to it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # it runs as a script, in another environment

from benchmarks.compared.protocol import Engine, TokenIds, answer


class Vllm(Engine):
    """vLLM's `LLM` with token ids in and out. The setting `text` also detokenizes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import vllm

        self._llm = vllm.LLM(
            settings["model"],
            dtype=settings["dtype"],
            skip_tokenizer_init=not settings.get("text"),
            enforce_eager=bool(settings.get("eager")),
            max_model_len=settings["max_model_len"],
            max_num_seqs=settings["max_num_seqs"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            kv_cache_memory_bytes=settings["kv_cache_bytes"],
            enable_prefix_caching=False,
            disable_log_stats=True,
        )
        self._params = vllm.SamplingParams
        self._text = bool(settings.get("text"))

    def about(self) -> dict[str, Any]:
        """Return the versions and the number of threads."""
        import torch
        import vllm

        return {"vllm": vllm.__version__, "torch": str(torch.__version__), "threads": torch.get_num_threads()}

    def generate(self, way: str, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """See `Engine.generate`."""
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        params = [
            self._params(temperature=0, max_tokens=length, ignore_eos=True, detokenize=self._text) for length in lengths
        ]
        outputs = self._llm.generate(inputs, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    answer(Vllm)

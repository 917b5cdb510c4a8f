"""tracellm's engine for the benchmarks."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.compared.protocol import Engine, TokenIds, answer


class Tracellm(Engine):
    """`LLM` with token ids in and out. Settings: `text` also detokenizes, `ops` chooses the operations."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from tracellm import LLM, SamplingParams

        if ops := settings.get("ops"):
            os.environ["TRACELLM_OPS"] = ops
        self._llm = LLM(
            settings["model"],
            dtype=settings["dtype"],
            skip_tokenizer_init=not settings.get("text"),
            max_model_len=settings["max_model_len"],
            max_num_seqs=settings["max_num_seqs"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            kv_cache_memory_bytes=settings["kv_cache_bytes"],
            enable_prefix_caching=False,
        )
        self._params = SamplingParams
        self._text = bool(settings.get("text"))

    def about(self) -> dict[str, Any]:
        """Return the versions and the number of threads."""
        import torch

        import tracellm

        threads = torch.get_num_threads()
        return {"tracellm": tracellm.__version__, "torch": str(torch.__version__), "threads": threads}

    def generate(self, way: str, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """See `Engine.generate`."""
        params = [
            self._params(temperature=0, max_tokens=length, ignore_eos=True, detokenize=self._text) for length in lengths
        ]
        outputs = self._llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    answer(Tracellm)

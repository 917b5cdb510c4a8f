"""This project's engine for benchmarks/compare.py: as it is, and recorded at the default detail."""

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.compared.protocol import Engine, TokenIds, answer

TRACED = "tracellm-traced"


class Tracellm(Engine):
    """`LLM`, token ids in and out."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from tracellm import LLM, SamplingParams

        self._llm = LLM(
            settings["model"],
            dtype=settings["dtype"],
            skip_tokenizer_init=True,
            max_model_len=settings["max_model_len"],
            max_num_seqs=settings["max_num_seqs"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            kv_cache_memory_bytes=settings["kv_cache_bytes"],
            enable_prefix_caching=False,
        )
        self._params = SamplingParams

    def about(self) -> dict[str, Any]:
        """Its version, torch's, and how many threads that takes."""
        import torch

        import tracellm

        threads = torch.get_num_threads()
        return {"tracellm": tracellm.__version__, "torch": str(torch.__version__), "threads": threads}

    def generate(self, way: str, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """See `Engine.generate`."""
        params = [
            self._params(temperature=0, max_tokens=length, ignore_eos=True, detokenize=False) for length in lengths
        ]
        outputs = self._llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    @contextmanager
    def prepared(self, way: str) -> Iterator[None]:
        """Put the probes on, and let Python learn the calls anew; the console's lines go nowhere."""
        if way != TRACED:
            yield
            return
        from tracellm.probes.session import Recording
        from tracellm.report.console import Console

        with tempfile.TemporaryDirectory() as folder, Recording(Path(folder), listener=Console("en", io.StringIO())):
            self.generate(way, [[1, 2, 3]], [3])
            yield


if __name__ == "__main__":
    answer(Tracellm)

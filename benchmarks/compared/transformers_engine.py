"""Transformers for benchmarks/compare.py: `generate` on padded batches, and its continuous batching.

`generate` has one length for a whole batch. So requests are sorted by output length, and prompts are padded on the
left. Each batch runs to its longest output, and further tokens of the others are dropped.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.compared.protocol import Engine, TokenIds, answer

CONTINUOUS = "transformers-continuous"
_NO_TOKEN = -1  # never generated, so outputs end by length
_PAGE = 32  # tokens


class Transformers(Engine):
    """One model, `AutoModelForCausalLM`, with scaled dot product attention."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        dtype = getattr(torch, settings["dtype"])
        self._model = AutoModelForCausalLM.from_pretrained(
            settings["model"], dtype=dtype, attn_implementation="sdpa"
        ).eval()
        self._settings = settings

    def about(self) -> dict[str, Any]:
        """Return the versions and the number of threads."""
        import torch
        import transformers

        threads = torch.get_num_threads()
        return {"transformers": transformers.__version__, "torch": str(torch.__version__), "threads": threads}

    def generate(self, way: str, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """See `Engine.generate`."""
        if way == CONTINUOUS:
            return self._continuous(prompts, lengths)
        outputs: dict[int, TokenIds] = {}
        order = sorted(range(len(prompts)), key=lambda index: lengths[index])
        at_once = self._settings["max_num_seqs"]
        for first in range(0, len(order), at_once):
            batch = order[first : first + at_once]
            generated = self._padded([prompts[index] for index in batch], lengths[batch[-1]])
            outputs |= {index: ids[: lengths[index]] for index, ids in zip(batch, generated, strict=True)}
        return [outputs[index] for index in range(len(prompts))]

    @contextmanager
    def prepared(self, way: str) -> Iterator[None]:
        """Context with the thread and cache of continuous batching."""
        if way != CONTINUOUS:
            yield
            return
        from transformers import ContinuousBatchingConfig, GenerationConfig

        config = GenerationConfig(do_sample=False, max_new_tokens=1, eos_token_id=_NO_TOKEN, pad_token_id=0)
        batching = ContinuousBatchingConfig(
            page_size=_PAGE,
            num_blocks=self._settings["kv_cache_tokens"] // _PAGE,
            max_batch_tokens=self._settings["max_num_batched_tokens"],
            max_requests_per_batch=self._settings["max_num_seqs"],
            allow_block_sharing=False,
        )
        with self._model.continuous_batching_context_manager(config, continuous_batching_config=batching) as manager:
            self._manager = manager
            self._continuous([[1, 2, 3]], [2])  # the first request makes the cache
            yield

    def _padded(self, prompts: Sequence[TokenIds], length: int) -> list[TokenIds]:
        import torch

        longest = max(map(len, prompts))
        padded = torch.tensor([[0] * (longest - len(ids)) + list(ids) for ids in prompts])
        mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
        generated = self._model.generate(
            padded,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=length,
            min_new_tokens=length,
            pad_token_id=0,
            eos_token_id=_NO_TOKEN,
        )
        return generated[:, longest:].tolist()

    def _continuous(self, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """Generate by continuous batching, with the manager of `prepared`."""
        names = [
            self._manager.add_request(list(prompt), max_new_tokens=length, eos_token_id=_NO_TOKEN)
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        outputs: dict[str, TokenIds] = {}
        while len(outputs) < len(names):
            result = self._manager.get_result(timeout=1)
            if result is None:
                if not self._manager.is_running():
                    raise RuntimeError("the thread of the continuous batching has ended")
            elif result.error is not None:
                raise RuntimeError(result.error)
            elif result.is_finished():
                outputs[result.request_id] = list(result.generated_tokens)
        return [outputs[name] for name in names]

    def gaps(self, questions: Sequence[tuple[TokenIds, int, int]]) -> list[dict[str, float]]:
        """See `Engine.gaps`."""
        import torch

        gaps = []
        for context, first, second in questions:
            with torch.inference_mode():
                logits = self._model(torch.tensor([context])).logits[0, -1].float()
            gaps.append({"gap": float(abs(logits[first] - logits[second])), "spread": float(logits.std())})
        return gaps


if __name__ == "__main__":
    answer(Transformers)

"""A real run for the tests of `tracellm.notebook`, with the state that the engine itself had."""

from typing import Any

import pytest

import tracellm
from tracellm import LLM, RequestOutput, Run, SamplingParams
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner

PROMPTS = ["The capital of France is", "Count from one to twenty in words. " * 3, "The largest ocean is", "Hello"]
PARAMS = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (30, 40, 24, 12)]
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "num_gpu_blocks_override": 7,
    "max_num_batched_tokens": 16,
    "max_num_seqs": 3,
    "max_model_len": 96,
}

Inputs = dict[str, tuple[list[int], list[int], list[int], list[int]]]
"""Input ids, positions, slots and blocks of each request, as the model runner had them in one step."""


Recorded = tuple[Run, list[Inputs], list[RequestOutput]]


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run with waiting, chunked prefill and preemption; the model runner's inputs of each step; the outputs."""
    inputs: list[Inputs] = []
    build = GPUModelRunner._build_attention_metadata

    def spy(self: GPUModelRunner, prepared: Any) -> Any:
        metadata = build(self, prepared)
        own = next(iter(metadata.values()))
        starts = own.query_start_loc.tolist()
        inputs.append(
            {
                request_id: (
                    prepared.input_ids[first:last].tolist(),
                    prepared.positions[first:last].tolist(),
                    own.slot_mapping[first:last].tolist(),
                    own.block_table[row, : -(-int(own.seq_lens[row]) // 16)].tolist(),
                )
                for row, (request_id, first, last) in enumerate(
                    zip(self.input_batch.req_ids, starts, starts[1:], strict=False)
                )
            }
        )
        return metadata

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GPUModelRunner, "_build_attention_metadata", spy)
        with tracellm.explain(tmp_path_factory.mktemp("runs") / "run", lang="en") as run:
            llm = LLM(**SETTINGS)
            inputs.clear()  # of the warm-up
            outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    return run, inputs, outputs

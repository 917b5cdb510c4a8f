"""The output of a step of a pooling model: the pooler's results on the host.

In a request's life: each step of its prompt, in `GPUModelRunner._pool`.

vLLM: in vllm/v1/worker/gpu_model_runner.py::GPUModelRunner._pool.
"""

from torch import Tensor

from tracellm.engine.worker.gpu_input_batch import InputBatch
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["make_pooling_output"]


def make_pooling_output(batch: InputBatch, results: list[Tensor], complete_rows: list[int]) -> ModelRunnerOutput:
    """Return the output of a step.

    A result with NaN or infinity, which no JSON holds, becomes an error of its request. vLLM does not check.

    Args:
        batch: requests of the step.
        results: float32 [values] or [tokens, values] of each row, on the device.
        complete_rows: rows whose prompt is complete; the results of the others are dropped.
    """
    output = ModelRunnerOutput(
        req_ids=batch.req_ids.copy(),
        req_id_to_index=batch.req_id_to_index.copy(),
        sampled_token_ids=[[] for _ in results],
        logprobs=None,
        prompt_logprobs_dict={},
        logits_shape=(0, 0),
        pooler_output=[None] * len(results),
    )
    for row in complete_rows:
        result = results[row].to("cpu")
        if result.isfinite().all():
            output.pooler_output[row] = result
        else:
            output.errors[output.req_ids[row]] = (
                "The model computed NaN or infinity instead of hidden states: an intermediate result exceeded the "
                "dtype's range. Try another dtype (bfloat16 or float32); if the error stays, the checkpoint is damaged."
            )
    return output

"""Explain why a run differs from its recording: a decision, a near-tie between tokens, or a mistake of the model.

In a *near-tie*, the logits of two tokens differ by less than float32's rounding error over a few layers. The winner
depends on the processor's order of additions. The runs then have different tokens and cannot be compared any further. A
near-tie excuses later differences, and none before it.
"""

from dataclasses import dataclass
from typing import Any

from tests.engine.parity.compare import generated_tokens, side_by_side
from tests.engine.parity.drive import Library, make_llm, run_batch

__all__ = ["NEAR", "Verdict", "explain"]

NEAR = 1e-4
"""Logits of the small models are of order 1, with a float32 error of about 1e-6."""

Json = dict[str, Any]


@dataclass
class Verdict:
    """Cause of the first difference."""

    near_tie: bool
    text: str


def explain(library: Library, case: Json) -> Verdict:
    """Run a workload that differed once more, and check every choice up to the first difference.

    Args:
        library: library to run.
        case: a workload with its `recorded`.
    """
    llm = make_llm(library, case)
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner
    for number, (batch, recorded) in enumerate(zip(case["batches"], case["recorded"], strict=True)):
        choices = _watch_choices(runner)
        ours = run_batch(library, llm, batch)
        expected = generated_tokens(batch, recorded["outputs"])
        done: dict[str, int] = {}
        for index, step in enumerate(recorded["steps"]):
            mine = ours["steps"][index] if index < len(ours["steps"]) else {}
            if any(mine.get(key) != value for key, value in step.items()):
                return Verdict(False, f"batch {number}, {side_by_side(index, step, mine)}")
            for request_id, (token, logits) in choices[index].items():
                place = done.get(request_id, 0)
                done[request_id] = place + 1
                theirs = expected.get(request_id, [])
                if place < len(theirs) and theirs[place] != token:
                    return _verdict(
                        f"batch {number}, step {index}, request {request_id}", place, theirs[place], token, logits
                    )
    return Verdict(False, "all decisions and tokens are equal; something else of the outputs differs")


def _verdict(where: str, place: int, theirs: int, ours: int, logits: Any) -> Verdict:
    one, other = float(logits[theirs]), float(logits[ours])
    near = abs(other - one) <= NEAR
    kind = "a near-tie" if near else "no near-tie"
    return Verdict(
        near,
        f"{where}: generated token {place} is {theirs} in vLLM (logit {one:.7f} here) and {ours} in tracellm "
        f"(logit {other:.7f}); they are {abs(other - one):.1e} apart: {kind}. All decisions until then are equal.",
    )


def _watch_choices(runner: Any) -> list[dict[str, tuple[int, Any]]]:
    """Record, for each step from now on, each request's token and the logits from which it was chosen."""
    steps: list[dict[str, tuple[int, Any]]] = []
    cls = type(runner)
    seen: list[Any] = []
    sample = runner.sampler.sample

    def sample_and_keep(logits: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(logits.clone())
        return sample(logits, *args, **kwargs)

    def execute_model(scheduler_output: Any, intermediate_tensors: Any) -> Any:
        seen.clear()
        steps.append({})
        return cls.execute_model(runner, scheduler_output, intermediate_tensors)

    def sample_tokens(grammar_output: Any) -> Any:
        output = cls.sample_tokens(runner, grammar_output)
        for request_id, token_ids in zip(output.req_ids, output.sampled_token_ids, strict=True):
            if token_ids:
                row = output.req_id_to_index[request_id]
                steps[-1][request_id] = (int(token_ids[0]), seen[0][row])
        return output

    runner.sampler.sample, runner.execute_model, runner.sample_tokens = sample_and_keep, execute_model, sample_tokens
    return steps

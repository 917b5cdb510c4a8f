"""Checks of lab 8: workloads with chunked prompts and few blocks, run without a model as in lab 7.

`recorded.jsonl` has 14 workloads for each of the first five checks, with the decisions of a real vLLM 0.11.1. One check
computes tokens from the contents of the KV cache, so that a token which was not computed shows in all later ones.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab07_continuous_batching.checks import Recorded
from tracellm.lab.labs.lab07_continuous_batching.judging import describe_fault, judge_run
from tracellm.lab.labs.lab07_continuous_batching.workload import DEFAULTS, draw_requests, run, smaller, true_tokens

__all__ = ["CHECKS"]


class _Recorded(Recorded):
    """Workloads of one group of this lab's `recorded.jsonl`."""

    folder: ClassVar = Path(__file__).parent
    cases = 5


class ChunksFillTheBudget(_Recorded):
    """A prompt that is longer than the rest of the budget gets exactly this rest, and goes on in the next step."""

    zh = "比剩余预算长的提示词恰好得到剩余预算，并在下一步继续。"
    group = "chunks"


class LongPromptsAreLimited(_Recorded):
    """A step computes at most long_prefill_token_threshold tokens of a prompt; others use the rest of the budget."""

    zh = "每步最多计算一个提示词的 long_prefill_token_threshold 个 token，其余预算由其他请求使用。"
    group = "threshold"


class TheLastRunningRequestIsPreempted(_Recorded):
    """If blocks run out, the last running request loses its blocks and waits at the front; no request starts."""

    zh = "块用完时，最后一个运行中的请求失去其块，并在等待队列最前面等待；该步没有请求开始。"
    group = "preempt"


class ResumedRequestsAreRecomputed(_Recorded):
    """A resumed request computes its prompt and its outputs again, but not those that are still cached."""

    zh = "恢复的请求重新计算其提示词和输出，但不包括仍在缓存中的部分。"
    group = "resume"


class TheLeastUrgentIsPreempted(_Recorded):
    """With the priority policy the least urgent request is preempted, and its tokens of this step are taken back."""

    zh = "在优先级策略下，最不紧急的请求被抢占，它在本步已得到的 token 被收回。"
    cases = 7
    group = "priority"


class TokensDoNotDependOnTheSchedule(Check):
    """A request generates the same tokens with every budget, threshold and number of blocks."""

    zh = "无论预算、阈值和块数如何，请求生成的 token 都相同。"
    cases = 7
    uses_reference = False

    def make(self, random: Random) -> Any:
        """Draw requests, and limits to run them with."""
        requests = draw_requests(random, random.randint(3, 5), prompt=(4, 36))
        for request in requests:
            request["abort_before_step"] = None
            request["max_tokens"] = random.randint(4, 14)
            request["priority"] = random.randrange(3)
            del request["outputs"]
        limits = [
            {
                "max_num_batched_tokens": random.choice([9, 14, 25, 64]),
                "long_prefill_token_threshold": random.choice([0, 0, 5, 12]),
                "num_gpu_blocks": random.choice([9, 10, 11, 13]),
                "enable_prefix_caching": index % 2 == 1,
                "policy": ["fcfs", "fcfs", "priority", "priority"][index],
            }
            for index in range(4)
        ]
        return {"requests": requests, "limits": limits}

    def run(self, case: Any) -> Any:
        """Return for each of the limits the tokens of each request, and the worker's first fault with its step."""
        results = []
        for limits in case["limits"]:
            states = run({"requests": case["requests"], **limits}, model=True)
            faults = [[index + 1, state["fault"]] for index, state in enumerate(states) if state["fault"] is not None]
            tokens = {name: generated for name, (generated, _) in states[-1]["generated"].items()} if states else {}
            results.append({"tokens": tokens, "fault": faults[0] if faults else None})
        return results

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe the first slot that has a wrong content, else the first token that differs."""
        for limits, result in zip(case["limits"], output, strict=True):
            failure = self._differs(case, result)
            if failure is not None:
                named = ", ".join(f"{name}={value}" for name, value in limits.items() if value != DEFAULTS[name])
                return Failure(f"with {named}: {failure.en}", f"当 {named} 时：{failure.zh}")
        return None

    def _differs(self, case: Any, result: Any) -> Failure | None:
        if result["fault"] is not None:
            step, fault = result["fault"]
            found = describe_fault(*fault)
            return Failure(f"step {step}: {found.en}", f"第 {step} 步：{found.zh}")
        for index, spec in enumerate(case["requests"]):
            right, tokens = true_tokens(spec, DEFAULTS["max_model_len"]), result["tokens"].get(str(index), [])
            if tokens != right:
                return Failure(
                    f"request {index} generates {tokens}; alone it generates {right}",
                    f"请求 {index} 生成 {tokens}；单独运行时生成 {right}",
                )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep one of the limits, then leave out requests and shorten outputs."""
        if len(case["limits"]) > 1:
            for limits in case["limits"]:
                yield case | {"limits": [limits]}
        else:
            yield from smaller(case)


class AnyWorkloadKeepsTheInvariants(Check):
    """In any workload the invariants hold, and the decisions are the engine's."""

    zh = "在任何工作负载中，不变量都成立，决定与引擎一致。"
    cases = 10

    def make(self, random: Random) -> Any:
        """Draw limits and requests, with few blocks."""
        requests = draw_requests(random, random.randint(3, 6), prompt=(4, 40))
        policy = random.choice(["fcfs", "priority"])
        for request in requests:
            request["max_tokens"] = random.randint(4, 14)
            request["abort_before_step"] = random.randint(6, 16) if random.random() < 0.3 else None
            request["priority"] = random.randrange(3) if policy == "priority" else 0
        return {
            "max_num_batched_tokens": random.choice([9, 16, 30, 64]),
            "max_num_seqs": random.choice([2, 3, 8]),
            "num_gpu_blocks": random.choice([9, 10, 12]),
            "enable_prefix_caching": random.random() < 0.5,
            "long_prefill_token_threshold": random.choice([0, 0, 6, 11]),
            "policy": policy,
            "requests": requests,
        }

    def run(self, case: Any) -> Any:
        """Return the state of each step."""
        return run(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a broken invariant, else the first decision that differs."""
        return judge_run(case, output, expected, vllm=False)

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out requests, and shorten outputs."""
        return smaller(case)


CHECKS: tuple[Check, ...] = (
    ChunksFillTheBudget(),
    LongPromptsAreLimited(),
    TheLastRunningRequestIsPreempted(),
    ResumedRequestsAreRecomputed(),
    TheLeastUrgentIsPreempted(),
    TokensDoNotDependOnTheSchedule(),
    AnyWorkloadKeepsTheInvariants(),
)

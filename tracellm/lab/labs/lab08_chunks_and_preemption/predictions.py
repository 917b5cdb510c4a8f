"""Predictions of lab 8: chunks, the victim, what is computed again."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab07_continuous_batching.workload import run
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _prompt(length: int) -> list[int]:
    return [10 + position for position in range(length)]


class StepsOfAPrompt(Prediction):
    """Steps that two long prompts take with a threshold."""

    name = "steps-of-a-prompt"

    def make(self, random: Random) -> Any:
        """Draw two prompts, and a threshold of less than half of the budget or more."""
        threshold = random.randint(6, 11)
        budget = threshold + random.randint(2, threshold)
        return {"threshold": threshold, "budget": budget, "prompt": random.randint(25, 50)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"long_prefill_token_threshold 为 {case['threshold']}，预算为 {case['budget']}。两个 {case['prompt']} "
                "个 token 的提示词同时到达，max_tokens 为 1。第一个请求在第几步结束？（从 1 起的步数）"
            )
        return (
            f"long_prefill_token_threshold is {case['threshold']}, and the budget is {case['budget']}. Two prompts of "
            f"{case['prompt']} tokens arrive together, with max_tokens 1. In which step does the first request end? (a "
            "number, the first step is 1)"
        )

    def answer(self, case: Any) -> int | str:
        """Find the step after which the first request has ended."""
        requests = [{"prompt": [start, *_prompt(case["prompt"] - 1)], "max_tokens": 1} for start in (50, 60)]
        limits = {"max_num_batched_tokens": case["budget"], "long_prefill_token_threshold": case["threshold"]}
        states = run({**limits, "requests": requests})
        return next(index + 1 for index, state in enumerate(states) if "0" in state["ended_after"])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        prompt, threshold = case["prompt"], case["threshold"]
        steps, left = -(-prompt // threshold), case["budget"] - threshold
        if lang == "zh":
            return f"第一个请求每步得到 {threshold} 个 token，{prompt} 个需要 {steps} 步；其余 {left} 个归第二个请求。"
        return (
            f"The first request gets {threshold} tokens in each step, so {prompt} take {steps} steps; the other {left} "
            "of the budget go to the second one."
        )


class Victim(Prediction):
    """Request that is preempted first under the priority policy."""

    name = "victim"

    def make(self, random: Random) -> Any:
        """Draw three requests that fill the blocks, and need more after some tokens."""
        return {
            "priorities": random.choice([[0, 2, 1], [2, 0, 1], [1, 2, 2], [2, 1, 0], [0, 1, 1], [1, 0, 0], [2, 2, 1]]),
            "prompts": random.sample([10, 11, 12, 13, 14], 3),
        }

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        priorities = ", ".join(map(str, case["priorities"]))
        if lang == "zh":
            return (
                f"请求 0、1、2 依次到达，优先级为 {priorities}（数值小者更紧急），策略为 priority。"
                "三个请求都在运行，此时需要一个块而没有空闲块。最先被抢占的是哪个请求？（0、1 或 2）"
            )
        return (
            f"Requests 0, 1 and 2 arrive in this order, with priorities {priorities} (the smallest is the most urgent) "
            "and the policy priority. All three run, and a block is needed when none is free. Which request is "
            "preempted first? (0, 1 or 2)"
        )

    def answer(self, case: Any) -> int | str:
        """Find the first request that returns to the waiting queue."""
        requests = [
            {"prompt": _prompt(length), "max_tokens": 30, "priority": priority}
            for length, priority in zip(case["prompts"], case["priorities"], strict=True)
        ]
        running: list[str] = []
        for state in run({"num_gpu_blocks": 9, "policy": "priority", "requests": requests}):
            for name in running:
                if name in state["waiting"]:
                    return int(name)
            running = state["running"]
        raise AssertionError("no request was preempted")

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        largest = max(case["priorities"])
        same = [str(name) for name, priority in enumerate(case["priorities"]) if priority == largest]
        if lang == "zh":
            last = f"；数值相同时抢占最晚到达的 {same[-1]}" if len(same) > 1 else ""
            return f"最大的优先级数值 {largest} 属于请求 {'、'.join(same)}{last}。"
        return f"The largest priority, {largest}, is that of request{'s' * (len(same) > 1)} {' and '.join(same)}" + (
            f"; among equals the latest arrival, {same[-1]}, is preempted." if len(same) > 1 else "."
        )


class ComputedAgain(Prediction):
    """Tokens that a resumed request computes at once."""

    name = "computed-again"

    def make(self, random: Random) -> Any:
        """Draw two prompts that fill eight blocks after some tokens."""
        first = random.randint(2, 5)
        return {"prompts": [32 - first, 32 - random.randint(first + 1, 7)]}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        first, second = case["prompts"]
        if lang == "zh":
            return (
                f"有 8 个块，每块 8 个 token，预算充足，没有前缀缓存。"
                f"请求 0 和 1 的提示词有 {first} 和 {second} 个 token，同时开始，"
                "各自需要生成 12 个 token。请求 1 恢复的那一步计算它的多少个 token？（一个数）"
            )
        return (
            "There are 8 blocks of 8 tokens, a large budget and no prefix cache. Requests 0 and 1 have prompts of "
            f"{first} and {second} tokens, start together and are to generate 12 tokens each. How many tokens of "
            "request 1 does the step compute that resumes it? (a number)"
        )

    def answer(self, case: Any) -> int | str:
        """Find the step that resumes request 1."""
        requests = [
            {"prompt": [start, *_prompt(n - 1)], "max_tokens": 12}
            for start, n in zip((50, 60), case["prompts"], strict=True)
        ]
        states = run({"num_gpu_blocks": 9, "requests": requests})
        return next(int(state["scheduled"]["1"]) for state in states if state["resumed"])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        first, second = case["prompts"]
        outputs = 32 - first + 1
        if lang == "zh":
            return (
                f"请求 0 生成 {outputs} 个 token 后需要第 5 个块；此时请求 1 也生成了 {outputs} 个。它失去所有块，"
                f"恢复时重新计算提示词和输出：{second} + {outputs} 个。"
            )
        return (
            f"After {outputs} tokens request 0 needs a fifth block, and request 1 has generated {outputs} too. It "
            f"loses all its blocks, and computes prompt and outputs again: {second} + {outputs} tokens."
        )


PREDICTIONS: tuple[Prediction, ...] = (StepsOfAPrompt(), Victim(), ComputedAgain())

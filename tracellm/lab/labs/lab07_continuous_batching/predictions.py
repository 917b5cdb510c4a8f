"""Predictions of lab 7: the budget, the places, the number of steps."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab07_continuous_batching.workload import run
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _prompts(*lengths: int) -> list[list[int]]:
    return [[10 + position for position in range(length)] for length in lengths]


class RestOfTheBudget(Prediction):
    """Tokens that the first step gives the last of three prompts."""

    name = "rest-of-the-budget"

    def make(self, random: Random) -> Any:
        """Draw three prompts, the last of which does not fit."""
        first, second = random.randint(5, 20), random.randint(5, 20)
        budget = first + second + random.randint(2, 12)
        return {"budget": budget, "prompts": [first, second, random.randint(20, 40)]}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        first, second, third = case["prompts"]
        if lang == "zh":
            return (
                f"预算为 {case['budget']} 个 token，三个提示词有 {first}、{second}、{third} 个 token。"
                "第一步计算第三个提示词的多少个 token？（一个数）"
            )
        return (
            f"The budget is {case['budget']} tokens, and three prompts have {first}, {second} and {third} tokens. "
            "How many tokens of the third does the first step compute? (a number)"
        )

    def answer(self, case: Any) -> int | str:
        """Run the first step."""
        requests = [{"prompt": prompt} for prompt in _prompts(*case["prompts"])]
        states = run({"max_num_batched_tokens": case["budget"], "requests": requests})
        return int(states[0]["scheduled"].get("2", 0))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        first, second, _ = case["prompts"]
        left = case["budget"] - first - second
        if lang == "zh":
            return f"前两个用掉 {first} + {second} 个，剩下 {case['budget']} - {first + second} = {left} 个。"
        return f"The first two take {first} + {second}, and {case['budget']} - {first + second} = {left} are left."


class StepOfTheStart(Prediction):
    """Step in which a request finds a place."""

    name = "step-of-the-start"

    def make(self, random: Random) -> Any:
        """Draw the outputs of two requests that run; a third one waits for a place."""
        return {"max_tokens": [random.randint(3, 9), random.randint(3, 9)]}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        first, second = case["max_tokens"]
        if lang == "zh":
            return (
                f"max_num_seqs 为 2，三个短提示词同时到达，max_tokens 为 {first}、{second} 和 4，预算充足。"
                "第三个请求在第几步开始？（从 1 起的步数）"
            )
        return (
            f"max_num_seqs is 2. Three short prompts arrive together, with max_tokens {first}, {second} and 4, and the "
            "budget is large. In which step does the third request start? (a number, the first step is 1)"
        )

    def answer(self, case: Any) -> int | str:
        """Find the step that starts it."""
        limits = [*case["max_tokens"], 4]
        requests = [
            {"prompt": prompt, "max_tokens": most} for prompt, most in zip(_prompts(3, 4, 5), limits, strict=True)
        ]
        states = run({"max_num_seqs": 2, "requests": requests})
        return next(index + 1 for index, state in enumerate(states) if ["2", 0] in state["new"])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        least = min(case["max_tokens"])
        if lang == "zh":
            return f"每步生成一个 token，第一步也是，所以较短的请求在第 {least} 步结束；下一步就有了空位。"
        return (
            f"Each step generates a token, the first one too, so the shorter request ends in step {least}; the next "
            "step has a place."
        )


class StepsInAll(Prediction):
    """Steps that a prompt in chunks and its output take."""

    name = "steps-in-all"

    def make(self, random: Random) -> Any:
        """Draw a prompt of several chunks."""
        return {"budget": random.randint(6, 12), "prompt": random.randint(20, 45), "max_tokens": random.randint(2, 9)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"只有一个请求：提示词 {case['prompt']} 个 token，max_tokens 为 {case['max_tokens']}，"
                f"预算为 {case['budget']}。总共需要多少步？（一个数）"
            )
        return (
            f"A single request has a prompt of {case['prompt']} tokens and max_tokens {case['max_tokens']}; the budget "
            f"is {case['budget']}. How many steps does it take in all? (a number)"
        )

    def answer(self, case: Any) -> int | str:
        """Count the steps."""
        request = {"prompt": _prompts(case["prompt"])[0], "max_tokens": case["max_tokens"]}
        return len(run({"max_num_batched_tokens": case["budget"], "requests": [request]}))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        chunks = -(-case["prompt"] // case["budget"])
        more = case["max_tokens"] - 1
        if lang == "zh":
            return f"提示词分 {chunks} 步计算，最后一个分块已生成第一个 token；其余 {more} 个 token 各需一步。"
        return (
            f"The prompt takes {chunks} steps, and its last chunk generates the first token; the other {more} take a "
            "step each."
        )


PREDICTIONS: tuple[Prediction, ...] = (RestOfTheBudget(), StepOfTheStart(), StepsInAll())

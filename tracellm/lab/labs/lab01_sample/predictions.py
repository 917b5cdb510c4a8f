"""Questions of lab 1: how many tokens stay, what a penalty does to a logit, what a temperature does to a ratio."""

import math
from random import Random
from typing import Any

from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


class _TopKTopP(Prediction):
    """Number of tokens that top-k and top-p leave."""

    name = "tokens-left"

    def make(self, random: Random) -> Any:
        """See `Prediction`. The sum of all percentages is 100; the order of top-k and top-p matters."""
        tail = [random.randint(12, 15), random.randint(10, 11), random.randint(7, 9), random.randint(4, 6)]
        second = random.randint(18, 24)
        percent = [100 - second - sum(tail), second, *tail]
        top_k = random.choice((3, 4))
        share = sum(percent[: random.randint(1, top_k - 1)]) / sum(percent[:top_k])
        return {"percent": percent, "top_k": top_k, "top_p": math.floor(100 * share - 1) / 100}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        shown = ", ".join(f"{one}%" for one in case["percent"])
        if lang == "zh":
            return (
                f"六个 token 的概率为 {shown}。"
                f"top_k={case['top_k']}、top_p={case['top_p']} 之后还剩几个 token？（整数）"
            )
        return (
            f"Six tokens have the probabilities {shown}. How many of them stay with top_k={case['top_k']} and "
            f"top_p={case['top_p']}? (an integer)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        import torch

        from tracellm.engine.sample.ops import apply_top_k_top_p

        logits = torch.tensor([case["percent"]], dtype=torch.float32).log()
        kept = apply_top_k_top_p(logits, torch.tensor([case["top_k"]]), torch.tensor([case["top_p"]]))
        return int((kept > -torch.inf).sum())

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        percent, top_k, left = case["percent"], case["top_k"], self.answer(case)
        total, part = sum(percent[:top_k]), sum(percent[:left])
        if lang == "zh":
            return (
                f"top-k 先留下 {top_k} 个 token，共 {total}%；其中前 {left} 个占 {part}/{total} = {part / total:.3f}，"
                f"已达到 {case['top_p']}"
            )
        return (
            f"top-k first leaves {top_k} tokens, {total}% together; the first {left} are {part}/{total} = "
            f"{part / total:.3f} of that, which reaches {case['top_p']}"
        )


class _Penalties(Prediction):
    """Logit of a token after all three penalties."""

    name = "logit-left"

    def make(self, random: Random) -> Any:
        """See `Prediction`. The result is an integer."""
        return {
            "logit": random.choice((-8, -6, -4, 4, 6, 8)),
            "count": random.randint(2, 3),
            "prompt": random.randint(1, 4),
            "frequency": random.randint(1, 2),
            "presence": random.randint(1, 3),
        }

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"某 token 的 logit 为 {case['logit']}，在提示词中出现 {case['prompt']} 次，"
                f"在输出中出现 {case['count']} 次。repetition_penalty=2、"
                f"frequency_penalty={case['frequency']}、presence_penalty={case['presence']} 之后"
                "它的 logit 是多少？（整数）"
            )
        prompt = "once" if case["prompt"] == 1 else f"{case['prompt']} times"
        return (
            f"A token with logit {case['logit']} is {prompt} in the prompt and {case['count']} times in "
            f"the output. What is its logit after repetition_penalty=2, frequency_penalty={case['frequency']} and "
            f"presence_penalty={case['presence']}? (an integer)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        import torch

        from tracellm.engine.sample.ops import apply_all_penalties

        presence, frequency, repetition = (
            torch.tensor([float(value)]) for value in (case["presence"], case["frequency"], 2)
        )
        prompt = torch.zeros(1, case["prompt"], dtype=torch.int64)
        logits = torch.tensor([[float(case["logit"]), 0.0]])
        left = apply_all_penalties(logits, prompt, presence, frequency, repetition, [[0] * case["count"]])
        return round(left[0, 0].item())

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        logit, count = case["logit"], case["count"]
        first = f"{logit} / 2" if logit > 0 else f"{logit} * 2"
        sum_ = f"{first} - {case['frequency']} * {count} - {case['presence']} = {self.answer(case)}"
        if lang == "zh":
            return f"{sum_}：正的 logit 除以、负的乘以 repetition；只有输出中的 {count} 次计入 frequency"
        return f"{sum_}: repetition divides a positive logit and multiplies a negative one; frequency counts the output"


class _Temperature(Prediction):
    """Ratio of two probabilities at a lower temperature."""

    name = "times-as-likely"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        return {"ratio": random.randint(2, 5), "parts": random.choice((2, 3))}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"温度为 1 时，token A 的概率是 token B 的 {case['ratio']} 倍。"
                f"温度为 1/{case['parts']} 时是多少倍？（整数）"
            )
        return (
            f"At temperature 1, token A is {case['ratio']} times as likely as token B. How many times at temperature "
            f"1/{case['parts']}? (an integer)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        import torch

        from tracellm.engine.sample.sampler import Sampler

        logits = torch.tensor([[math.log(case["ratio"]), 0.0]])
        scaled = Sampler(torch.Generator()).apply_temperature(logits, torch.tensor([1 / case["parts"]]))
        one, other = scaled.softmax(-1)[0].tolist()
        return round(one / other)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        ratio, parts = case["ratio"], case["parts"]
        if lang == "zh":
            return f"logit 之差变为 {parts} 倍，因此比值变为 {ratio} 的 {parts} 次方"
        return f"the difference of the logits grows {parts} times, so the ratio becomes {ratio} to the power {parts}"


PREDICTIONS = (_TopKTopP(), _Penalties(), _Temperature())

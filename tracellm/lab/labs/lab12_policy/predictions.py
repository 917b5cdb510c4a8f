"""Predictions of lab 12: times, orders and fairness in small workloads."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab12_policy.checks import run_fcfs
from tracellm.lab.labs.lab12_policy.workloads import REQUEST, STEP, TOKEN, alone, measure
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


class DearerTokens(Prediction):
    """The price of an output token, in prompt tokens."""

    name = "price"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        return {"requests": random.randint(3, 8)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"一步有 {case['requests']} 个请求，各得一个输出 token，用时为 0.0048 + 0.00004 * token 数 + "
                "0.00004 * 请求数（秒）。平均每个请求所占的时间相当于多少个提示词 token（每个 0.00004 秒）？"
                "（四舍五入的一个数）"
            )
        return (
            f"A step has {case['requests']} requests that get one output token each; it takes "
            "0.0048 + 0.00004 * tokens + 0.00004 * requests seconds. How many prompt tokens, at 0.00004 s each, is one "
            "request's part of this time worth? (a number, rounded)"
        )

    def answer(self, case: Any) -> int | str:
        """See `Prediction`."""
        return round((STEP / case["requests"] + TOKEN + REQUEST) / TOKEN)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        part = 1000 * (STEP / case["requests"] + TOKEN + REQUEST)
        if lang == "zh":
            return f"每个请求占 {part:.2f} 毫秒，除以 0.04 毫秒。"
        return f"each request has {part:.2f} ms of the step, and a prompt token takes 0.04 ms"


class WaitBehindLongOnes(Prediction):
    """The slowdown of a short request behind long ones."""

    name = "slowdown"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        count, output = random.randint(5, 10), random.randint(20, 40)
        long = {"at": 0.0, "prompt": 200, "max_tokens": output, "output": output}
        short = {"at": 0.001, "prompt": 10, "max_tokens": 2, "output": 2}
        return {"num_blocks": 600, "requests": [long] * count + [short]}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        count, output = len(case["requests"]) - 1, case["requests"][0]["output"]
        if lang == "zh":
            return (
                f"{count} 个请求在时刻 0 到达，提示词 200 个 token，各 {output} 个输出 token；1 毫秒后"
                "到达一个提示词 10、输出 2 的请求。FCFS，一步最多 8 个请求、256 个 token。"
                "这个短请求的减速比小于 10，还是不小于 10？（<10 或 >=10）"
            )
        return (
            f"At time 0, {count} requests arrive with 200 prompt tokens and {output} output tokens each; after 1 ms "
            "one with 10 prompt tokens and 2 output tokens. FCFS, at most 8 requests and 256 tokens per step. "
            "Is the slowdown of the short one below 10? (<10 or >=10)"
        )

    def answer(self, case: Any) -> int | str:
        """See `Prediction`."""
        return "<10" if self._slowdown(case) < 10 else ">=10"

    def _slowdown(self, case: Any) -> float:
        short = case["requests"][-1]
        return float((run_fcfs(case)["requests"][-1][1] - short["at"]) / alone(short))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        short, latency = alone(case["requests"][-1]), run_fcfs(case)["requests"][-1][1]
        slowdown = self._slowdown(case)
        count = len(case["requests"]) - 1
        if lang == "zh":
            why = "占满所有位置，短请求要等第一个长请求结束" if count >= 8 else "位置没有占满，短请求只等提示词算完"
            return (
                f"{count} 个长请求{why}：{1000 * latency:.0f} 毫秒；独自运行需 {1000 * short:.1f} 毫秒，"
                f"减速比 {slowdown:.1f}。"
            )
        why = (
            "take all 8 places, so it waits until the first of them ends"
            if count >= 8
            else "leave a place free, so it waits only for their prompts"
        )
        return (
            f"the {count} long ones {why}: it is done at {1000 * latency:.0f} ms, and alone takes "
            f"{1000 * short:.1f} ms: {slowdown:.1f}"
        )


class FairUnderFCFS(Prediction):
    """Jain's index of tenants under FCFS."""

    name = "jain"

    def make(self, random: Random) -> Any:
        """See `Prediction`. One tenant comes a moment before the others."""
        request = {"prompt": 16, "max_tokens": 4, "output": 4}
        requests = [{"at": 0.0, "tenant": 0, **request}] * random.choice([16, 24, 32])
        for tenant in range(1, random.randint(2, 5)):
            requests += [{"at": 0.001, "tenant": tenant, **request}] * 8
        return {"num_blocks": 600, "requests": requests}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        tenants = [one["tenant"] for one in case["requests"]]
        first, others = tenants.count(0), max(tenants)
        if lang == "zh":
            return (
                f"租户 0 在时刻 0 发来 {first} 个相同的请求，另外 {others} 个租户在 1 毫秒后各发来 8 个。FCFS，"
                "一步最多 8 个请求。直到第一个租户全部完成为止，各租户份额的 Jain 指数是多少？（两位小数）"
            )
        sent = f"{others} others send 8 requests each" if others > 1 else "another sends 8 requests"
        return (
            f"Tenant 0 sends {first} equal requests at time 0; after 1 ms, {sent}. FCFS, at most 8 requests per step. "
            "What is Jain's index of the tenants' shares, until the first tenant has nothing left? (two decimals)"
        )

    def answer(self, case: Any) -> int | str:
        """See `Prediction`."""
        return f"{measure(case, run_fcfs(case))['fairness']:.2f}"

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        shares = run_fcfs(case)["shares"]
        listed, index = ", ".join(f"{1000 * share:.0f}" for share in shares.values()), self.answer(case)
        if lang == "zh":
            return f"租户 0 的请求全在前面，它最先完成：{len(shares)} 个份额为 {listed} 毫秒，指数 {index}。"
        return (
            f"all of tenant 0's requests are first, so it ends first: the {len(shares)} shares are {listed} ms: {index}"
        )


PREDICTIONS: tuple[Prediction, ...] = (DearerTokens(), WaitBehindLongOnes(), FairUnderFCFS())

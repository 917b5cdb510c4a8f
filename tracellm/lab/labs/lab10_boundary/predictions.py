"""Predictions of lab 10: the chosen client, and steps of the busy loop."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab10_boundary.loops import run_loop
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _listed(batches: list[dict[str, Any]], lang: str) -> str:
    """Return when each batch of messages arrives, in words."""
    parts = []
    for batch in batches:
        names = ", ".join(
            f"ADD {one['id']} ({one['tokens']} tokens)" if one["type"] == "ADD" else f"ABORT {' '.join(one['ids'])}"
            for one in batch["messages"]
        )
        if lang == "zh":
            when = f"第 {batch['at']} 步计算期间" if batch["at"] else "开始时"
            parts.append(f"{when}：{names.replace(' tokens', ' 个 token')}")
        else:
            when = f"while step {batch['at']} computes" if batch["at"] else "at the beginning"
            parts.append(f"{when}: {names}")
    return "；".join(parts) if lang == "zh" else "; ".join(parts)


def _steps(case: Any) -> list[list[str]]:
    return [one["ids"] for one in run_loop(case)["log"] if one["do"] == "step"]


class ChosenClient(Prediction):
    """Client for a configuration."""

    name = "client"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        return {"multiprocess": random.random() < 0.5, "async": random.random() < 0.5}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        flags = f"multiprocess_mode={case['multiprocess']}, asyncio_mode={case['async']}"
        if lang == "zh":
            return f"make_client({flags}, …) 创建哪个客户端？（类名，或 none）"
        return f"Which client does make_client({flags}, …) create? (name of the class, or none)"

    def answer(self, case: Any) -> str:
        """See `Prediction`."""
        from tracellm.engine.ipc.core_client import choose_client

        return choose_client(case["multiprocess"], case["async"]).name or "none"

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        name = self.answer(case)
        if name == "none":
            if lang == "zh":
                return "asyncio 调用方无法在自己的进程中等待一步，因此没有这样的客户端。"
            return "An asyncio caller cannot wait for a step inside its own process, so there is no such client."
        if lang == "zh":
            where = "独立进程" if case["multiprocess"] else "本进程"
            how = "用 await 等待" if case["async"] else "阻塞等待"
            return f"引擎核心在{where}中，调用方{how}：{name}。"
        where = "a process of its own" if case["multiprocess"] else "this process"
        how = "awaits" if case["async"] else "waits for"
        return f"The engine core runs in {where}, and the caller {how} its outputs: {name}."


class StepAfterMessages(Prediction):
    """Requests that a step computes."""

    name = "step-after-messages"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        first = [{"type": "ADD", "id": name, "tokens": random.randint(5, 8), "client": 0} for name in "ab"]
        gone = random.choice("ab")
        during: list[dict[str, Any]] = [
            {"type": "ADD", "id": "c", "tokens": random.randint(2, 4), "client": 0},
            {"type": "ABORT", "ids": [gone]},
        ]
        random.shuffle(during)
        step = random.randint(1, 3)
        return {"batches": [{"at": 0, "messages": first}, {"at": step, "messages": during}], "step": step + 1}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        listed = _listed(case["batches"], lang)
        if lang == "zh":
            return f"引擎核心收到的消息：{listed}。第 {case['step']} 步计算哪些请求？（字母按顺序连写，如 ab）"
        return (
            f"Messages to an engine core: {listed}. Which requests does step {case['step']} compute? "
            "(letters, as in ab)"
        )

    def answer(self, case: Any) -> str:
        """See `Prediction`."""
        return "".join(sorted(_steps(case)[case["step"] - 1]))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        step, left = case["step"], self.answer(case)
        if lang == "zh":
            return f"第 {step} 步之前处理完在第 {step - 1} 步期间到来的全部消息，剩下 {left}。"
        return f"All messages that came while step {step - 1} computed are handled before step {step}; {left} remain."


class NumberOfSteps(Prediction):
    """Number of steps until the loop waits for input."""

    name = "number-of-steps"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        one, other = random.randint(2, 6), random.randint(3, 6)
        at = random.randint(1, one - 1) if one > 2 else 1
        first = [{"type": "ADD", "id": "a", "tokens": one, "client": 0}]
        second = [{"type": "ADD", "id": "b", "tokens": other, "client": 0}]
        return {"batches": [{"at": 0, "messages": first}, {"at": at, "messages": second}]}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        listed = _listed(case["batches"], lang)
        if lang == "zh":
            return f"引擎核心收到的消息：{listed}。每个请求每步得到一个 token。共计算多少步？（一个数）"
        return (
            f"Messages to an engine core: {listed}. A request gets one token per step. How many steps compute? (number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        return len(_steps(case))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        (first,), (second,) = (batch["messages"] for batch in case["batches"])
        at, end = case["batches"][1]["at"], case["batches"][1]["at"] + second["tokens"]
        if lang == "zh":
            return f"a 占第 1 至 {first['tokens']} 步；b 从第 {at + 1} 步起，到第 {end} 步；一步同时计算两者。"
        return f"a takes steps 1 to {first['tokens']}, b steps {at + 1} to {end}; a step computes both at once."


PREDICTIONS = (ChosenClient(), StepAfterMessages(), NumberOfSteps())

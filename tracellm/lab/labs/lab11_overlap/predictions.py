"""Predictions of lab 11: steps and placeholders of one request."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab11_overlap.stand_in import Model, make_request, make_scheduler
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _run(case: Any, ahead: int) -> tuple[Model, list[int]]:
    """Run a request with so many steps in flight; return the model, and the placeholders after each launched step."""
    settings = {"num_blocks": 20, "budget": case.get("budget", 64), "max_num_seqs": 1, "caching": False}
    scheduler, model, queue, placeholders = make_scheduler(settings, ahead > 1), Model(), [], []
    request = make_request("0", {"at": 0, "stop": False, **case}, caching=False)
    scheduler.add_request(request)
    while scheduler.has_unfinished_requests():
        step = scheduler.schedule()
        queue.append((step, model.execute(step)))
        if step.num_scheduled_tokens:
            placeholders.append(request.num_output_placeholders)
        if len(queue) == ahead or not step.num_scheduled_tokens:
            scheduler.update_from_output(*queue.pop(0))
    return model, placeholders


class StepsWithTokens(Prediction):
    """The steps that compute something."""

    name = "steps"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        return {"prompt": [3] * random.randint(3, 9), "max_tokens": random.randint(4, 9)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        num_prompt, max_tokens = len(case["prompt"]), case["max_tokens"]
        if lang == "zh":
            return (
                f"一个请求，提示词 {num_prompt} 个 token，max_tokens={max_tokens}，没有停止 token，异步调度，"
                "最多两步在途。有多少步计算了 token？（一个数）"
            )
        return (
            f"One request: a prompt of {num_prompt} tokens, max_tokens={max_tokens}, no stop token; asynchronous "
            "scheduling with two steps in flight at most. How many steps compute tokens? (a number)"
        )

    def answer(self, case: Any) -> int | str:
        """See `Prediction`."""
        return sum(bool(step) for step in _run(case, 2)[0].scheduled)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        number = self.answer(case)
        if lang == "zh":
            return (
                f"每步得到一个 token，第一步计算提示词，所以 {case['max_tokens']} 个 token 需要 {number} 步；"
                "结束事先已知。"
            )
        return (
            f"each step gives a token, the first from the prompt: {case['max_tokens']} tokens in {number} steps. "
            "The end is known before, so no step is wasted"
        )


class PlaceholdersInFlight(Prediction):
    """The placeholders with several steps in flight."""

    name = "placeholders"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        budget = random.randint(3, 5)
        length = random.choice([budget, 2 * budget])
        return {"prompt": [3] * length, "max_tokens": 9, "budget": budget, "launched": 3}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        num_prompt, budget, launched = len(case["prompt"]), case["budget"], case["launched"]
        if lang == "zh":
            return (
                f"提示词 {num_prompt} 个 token，每步最多 {budget} 个 token。已启动 {launched} 步，还没有任何结果到达。"
                "该请求有多少个占位符？（一个数）"
            )
        return (
            f"A prompt of {num_prompt} tokens, at most {budget} tokens per step. {launched} steps are launched, and no "
            "result has come. How many placeholders does the request have? (a number)"
        )

    def answer(self, case: Any) -> int | str:
        """See `Prediction`."""
        return _run(case, case["launched"])[1][case["launched"] - 1]

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        steps = -(-len(case["prompt"]) // case["budget"])
        number = self.answer(case)
        if lang == "zh":
            return f"提示词需要 {steps} 步，只有最后一步给出 token；此后每步一个：共 {number} 个占位符。"
        return (
            f"the prompt takes {steps} step{'s' if steps > 1 else ''}, of which only the last gives a token, then each "
            f"step gives one: {number} placeholders"
        )


class WastedTokens(Prediction):
    """The tokens that are computed for nothing."""

    name = "wasted"

    def make(self, random: Random) -> Any:
        """See `Prediction`. The token after which the request stops is found by trying prompts."""
        while True:
            case = {
                "prompt": [random.randint(3, 9) for _ in range(random.randint(3, 7))],
                "max_tokens": 20,
                "stop": True,
                "ahead": random.randint(2, 3),
            }
            outputs = sum(bool(step) for step in _run(case, 1)[0].scheduled)
            if 3 <= outputs <= 12:
                return case | {"outputs": outputs}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        num_prompt, outputs, ahead = len(case["prompt"]), case["outputs"], case["ahead"]
        if lang == "zh":
            return (
                f"提示词 {num_prompt} 个 token，max_tokens=20，第 {outputs} 个输出 token 是停止 token；"
                f"最多 {ahead} 步在途。该请求一共计算多少个 token（含提示词）？（一个数）"
            )
        return (
            f"A prompt of {num_prompt} tokens, max_tokens=20; output token {outputs} is a stop token; {ahead} steps in "
            "flight at most. How many tokens are computed for the request, its prompt included? (a number)"
        )

    def answer(self, case: Any) -> int | str:
        """See `Prediction`."""
        return sum(step.get("0", 0) for step in _run(case, case["ahead"])[0].scheduled)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        needed, late = len(case["prompt"]) + case["outputs"] - 1, case["ahead"] - 1
        if lang == "zh":
            return f"需要 {needed} 个（最后一个 token 不再计算）；停止被发现时还有 {late} 步在途，各白算一个 token。"
        return (
            f"{needed} are needed (nothing is computed from the last token); when the stop is noticed, {late} more "
            f"step{'s are' if late > 1 else ' is'} in flight, with a token each for nothing"
        )


PREDICTIONS: tuple[Prediction, ...] = (StepsWithTokens(), PlaceholdersInFlight(), WastedTokens())

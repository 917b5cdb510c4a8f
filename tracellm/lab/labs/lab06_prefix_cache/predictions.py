"""Predictions of lab 6."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab06_prefix_cache.running import Json, Workload
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _hits(block_size: int, operations: list[Json]) -> int:
    """Return the hit, in tokens, of the request that starts last."""
    workload = Workload(block_size, 100)
    return int([workload.apply(operation) for operation in operations][-1]["hits"])


def _start(name: str, prompt: list[int]) -> Json:
    return {"do": "start", "request": name, "prompt": prompt, "tokens": len(prompt)}


class CommonBeginning(Prediction):
    """The hit of a prompt that begins as another one."""

    name = "common-beginning"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        size, same = random.choice([8, 16]), random.randint(20, 60)
        return {
            "block_size": size,
            "first": same + random.randint(1, 20),
            "second": same + random.randint(1, 20),
            "same": same,
        }

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, first, second, same = (case[key] for key in ("block_size", "first", "second", "same"))
        if lang == "zh":
            return (
                f"每块 {size} 个 token。缓存中有一个 {first} 个 token 的提示词；新提示词有 {second} 个 token，"
                f"前 {same} 个与它相同。新请求命中多少个 token？"
            )
        return (
            f"Blocks have {size} tokens. A prompt of {first} tokens is cached, and a new one of {second} tokens begins "
            f"with the same {same}. How many tokens of it are a hit?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        same = list(range(case["same"]))
        prompts = (same + [one] * (case[key] - case["same"]) for key, one in (("first", 1001), ("second", 1002)))
        return _hits(case["block_size"], [_start(name, prompt) for name, prompt in zip("ab", prompts, strict=True)])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, same, hits = case["block_size"], case["same"], self.answer(case)
        if lang == "zh":
            return f"只共享整块：{same} 个相同的 token 中有 {hits // size} 个整块，即 {hits} 个 token。"
        return f"Only whole blocks are shared: {same} equal tokens hold {hits // size} of them, {hits} tokens."


class Repeated(Prediction):
    """The tokens that a repeated prompt computes."""

    name = "repeated"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        size = random.choice([8, 16])
        return {"block_size": size, "length": size * random.randint(2, 5) + random.choice([0, 0, 1, size - 1])}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, length = case["block_size"], case["length"]
        if lang == "zh":
            return f"每块 {size} 个 token。一个 {length} 个 token 的提示词算完后又来一次。第二次要计算多少个 token？"
        return (
            f"Blocks have {size} tokens. A prompt of {length} tokens was computed, and comes once more. How many of "
            "its tokens are computed the second time?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        prompt = list(range(case["length"]))
        return case["length"] - _hits(case["block_size"], [_start("a", prompt), _start("b", prompt)])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        length = case["length"]
        hits = length - self.answer(case)
        if lang == "zh":
            return (
                f"最后一个 token 必须计算；前 {length - 1} 个中有 {hits} 个在整块里："
                f"{length} - {hits} = {length - hits}。"
            )
        return (
            f"The last token must be computed; of the {length - 1} before it, {hits} are in whole blocks: "
            f"{length} - {hits} = {length - hits}."
        )


class NextTurn(Prediction):
    """The hit of a conversation's next turn."""

    name = "next-turn"

    def make(self, random: Random) -> Any:
        """See `Prediction`. Often the last generated token would fill a block."""
        size = random.choice([8, 16])
        total = size * random.randint(3, 5) + random.choice([0, 0, 1])
        generated = random.randint(size - 2, 2 * size)
        return {"block_size": size, "prompt": total - generated, "generated": generated, "added": random.randint(5, 20)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, prompt, generated, added = (case[key] for key in ("block_size", "prompt", "generated", "added"))
        if lang == "zh":
            return (
                f"每块 {size} 个 token。一个 {prompt} 个 token 的提示词生成了 {generated} 个 token 后结束。"
                f"下一轮的提示词是这 {prompt + generated} 个 token 再加 {added} 个。命中多少个 token？"
            )
        return (
            f"Blocks have {size} tokens. A prompt of {prompt} tokens got {generated} generated tokens, and ended. The "
            f"next turn's prompt is these {prompt + generated} tokens and {added} more. How many of them are a hit?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        tokens = list(range(case["prompt"] + case["generated"]))
        operations = [_start("a", tokens[: case["prompt"]])]
        for token in tokens[case["prompt"] :]:
            operations.append({"do": "compute", "request": "a", "tokens": 1})
            operations.append({"do": "generate", "request": "a", "token": token})
        operations.append({"do": "end", "request": "a"})
        return _hits(case["block_size"], [*operations, _start("b", tokens + [1000] * case["added"])])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        total, hits = case["prompt"] + case["generated"], self.answer(case)
        if lang == "zh":
            return f"最后生成的 token 从未输入模型，因此 KV 缓存中有 {total - 1} 个 token，其中 {hits} 个在整块里。"
        return (
            f"The last generated token was never an input, so {total - 1} tokens are in the KV cache, {hits} of them "
            "in whole blocks."
        )


PREDICTIONS: tuple[Prediction, ...] = (CommonBeginning(), Repeated(), NextTurn())

"""Questions of lab 0, each about a small run: steps of a prompt in chunks, steps of an output, blocks of a request."""

from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from tracellm.lab.predictions import Prediction

if TYPE_CHECKING:
    from tracellm.engine.entrypoints.llm import LLM

__all__ = ["PREDICTIONS"]

_BUDGET, _BLOCK_SIZE = 32, 16


@cache
def _engine() -> "LLM":
    from tracellm.engine.entrypoints.llm import LLM

    return LLM(max_num_batched_tokens=_BUDGET, block_size=_BLOCK_SIZE, enable_prefix_caching=False)


def _steps(prompt: int, output: int) -> list[int]:
    """Run one request, and return the number of output tokens that it has after each step."""
    from tracellm.engine.sample.sampling_params import SamplingParams

    engine = _engine().llm_engine
    params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    engine.add_request("0", {"prompt_token_ids": [5] * prompt}, params)
    counts = []
    while engine.has_unfinished_requests():
        made = engine.step()
        counts.append(len(made[0].outputs[0].token_ids) if made else 0)
    return counts


class _FirstToken(Prediction):
    """Step of the first token of a long prompt."""

    name = "first-token"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        return {"prompt": random.randint(2 * _BUDGET, 5 * _BUDGET)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"提示词有 {case['prompt']} 个 token，每个 step 最多计算 {_BUDGET} 个。"
                "第几个 step 得到第一个输出 token？（整数）"
            )
        return (
            f"A prompt has {case['prompt']} tokens, and a step computes at most {_BUDGET}. Which step gives the first "
            "output token? (an integer)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        return _steps(case["prompt"], 1).index(1) + 1

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        prompt, rest = case["prompt"], case["prompt"] % _BUDGET or _BUDGET
        if lang == "zh":
            return (
                f"{prompt} 个 token 按每个 step {_BUDGET} 个计算，最后一个 step 计算 {rest} 个，并给出第一个输出 token"
            )
        return f"{prompt} tokens are computed {_BUDGET} at a time; the step with the last {rest} gives the first token"


class _NumSteps(Prediction):
    """Number of steps of a request."""

    name = "number-of-steps"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        return {"prompt": random.randint(5, _BUDGET), "output": random.randint(6, 20)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        prompt, output = case["prompt"], case["output"]
        if lang == "zh":
            return (
                f"一个请求有 {prompt} 个提示词 token，生成 {output} 个 token；token 预算为 {_BUDGET}。"
                "共需多少个 step？（整数）"
            )
        return (
            f"One request has {prompt} prompt tokens and makes {output} tokens; the token budget is {_BUDGET}. How "
            "many steps does it take? (an integer)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        return len(_steps(case["prompt"], case["output"]))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        prompt, output = case["prompt"], case["output"]
        if lang == "zh":
            return f"第一个 step 计算全部 {prompt} 个提示词 token 并给出第一个 token，其余 {output - 1} 个各需一个 step"
        return (
            f"the first step computes all {prompt} prompt tokens and gives a token; the other {output - 1} take a step "
            "each"
        )


class _Blocks(Prediction):
    """Number of KV cache blocks of a request at its end."""

    name = "blocks-at-the-end"

    def make(self, random: Random) -> Any:
        """See `Prediction`. The last token decides about a block in half of the cases."""
        output = random.randint(4, 12)
        total = random.choice((_BLOCK_SIZE * 2 + 1, _BLOCK_SIZE * 3 + 1, random.randint(24, 60)))
        return {"prompt": total - output, "output": output}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        prompt, output = case["prompt"], case["output"]
        if lang == "zh":
            return (
                f"一个请求有 {prompt} 个提示词 token，生成 {output} 个 token；每块 {_BLOCK_SIZE} 个 token。"
                "在最后一个 step 中它有多少个块？（整数）"
            )
        return (
            f"One request has {prompt} prompt tokens and makes {output} tokens; a block holds {_BLOCK_SIZE}. How many "
            "blocks does it have in its last step? (an integer)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`. The engine computes all tokens but the last, which no later step needs."""
        return -(-self._computed(case) // _BLOCK_SIZE)

    def _computed(self, case: Any) -> int:
        """Return the number of tokens whose keys and values the engine computes."""
        made = [count for count in _steps(case["prompt"], case["output"]) if count]
        return int(case["prompt"]) + len(made) - 1

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        computed = self._computed(case)
        if lang == "zh":
            return f"最后生成的 token 不再计算，因此有 {computed} 个 token 的键和值，每块 {_BLOCK_SIZE} 个"
        return f"the token made last is not computed any more, so {computed} tokens have keys and values, 16 a block"


PREDICTIONS = (_FirstToken(), _NumSteps(), _Blocks())

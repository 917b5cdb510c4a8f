"""Predictions of lab 2: a norm of a multiple, the partner of a dimension, a score that depends on a distance."""

from random import Random
from typing import Any

from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


class NormOfAMultiple(Prediction):
    """A norm removes the length of a vector."""

    name = "norm-of-a-multiple"

    def make(self, random: Random) -> Any:
        """Return a vector of two numbers and a factor."""
        return {"x": random.sample(range(2, 10), 2), "factor": random.randint(10, 90)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        x, factor = case["x"], case["factor"]
        first = _norm(x)
        if lang == "zh":
            return (
                f"x = {x}，权重全为 1，epsilon 可忽略时，rms_norm(x) 的第一个数是 {first}。x 乘以 {factor} 之后，"
                "这个数是多少？（两位小数，例如 1.00）"
            )
        return (
            f"With x = {x}, weights of 1 and a negligible epsilon, the first number of rms_norm(x) is {first}. Which "
            f"number is it after x is multiplied by {factor}? (two decimals, such as 1.00)"
        )

    def answer(self, case: Any) -> str:
        """See `Prediction`."""
        return _norm([case["factor"] * one for one in case["x"]])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        factor, answer = case["factor"], self.answer(case)
        if lang == "zh":
            return f"均方根也变为原来的 {factor} 倍，相除后抵消：仍是 {answer}。"
        return f"The root mean square is {factor} times as large too, and the quotient stays {answer}."


def _norm(x: list[int]) -> str:
    import torch

    from tracellm.engine.model_executor.ops.torch_ops import TorchOps

    first = TorchOps().rms_norm(torch.tensor([x], dtype=torch.float32), torch.ones(len(x)), 1e-9)[0, 0]
    return f"{float(first):.2f}"


class PartnerOfADimension(Prediction):
    """Dimensions are rotated in pairs, half a head apart."""

    name = "partner-of-a-dimension"

    def make(self, random: Random) -> Any:
        """Return a head size and a dimension."""
        head_size = random.choice((64, 80, 96, 128))
        return {"head_size": head_size, "dimension": random.randrange(head_size)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, dimension = case["head_size"], case["dimension"]
        if lang == "zh":
            return f"一个头有 {size} 维（从 0 编号）。旋转位置编码把第 {dimension} 维与哪一维一起旋转？（一个整数）"
        return (
            f"A head has {size} dimensions, from 0. Together with which one does the rotary embedding rotate dimension "
            f"{dimension}? (a whole number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`. The partner is what a unit vector is rotated into."""
        import torch

        unit = torch.zeros(1, 1, case["head_size"])
        unit[..., case["dimension"]] = 1.0
        rotated = _rotate(unit, [1])[0, 0]
        rotated[case["dimension"]] = 0.0
        return int(rotated.abs().argmax())

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        half, dimension, answer = case["head_size"] // 2, case["dimension"], self.answer(case)
        if lang == "zh":
            return f"半个头是 {half} 维：第 {dimension} 维与相隔 {half} 的第 {answer} 维成对。"
        return f"Half a head is {half} dimensions: {dimension} is paired with {answer}, which is {half} away."


class ScoreOfADistance(Prediction):
    """The score of a query with a key depends on the distance of their positions only."""

    name = "score-of-a-distance"

    def make(self, random: Random) -> Any:
        """Return the positions of a query and a key, and another position of the query."""
        key = random.randint(3, 30)
        query = key + random.randint(2, 9)
        return {"query": query, "key": key, "moved": query + random.randint(11, 40), "seed": random.randrange(1000)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"位置 {case['query']} 的 query 与位置 {case['key']} 的 key 有某个注意力分数。"
                f"同样的 query 向量移到位置 {case['moved']} 后，同样的 key 向量在哪个位置时分数不变？（一个整数）"
            )
        return (
            f"A query at position {case['query']} and a key at position {case['key']} have a certain score. The same "
            f"query vector moves to position {case['moved']}. At which position does the same key vector give the same "
            "score? (a whole number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`. The nearest score of all positions up to the query's."""
        import torch

        from tracellm.lab.tensors import generator

        query, key = torch.randn(2, 1, 1, 64, generator=generator(case["seed"]))
        positions = list(range(case["moved"] + 1))
        score = (_rotate(query, [case["query"]]) * _rotate(key, [case["key"]])).sum()
        keys = _rotate(key.expand(len(positions), 1, 64), positions)
        scores = (keys * _rotate(query, [case["moved"]])).sum(dim=(1, 2))
        return int((scores - score).abs().argmin())

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        distance, answer = case["query"] - case["key"], self.answer(case)
        if lang == "zh":
            return (
                f"分数只取决于距离：{case['query']} - {case['key']} = {distance}，"
                f"而 {case['moved']} - {distance} = {answer}。"
            )
        return (
            f"The score depends on the distance only: {case['query']} - {case['key']} = {distance}, and "
            f"{case['moved']} - {distance} = {answer}."
        )


def _rotate(heads: Any, positions: list[int]) -> Any:
    """Return heads [T, 1, D] rotated by the engine."""
    import torch

    from tracellm.engine.model_executor.ops.torch_ops import TorchOps

    size = heads.shape[-1]
    angles = torch.outer(torch.arange(max(positions) + 1.0), 10000.0 ** -(torch.arange(0, size, 2) / size))
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    return TorchOps().rotary_embedding(torch.tensor(positions), heads, heads, cache)[0]


PREDICTIONS: tuple[Prediction, ...] = (NormOfAMultiple(), PartnerOfADimension(), ScoreOfADistance())

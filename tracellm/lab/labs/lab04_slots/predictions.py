"""Predictions of lab 4."""

from random import Random
from typing import Any

from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


class Slot(Prediction):
    """The slot of a position."""

    name = "slot"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        block_size = random.choice([8, 16])
        blocks = random.sample(range(1, 40), 4)
        return {"block_size": block_size, "blocks": blocks, "position": random.randint(block_size, 4 * block_size - 1)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, blocks, position = case["block_size"], case["blocks"], case["position"]
        if lang == "zh":
            return f"每块 {size} 个 token，请求的块表为 {blocks}。位置 {position} 的槽位是多少？（一个数）"
        return (
            f"Blocks have {size} tokens, and a request's block table is {blocks}. In which slot is position {position}?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        import numpy as np
        import torch

        from tracellm.engine.worker.block_table import BlockTable

        table = BlockTable(case["block_size"], 1, 8, 1, torch.device("cpu"))
        table.add_row(case["blocks"], 0)
        table.compute_slot_mapping(np.array([0]), np.array([case["position"]]))
        return int(table.slot_mapping.np[0])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        index, offset = divmod(case["position"], case["block_size"])
        block, size, slot = case["blocks"][index], case["block_size"], self.answer(case)
        if lang == "zh":
            return (
                f"位置在块表第 {index} 项（从 0 起），块 {block}，偏移 {offset}：{block} * {size} + {offset} = {slot}。"
            )
        return (
            f"The position is offset {offset} of entry {index} (from 0), block {block}: {block} * {size} + {offset} = "
            f"{slot}."
        )


class Rows(Prediction):
    """The rows of a batch after some requests left and one joined."""

    name = "rows"

    def make(self, random: Random) -> Any:
        """See `Prediction`. The two that leave are not the last."""
        names = random.sample("abcdefghk", 6)
        return {"rows": names[:5], "leave": random.sample(names[:4], 2), "joins": names[5]}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        rows, (one, other), new = "".join(case["rows"]), case["leave"], case["joins"]
        if lang == "zh":
            return (
                f"批次的第 0 到 4 行是请求 {'、'.join(rows)}。一步之前，{one} 和 {other} 结束，{new} 加入，"
                f"然后批次被压紧（condense）。现在各行是哪些请求？（按行写出字母，例如 {rows[:4]}）"
            )
        return (
            f"Rows 0 to 4 of a batch are the requests {', '.join(rows)}. Before a step, {one} and {other} end, {new} "
            "joins, and the batch is condensed. Which requests are in the rows now? (letters by row, such as "
            f"{rows[:4]})"
        )

    def answer(self, case: Any) -> str:
        """See `Prediction`."""
        import torch

        from tracellm.engine.sample.sampling_params import SamplingParams
        from tracellm.engine.worker.gpu_input_batch import CachedRequestState, InputBatch

        batch = InputBatch(8, 16, 16, [8], 16, torch.device("cpu"))
        for name in case["rows"]:
            batch.add_request(CachedRequestState(name, [1], SamplingParams(), None, ([1],), 0))
        for name in case["leave"]:
            batch.remove_request(name)
        batch.add_request(CachedRequestState(case["joins"], [1], SamplingParams(), None, ([1],), 0))
        batch.condense()
        return "".join(batch.req_ids)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        first, second = sorted(case["rows"].index(name) for name in case["leave"])
        last, new, rows = case["rows"][4], case["joins"], self.answer(case)
        if lang == "zh":
            return f"{new} 取最小的空行 {first}；最后一行的 {last} 移到空行 {second}；其他请求不动：{rows}。"
        return (
            f"{new} takes the first empty row, {first}; {last}, in the last row, moves to the other, {second}; the "
            f"others stay: {rows}."
        )


class LogitsIndex(Prediction):
    """The token of a step from whose logits a row's next token is sampled."""

    name = "logits-index"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        rows = [
            {"computed": random.randint(0, 9), "scheduled": random.choice([1, 1, random.randint(3, 9)])}
            for _ in range(4)
        ]
        return {"rows": rows, "row": random.randint(1, 3)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        rows, row = case["rows"], case["row"]
        scheduled, computed = [one["scheduled"] for one in rows], [one["computed"] for one in rows]
        if lang == "zh":
            return (
                f"四行此前已计算 {computed} 个 token，本步各有 {scheduled} 个。第 {row} 行的下一个 token "
                "由本步第几个 token（从 0 起）的 logits 采样？"
            )
        return (
            f"Four rows have {computed} computed tokens, and {scheduled} tokens in this step. From the logits of which "
            f"token of the step, from 0, is row {row}'s next token sampled?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        from tracellm.lab.labs.lab04_slots.running import run_inputs

        requests = [
            {
                "name": str(row),
                "prompt": [1] * (one["computed"] + one["scheduled"]),
                "output": [],
                "blocks": [1, 2, 3, 4, 5],
                "temperature": 1.0,
                "order": row,
                **one,
            }
            for row, one in enumerate(case["rows"])
        ]
        inputs = run_inputs({"block_size": 4, "graph_sizes": None, "requests": requests})["inputs"]
        return int(inputs["logits_indices"][case["row"]])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        scheduled = [one["scheduled"] for one in case["rows"]][: case["row"] + 1]
        total, parts = sum(scheduled), " + ".join(map(str, scheduled))
        if lang == "zh":
            return (
                f"第 0 到 {case['row']} 行在本步有 {parts} = {total} 个 token，最后一个是 {total - 1}；已计算的不算。"
            )
        return (
            f"Rows 0 to {case['row']} have {parts} = {total} tokens in the step, and the last of them is {total - 1}; "
            "computed tokens do not count."
        )


PREDICTIONS: tuple[Prediction, ...] = (Slot(), Rows(), LogitsIndex())

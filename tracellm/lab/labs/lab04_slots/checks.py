"""Checks of lab 4: block tables, slots, the batch, and the inputs of a step, as exact numbers.

Expected numbers are computed here from the case, request by request, without the engine.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab04_slots.judging import judge_batch, judge_inputs, shorten
from tracellm.lab.labs.lab04_slots.running import (
    Json,
    follow_batch,
    run_batch,
    run_inputs,
    run_rows,
    run_scheduler,
)

__all__ = ["CHECKS"]

_ROWS, _WIDTH = 4, 60
"""Rows of the block tables in the checks of rows, and blocks per row."""


def _blocks(random: Random, count: int) -> list[int]:
    return random.sample(range(1, 100), count)


class _Rows(Check):
    """Operations on the rows of a block table."""

    uses_reference = False
    kinds: ClassVar[tuple[str, ...]] = ()
    length = 8

    def make(self, random: Random) -> Any:
        """See `Check`."""
        operations: list[Json] = []
        rows: dict[int, int] = {}  # blocks of each row in use
        for number in range(self.length):
            kind = self.kinds[number % len(self.kinds)] if rows else "add"
            if kind == "move" and len(rows) == _ROWS:
                del rows[max(rows)]  # its request has ended
            row = random.choice(sorted(rows)) if rows else 0
            if kind == "move":
                to = random.choice([row for row in range(_ROWS) if row not in rows])
                operations.append({"do": "move", "row": row, "to": to})
                rows[to] = rows.pop(row)
            elif kind == "append":
                new = _blocks(random, random.randint(0, 2))
                operations.append({"do": "append", "row": row, "blocks": new})
                rows[row] += len(new)
            else:
                row, new = random.randrange(_ROWS), _blocks(random, random.randint(1, 5))
                operations.append({"do": "add", "row": row, "blocks": new})
                rows[row] = len(new)
        return {"operations": operations}

    def run(self, case: Any) -> Any:
        """Return the rows after each operation."""
        return run_rows(case["operations"], _ROWS, _WIDTH)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the rows in use after each operation."""
        rows: dict[int, list[int]] = {}
        for number, (operation, state) in enumerate(zip(case["operations"], output, strict=True), start=1):
            row, kind = operation["row"], operation["do"]
            if kind == "add":
                rows[row] = operation["blocks"]
            elif kind == "append":
                rows[row] = [*rows.get(row, []), *operation["blocks"]]
            elif row in rows:
                rows[operation["to"]] = rows.pop(row)
            for one, blocks in rows.items():
                if state[one] != blocks:
                    en, zh = _described(operation)
                    return Failure(
                        f"after operation {number} ({en}), row {one} has {len(state[one])} blocks, "
                        f"{shorten(state[one])}; it should have {len(blocks)}, {shorten(blocks)}",
                        f"第 {number} 个操作（{zh}）之后，第 {one} 行有 {len(state[one])} 个块 {shorten(state[one])}，"
                        f"应有 {len(blocks)} 个：{shorten(blocks)}",
                    )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep only some operations, the fewest first, if they make sense alone."""
        operations = case["operations"]
        for count in range(1, len(operations)):
            for kept in combinations(operations, count):
                if _makes_sense(kept):
                    yield {"operations": list(kept)}


def _makes_sense(operations: Sequence[Json]) -> bool:
    """Return whether each operation is on a row in use, and no row is moved onto another's."""
    used: set[int] = set()
    for operation in operations:
        if operation["do"] == "add":
            used.add(operation["row"])
        elif operation["row"] not in used or operation.get("to") in used:
            return False
        elif operation["do"] == "move":
            used = used - {operation["row"]} | {operation["to"]}
    return bool(operations)


def _described(operation: Json) -> tuple[str, str]:
    row = operation["row"]
    if operation["do"] == "move":
        return f"move row {row} to row {operation['to']}", f"把第 {row} 行移到第 {operation['to']} 行"
    if operation["do"] == "append":
        return f"append {operation['blocks']} to row {row}", f"向第 {row} 行追加 {operation['blocks']}"
    return f"add {operation['blocks']} in row {row}", f"在第 {row} 行放入 {operation['blocks']}"


class RowsTakeAndGrow(_Rows):
    """A row takes the blocks of a new request, without those of the one before it, and new blocks follow the old."""

    zh = "一行放入新请求的块，不留前一个请求的块；追加的块接在已有的块之后。"
    kinds: ClassVar = ("add", "append")


class RowsMove(_Rows):
    """A moved row has the same blocks, and the same number of blocks, in its new place."""

    zh = "行移动之后，新位置上的块和块数都与原来相同。"
    kinds: ClassVar = ("add", "append", "move", "append")
    length = 10


class TokensHaveSlots(Check):
    """A token's slot is in the block of its position, at the offset of its position in the block."""

    zh = "token 的槽位在其位置所属的块中，偏移为该位置的块内偏移。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Some tokens are the last of a block, or the first."""
        block_size = random.choice([2, 4, 8, 16])
        tables = [_blocks(random, random.randint(2, 5)) for _ in range(random.randint(2, 4))]
        rows, positions = [], []
        for row, table in enumerate(tables):
            border = random.randint(1, len(table) - 1) * block_size
            start = random.randint(max(0, border - 3), border)
            rows += [row] * 4
            positions += list(range(start, min(start + 4, len(table) * block_size)))
            rows = rows[: len(positions)]
        return {"block_size": block_size, "tables": tables, "rows": rows, "positions": positions}

    def run(self, case: Any) -> Any:
        """Return the slots."""
        import numpy as np
        import torch

        from tracellm.engine.worker.block_table import BlockTable

        table = BlockTable(case["block_size"], len(case["tables"]), 8, 64, torch.device("cpu"))
        for row, blocks in enumerate(case["tables"]):
            table.block_table.np[row, : len(blocks)] = blocks
            table.num_blocks_per_row[row] = len(blocks)
        table.compute_slot_mapping(np.array(case["rows"]), np.array(case["positions"]))
        return table.slot_mapping.np[: len(case["rows"])].tolist()

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compute each slot from its row and position."""
        size = case["block_size"]
        for index, (row, position) in enumerate(zip(case["rows"], case["positions"], strict=True)):
            blocks = case["tables"][row]
            block, offset = blocks[position // size], position % size
            if output[index] != block * size + offset:
                return Failure(
                    f"blocks of {size} tokens: position {position} is offset {offset} of entry {position // size} of "
                    f"row {row}, {blocks}: block {block}, slot {block} * {size} + {offset} = {block * size + offset}; "
                    f"slot_mapping[{index}] is {output[index]}",
                    f"每块 {size} 个 token：位置 {position} 在第 {row} 行 {blocks} 的第 {position // size} 项、"
                    f"偏移 {offset}：块 {block}，槽位 {block} * {size} + {offset} = {block * size + offset}；"
                    f"slot_mapping[{index}] 却为 {output[index]}",
                )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep a single token."""
        if len(case["rows"]) > 1:
            for row, position in zip(case["rows"], case["positions"], strict=True):
                yield case | {"rows": [row], "positions": [position]}


class TheBatchKeepsItsRequests(Check):
    """Each row of the batch is one request, with its tokens, blocks and parameters, whoever joins and leaves."""

    zh = "无论哪些请求加入或离开，批次的每一行都是一个请求，带有它的 token、块和参数。"
    cases = 10
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        names = random.sample("abcdefghijklmnop", 16)
        inside: list[str] = []
        paused: list[str] = []
        steps: list[Json] = []
        for number in range(7):
            remove = [name for name in inside if number and random.random() < 0.35]
            resume = [name for name in paused if random.random() < 0.5]
            kept = [name for name in inside if name not in remove]
            grow = [name for name in kept if random.random() < 0.4]
            add = [names.pop() for _ in range(random.randint(0 if number else 3, 2 if number else 5)) if names]
            inside = kept + add + resume
            paused = [name for name in [*paused, *remove] if name not in resume]
            append = [name for name in inside if random.random() < 0.6]
            steps.append(
                {
                    "remove": remove,
                    "blocks": [[name, _blocks(random, 1)] for name in grow],
                    "add": [self._request(random, name) for name in add],
                    "resume": [[name, _blocks(random, random.randint(1, 3))] for name in resume],
                    "append": [[name, random.randint(4, 60)] for name in random.sample(append, len(append))],
                }
            )
        return {"steps": steps}

    def _request(self, random: Random, name: str) -> Json:
        prompt = [random.randint(4, 60) for _ in range(random.randint(1, 9))]
        return {
            "name": name,
            "prompt": prompt,
            "output": [random.randint(4, 60) for _ in range(random.choice([0, 0, 2]))],
            "computed": random.randint(0, len(prompt) - 1),
            "blocks": _blocks(random, random.randint(1, 4)),
            "temperature": 0.25 + (ord(name) - ord("a")) / 16,
        }

    def run(self, case: Any) -> Any:
        """Return the batch after each step."""
        return run_batch(case["steps"])

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare each row with its request, and see that no request moved without need."""
        before: list[str] = []
        followed = follow_batch(case["steps"])
        for number, ((step, requests), state) in enumerate(zip(followed, output, strict=False), start=1):
            failure = judge_batch(state, requests) or _needless_move(before, state["rows"], step["remove"])
            if failure is not None:
                en, zh = _step_described(step)
                return Failure(f"in step {number} ({en}), {failure.en}", f"第 {number} 步（{zh}）中，{failure.zh}")
            before = state["rows"]
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep only some requests, the fewest first; then leave out single changes."""
        steps = case["steps"]
        names = [new["name"] for step in steps for new in step["add"]]
        for count in range(1, min(3, len(names))):
            for kept in combinations(names, count):
                yield {"steps": [step for step in (_only(step, kept) for step in steps) if any(step.values())]}
        for index, step in enumerate(steps):
            for key, changes in step.items():
                for one in range(len(changes)):
                    less = step | {key: changes[:one] + changes[one + 1 :]}
                    yield {"steps": [*steps[:index], *([less] if any(less.values()) else []), *steps[index + 1 :]]}


def _only(step: Json, names: Sequence[str]) -> Json:
    """Return the part of a step that is about these requests."""
    kept = {key: [one for one in step[key] if one[0] in names] for key in ("blocks", "resume", "append")}
    add = [new for new in step["add"] if new["name"] in names]
    return {"remove": [name for name in step["remove"] if name in names], "add": add, **kept}


def _needless_move(before: list[str], rows: list[str], left: list[str]) -> Failure | None:
    """Return the first request that stayed, but not in its row, although the row still exists; or None."""
    for row, name in enumerate(before[: len(rows)]):
        if name not in left and rows[row] != name:
            return Failure(
                f"request {name} moved from row {row} to row {rows.index(name)}; only those behind the last row move",
                f"请求 {name} 从第 {row} 行移到了第 {rows.index(name)} 行；只有位于最后一行之后的请求才需移动",
            )
    return None


def _step_described(step: Json) -> tuple[str, str]:
    parts = [
        ("removed", "移除", step["remove"]),
        ("added", "加入", [new["name"] for new in step["add"]]),
        ("resumed", "恢复", [name for name, _ in step["resume"]]),
        ("new blocks for", "新块给", [name for name, _ in step["blocks"]]),
        ("new tokens for", "新 token 给", [name for name, _ in step["append"]]),
    ]
    en = "; ".join(f"{en} {', '.join(names)}" for en, _, names in parts if names)
    zh = "；".join(f"{zh} {'、'.join(names)}" for _, zh, names in parts if names)
    return en or "no change", zh or "无变化"


class _Inputs(Check):
    """One step of a batch."""

    uses_reference = False
    decodes_only = False

    def make(self, random: Random) -> Any:
        """See `Check`. The scheduler's order is not that of the rows."""
        block_size, names = random.choice([2, 4, 8]), random.sample("abcdefghij", random.randint(2, 6))
        orders = random.sample(range(len(names)), len(names))
        requests = []
        for name, order in zip(names, orders, strict=True):
            decode = self.decodes_only or (random.random() < 0.5 and order > 0)
            prompt = [random.randint(4, 60) for _ in range(random.randint(3, 20))]
            output = [random.randint(4, 60) for _ in range(random.randint(1, 4))] if decode else []
            computed = len(prompt) + len(output) - 1 if decode else random.randint(0, len(prompt) - 3)
            scheduled = 1 if decode else random.randint(2, len(prompt) - computed)
            requests.append(
                {
                    "name": name,
                    "prompt": prompt,
                    "output": output,
                    "computed": computed,
                    "scheduled": scheduled,
                    "blocks": _blocks(random, -(-(computed + scheduled) // block_size) + random.randint(0, 1)),
                    "temperature": 1.0,
                    "order": order,
                }
            )
        return {"block_size": block_size, "graph_sizes": self._graph_sizes(random), "requests": requests}

    def _graph_sizes(self, random: Random) -> list[int] | None:
        return None

    def run(self, case: Any) -> Any:
        """Return the batch and the inputs."""
        return run_inputs(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the batch, then each token and each row."""
        requests = {
            one["name"]: one | {"tokens": one["prompt"] + one["output"], "num_prompt": len(one["prompt"])}
            for one in case["requests"]
        }
        rows = output["batch"]["rows"]
        return judge_batch(output["batch"], requests) or judge_inputs(
            rows, output["inputs"], requests, case["block_size"], case["graph_sizes"]
        )

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep only some requests, the fewest first."""
        for count in range(1, len(case["requests"])):
            for kept in combinations(case["requests"], count):
                yield case | {"requests": list(kept)}


class MixedStepsAreGathered(_Inputs):
    """The tokens of prompt chunks and decodes follow in the order of the rows, each at its position in its request."""

    zh = "提示词分块与解码的 token 按行的顺序排列，各自位于其请求中的位置。"
    cases = 8


class DecodesArePaddedToAGraph(_Inputs):
    """A step in which all requests decode is padded to the size of a CUDA graph; other steps are not."""

    zh = "所有请求都在解码的步填充到 CUDA 图的大小；其他步不填充。"
    decodes_only = True
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`. Sometimes one request is not decoding."""
        case = super().make(random)
        first = case["requests"][0]
        if random.random() < 0.2:
            first |= {"computed": first["computed"] - 2, "scheduled": 3}
        return case

    def _graph_sizes(self, random: Random) -> list[int] | None:
        return random.choice([[1, 4, 8], [3, 7], [8]])


class RunsOfTheScheduler(Check):
    """In a whole run, with chunks, preemptions and requests that end, every step's inputs are right."""

    zh = "在完整的运行中（含分块、抢占和请求结束），每一步的输入都正确。"
    cases = 8

    def make(self, random: Random) -> Any:
        """See `Check`. The largest request fits into the blocks, and all together often do not."""
        requests: list[Json] = [
            {
                "prompt": [random.randint(4, 60) for _ in range(random.randint(1, 28))],
                "max_tokens": random.randint(1, 12),
            }
            for _ in range(random.randint(4, 7))
        ]
        most = max(len(one["prompt"]) + one["max_tokens"] for one in requests)
        return {
            "block_size": 8,  # the smallest that an engine accepts, but for 1
            "num_blocks": -(-most // 8) + 1 + random.randint(0, 4),
            "budget": random.randint(6, 20),
            "max_num_seqs": random.randint(3, 5),
            "requests": requests,
        }

    def run(self, case: Any) -> Any:
        """Return plan, batch and inputs of each step."""
        return run_scheduler(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare each step with its plan."""
        for number, (step, right) in enumerate(zip(output, expected, strict=False), start=1):
            plan = right["plan"]
            failure = judge_batch(step["batch"], plan) or judge_inputs(
                step["batch"]["rows"], step["inputs"], plan, case["block_size"]
            )
            if failure is not None:
                return Failure(f"step {number}: {failure.en}", f"第 {number} 步：{failure.zh}", number)
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep only some requests, the fewest first; then shorten them."""
        requests = case["requests"]
        for count in range(1, len(requests)):
            for kept in combinations(requests, count):
                yield case | {"requests": list(kept)}
        for index, one in enumerate(requests):
            if one["max_tokens"] > 1:
                less = one | {"max_tokens": one["max_tokens"] - 1}
                yield case | {"requests": [*requests[:index], less, *requests[index + 1 :]]}


CHECKS: tuple[Check, ...] = (
    RowsTakeAndGrow(),
    RowsMove(),
    TokensHaveSlots(),
    TheBatchKeepsItsRequests(),
    MixedStepsAreGathered(),
    DecodesArePaddedToAGraph(),
    RunsOfTheScheduler(),
)

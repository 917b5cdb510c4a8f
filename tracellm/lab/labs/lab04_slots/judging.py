"""Judges the state of a batch and the inputs of a step, by the requests that they must hold.

The order of the rows is the batch's own: any row may hold any request, but all that belongs to a row must be of the
same request.
"""

from typing import Any

from tracellm.lab.checks import Failure

__all__ = ["judge_batch", "judge_inputs", "shorten"]

Json = dict[str, Any]


def shorten(values: Any) -> str:
    """Return a list as text, without its middle if it is long."""
    if isinstance(values, list) and len(values) > 14:
        shown = [*map(str, values[:6]), "…", *map(str, values[-6:])]
        return f"[{', '.join(shown)}]"
    return str(values)


def judge_batch(state: Json, requests: dict[str, Json]) -> Failure | None:
    """Return the first fault of a batch that must hold these requests, or None."""
    rows = state["rows"]
    for name in requests:
        if name not in rows:
            return Failure(
                f"request {name} is in no row: the rows are {_names(rows)}",
                f"请求 {name} 不在任何一行：各行为 {_names(rows)}",
            )
    for row, name in enumerate(rows):
        if name not in requests:
            return Failure(
                f"row {row} still is request {name}, which has left the batch",
                f"第 {row} 行仍是请求 {name}，而它已离开批次",
            )
        if rows.index(name) != row:
            return Failure(
                f"rows {rows.index(name)} and {row} are both request {name}",
                f"第 {rows.index(name)} 行和第 {row} 行都是请求 {name}",
            )
    if state["index"] != {name: row for row, name in enumerate(rows)}:
        return Failure(
            f"req_ids is {rows}, but req_id_to_index is {state['index']}",
            f"req_ids 为 {rows}，而 req_id_to_index 为 {state['index']}",
        )
    for row, name in enumerate(rows):
        request = requests[name]
        for key, en, zh in (
            ("tokens", "tokens are", " token 为"),
            ("computed", "number of computed tokens is", "已计算的 token 数为"),
            ("blocks", "blocks are", "块为"),
        ):
            if state[key][row] != request[key]:
                found, right = shorten(state[key][row]), shorten(request[key])
                return Failure(
                    f"row {row} is request {name}, whose {en} {right}; the row has {found}",
                    f"第 {row} 行是请求 {name}，它的{zh} {right}；该行却是 {found}",
                )
    return _judge_sampling(state, requests)


def _judge_sampling(state: Json, requests: dict[str, Json]) -> Failure | None:
    for row, name in enumerate(state["rows"]):
        request = requests[name]
        found = state["temperature"][row] if row < len(state["temperature"]) else None
        if found != request["temperature"]:
            return Failure(
                f"row {row} is request {name} with temperature {request['temperature']}, but is sampled with {found}: "
                "is the row in _changed_rows?",
                f"第 {row} 行是请求 {name}，温度为 {request['temperature']}，采样时却用了 {found}："
                "该行是否在 _changed_rows 中？",
            )
        output = request["tokens"][request["num_prompt"] :]
        found = state["output"][row] if row < len(state["output"]) else None
        if found != output:
            return Failure(
                f"row {row} is request {name}, whose output is {shorten(output)}; the sampler has {shorten(found)}",
                f"第 {row} 行是请求 {name}，其输出为 {shorten(output)}；采样器看到的是 {shorten(found)}",
            )
    return None


def judge_inputs(
    rows: list[str], inputs: Json, requests: dict[str, Json], block_size: int, graph_sizes: list[int] | None = None
) -> Failure | None:
    """Return the first fault of the inputs of a step in which row i is request rows[i], or None."""
    tokens = [
        (name, position)
        for name in rows
        for position in range(requests[name]["computed"], requests[name]["computed"] + requests[name]["scheduled"])
    ]
    for key in ("input_ids", "positions", "slots"):
        if len(inputs[key]) != len(tokens):
            return Failure(
                f"the step has {len(tokens)} tokens, and {key} has {len(inputs[key])}",
                f"本步有 {len(tokens)} 个 token，而 {key} 有 {len(inputs[key])} 个",
            )
    for index, (name, position) in enumerate(tokens):
        if failure := _judge_token(index, rows.index(name), name, position, inputs, requests[name], block_size):
            return failure
    return _judge_rows(rows, inputs, requests) or _judge_padding(rows, len(tokens), inputs, graph_sizes)


def _judge_token(
    index: int, row: int, name: str, position: int, inputs: Json, request: Json, block_size: int
) -> Failure | None:
    en = f"token {index} of the step is at position {position} of request {name} (row {row}, computed: "
    en += f"{request['computed']})"
    zh = f"本步的第 {index} 个 token 是请求 {name}（第 {row} 行，已计算 {request['computed']} 个）的位置 {position}"
    if inputs["positions"][index] != position:
        found = inputs["positions"][index]
        return Failure(f"{en}; positions[{index}] is {found}", f"{zh}；positions[{index}] 却为 {found}")
    token, found = request["tokens"][position], inputs["input_ids"][index]
    if found != token:
        return Failure(
            f"{en}, which is token id {token}; input_ids[{index}] is {found}",
            f"{zh}，其 token id 为 {token}；input_ids[{index}] 却为 {found}",
        )
    block, offset = request["blocks"][position // block_size], position % block_size
    slot, found = block * block_size + offset, inputs["slots"][index]
    if found != slot:
        table = shorten(request["blocks"])
        return Failure(
            f"{en}: entry {position // block_size} of its block table {table} is block {block}, offset {offset}, slot "
            f"{slot}; slot_mapping[{index}] is {found}, in block {found // block_size} at offset {found % block_size}",
            f"{zh}：其块表 {table} 的第 {position // block_size} 项是块 {block}，块内偏移 {offset}，槽位 {slot}；"
            f"slot_mapping[{index}] 却为 {found}，即块 {found // block_size} 的偏移 {found % block_size}",
        )
    return None


def _judge_rows(rows: list[str], inputs: Json, requests: dict[str, Json]) -> Failure | None:
    scheduled = [requests[name]["scheduled"] for name in rows]
    ends = [sum(scheduled[: row + 1]) for row in range(len(rows))]
    lens = [requests[name]["computed"] + requests[name]["scheduled"] for name in rows]
    sampling = [row for row, name in enumerate(rows) if lens[row] == len(requests[name]["tokens"])]
    for key, right, en, zh in (
        ("num_scheduled_tokens", scheduled, "", ""),
        ("query_start_loc", [0, *ends], "", ""),
        ("seq_lens", lens, ": computed and scheduled tokens of each row", "：各行已计算与本步调度的 token 数之和"),
        ("logits_indices", [end - 1 for end in ends], ": the last token of each row", "：各行的最后一个 token"),
        (
            "sampling_rows",
            sampling,
            ": the rows whose tokens are all computed after the step",
            "：本步之后全部 token 都已计算的行",
        ),
    ):
        if inputs[key] != right:
            return Failure(
                f"the rows {_names(rows)} have {scheduled} tokens in this step, so {key} is {right}{en}; "
                f"it is {inputs[key]}",
                f"各行 {_names(rows)} 在本步有 {scheduled} 个 token，因此 {key} 应为 {right}{zh}；实际为 {inputs[key]}",
            )
    return None


def _judge_padding(rows: list[str], num_tokens: int, inputs: Json, graph_sizes: list[int] | None) -> Failure | None:
    decode = num_tokens == len(rows)
    size = min((size for size in graph_sizes or () if size >= len(rows)), default=None) if decode else None
    if inputs["graph_size"] != size:
        return Failure(
            f"{len(rows)} rows with {num_tokens} tokens and graphs of {graph_sizes or 'no'} rows: graph_size is "
            f"{size}; it is {inputs['graph_size']}",
            f"{len(rows)} 行共 {num_tokens} 个 token，图的大小有 {graph_sizes or '（无）'}：graph_size 应为 {size}，"
            f"实际为 {inputs['graph_size']}",
        )
    if size is None:
        return None
    count = size - len(rows)
    none = [0] * count
    for key, right in (
        ("input_ids", none),
        ("positions", none),
        ("query_start_loc", list(range(len(rows) + 1, size + 1))),
        ("seq_lens", [1] * count),
        ("slots", none),
    ):
        if (found := inputs["padding"][key]) != right:
            return Failure(
                f"the graph has {size} rows, {count} of them padding after the {len(rows)} requests: there {key} is "
                f"{right}; it is {found}",
                f"图有 {size} 行，{len(rows)} 个请求之后有 {count} 行填充：填充处的 {key} 应为 {right}，实际为 {found}",
            )
    return None


def _names(rows: list[str]) -> str:
    return ", ".join(rows)

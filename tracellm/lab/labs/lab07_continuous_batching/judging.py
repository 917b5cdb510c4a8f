"""Judges a run of a workload: invariants first, then the decisions of vLLM; also used by lab 8."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tracellm.lab.checks import Failure, first_difference
from tracellm.lab.labs.lab07_continuous_batching.workload import DEFAULTS, MOST_STEPS, Workload

__all__ = ["can_be_explained", "describe_fault", "judge_run"]

State = dict[str, Any]

_PLACES = {"running": ("running list", "运行列表"), "waiting": ("waiting queue", "等待队列")}


def judge_run(case: Workload, states: list[State], expected: list[State], *, vllm: bool) -> Failure | None:
    """Return the first broken invariant or wrong decision of a run.

    Args:
        case: the workload.
        states: the steps of the run.
        expected: the right decisions.
        vllm: True if they were recorded from vLLM, False if the engine made them.
    """
    case = DEFAULTS | case
    for index, state in enumerate(states):
        failure = next(_broken(case, state, states[:index]), None)
        if failure is None and index < len(expected):
            failure = _differs(case, state, expected[index], "vLLM" if vllm else "the engine")
        if failure is None and state["fault"] is not None:
            failure = describe_fault(*state["fault"])
        if failure is not None:
            return _at(failure, case, index)
    return _at_end(case, states, expected)


def can_be_explained(case: Workload) -> bool:
    """Return whether a recorded run with a real model makes the same steps.

    No request ends by one of its tokens, and none is aborted within a step.
    """
    by_length = all(spec.get("ignore_eos", True) and not spec.get("stop_token_ids") for spec in case["requests"])
    return by_length and not any("in_step" in abort for abort in case.get("aborts", []))


def _at(failure: Failure, case: Workload, index: int) -> Failure:
    step = index + 1
    return Failure(
        f"step {step}: {failure.en}", f"第 {step} 步：{failure.zh}", step if can_be_explained(case) else None
    )


def _at_end(case: Workload, states: list[State], expected: list[State]) -> Failure | None:
    last = states[-1] if states else None
    names = [str(case["first_id"] + index) for index in range(len(case["requests"]))]
    unfinished = [name for name in names if last is None or name not in last["ended_after"]]
    if last is None or unfinished:
        number, they = len(states), f"{_requests(unfinished)} {'is' if len(unfinished) == 1 else 'are'} not finished"
        if number >= MOST_STEPS:
            return Failure(
                f"after {number} steps, {they}",
                f"{number} 步之后，请求 {'、'.join(unfinished)} 仍未结束",
            )
        failure = Failure(
            f"nothing is scheduled, and {they}",
            f"没有调度任何请求，而请求 {'、'.join(unfinished)} 尚未结束",
        )
        return _at(failure, case, number - 1)
    if last["free_after"] != case["num_gpu_blocks"] - 1:
        free, all_blocks = last["free_after"], case["num_gpu_blocks"] - 1
        failure = Failure(
            f"all requests have ended, and {free} of {all_blocks} blocks are free: {_leaked(last)[0]}",
            f"所有请求都已结束，但 {all_blocks} 个块中只有 {free} 个空闲：{_leaked(last)[1]}",
        )
        return _at(failure, case, len(states) - 1)
    if len(states) != len(expected):
        return Failure(
            f"the run takes {len(states)} steps; it should take {len(expected)}",
            f"运行用了 {len(states)} 步，应为 {len(expected)} 步",
        )
    return None


def _leaked(state: State) -> tuple[str, str]:
    for name, blocks in state["tables"].items():
        if blocks:
            return f"request {name} still owns blocks {blocks}", f"请求 {name} 仍拥有块 {blocks}"
    return "some have no owner and are not free", "有的块没有所有者，也不空闲"


# -- invariants -------------------------------------------------------------------------------------------------------


def _broken(case: Workload, state: State, before: list[State]) -> Iterator[Failure]:
    """Yield the invariants that a step breaks."""
    yield from _broken_limits(case, state)
    yield from _broken_queues(state)
    yield from _broken_order(case, state, before)
    yield from _broken_blocks(state)
    yield from _broken_tokens(case, state)
    yield from _broken_records(state)


def _broken_limits(case: Workload, state: State) -> Iterator[Failure]:
    budget, most = case["max_num_batched_tokens"], case["max_num_seqs"]
    total, running = sum(state["scheduled"].values()), state["running"]
    if total > budget:
        tokens = ", ".join(f"{count} of request {name}" for name, count in state["scheduled"].items())
        tokens_zh = "、".join(f"请求 {name} 的 {count} 个" for name, count in state["scheduled"].items())
        yield Failure(
            f"{total} tokens are scheduled, and the budget is {budget} ({tokens})",
            f"调度了 {total} 个 token，而预算为 {budget}（{tokens_zh}）",
        )
    if len(running) > most:
        yield Failure(
            f"{_requests(running)} are running: {len(running)}, and max_num_seqs is {most}",
            f"请求 {'、'.join(running)} 在运行，共 {len(running)} 个，而 max_num_seqs 为 {most}",
        )
    for name, count in state["scheduled"].items():
        if count < 1:
            yield Failure(f"request {name} is scheduled with {count} tokens", f"请求 {name} 被调度了 {count} 个 token")


def _broken_queues(state: State) -> Iterator[Failure]:
    queues: list[tuple[str, str, list[str]]] = [
        ("running", "运行", state["running"]),
        ("waiting", "等待", state["waiting"]),
        ("scheduled", "被调度", state["sent"]),
    ]
    for name, zh, names in queues:
        twice = [one for one, count in Counter(names).items() if count > 1]
        if twice:
            yield Failure(f"request {twice[0]} is {name} twice", f"请求 {twice[0]} 同时{zh}了两次")
    for name in state["running"]:
        if name in state["waiting"]:
            yield Failure(f"request {name} is both running and waiting", f"请求 {name} 既在运行又在等待")
    for name in [*state["scheduled"], *state["running"], *state["waiting"]]:
        if name in state["ended"]:
            place, place_zh = _PLACES["running" if name in state["running"] else "waiting"]
            how = "scheduled" if name in state["scheduled"] else f"in the {place}"
            how_zh = "被调度" if name in state["scheduled"] else f"在{place_zh}中"
            yield Failure(f"request {name} has ended and is still {how}", f"请求 {name} 已结束，但仍{how_zh}")
    for name in state["scheduled"]:
        if name not in state["running"]:
            yield Failure(
                f"request {name} is scheduled and not in the running list", f"请求 {name} 被调度，但不在运行列表中"
            )
    for name, queue in state["left"]:
        place, place_zh = _PLACES[queue]
        how, how_zh = ("is aborted", "被中止") if name in state["aborted_after"] else ("has ended", "已结束")
        yield Failure(
            f"after this step request {name} {how}, and it is still in the {place}",
            f"本步之后请求 {name} {how_zh}，却仍在{place_zh}中",
        )
    for name in state["totals"]:
        if name not in state["ended"] and name not in [*state["running"], *state["waiting"]]:
            yield Failure(
                f"request {name} has not ended, and is neither running nor waiting: it is lost",
                f"请求 {name} 尚未结束，却既不在运行也不在等待：它丢失了",
            )


def _broken_order(case: Workload, state: State, before: list[State]) -> Iterator[Failure]:
    """First come, first served: holds for the first start, with the policy fcfs and chunked prefill."""
    if case["policy"] != "fcfs" or not case["enable_chunked_prefill"]:
        return
    started = {name for one in before for name, _ in one["new"]}
    new = [name for name, _ in state["new"]]
    for name in new:
        earlier = [one for one in state["waiting"] if int(one) < int(name) and one not in started]
        if earlier:
            yield Failure(
                f"request {name} starts and request {earlier[0]}, which came first, still waits",
                f"请求 {name} 开始运行，而更早到达的请求 {earlier[0]} 仍在等待",
            )


def _broken_blocks(state: State) -> Iterator[Failure]:
    owners: dict[int, list[str]] = {}
    for name, blocks in state["tables"].items():
        for block in blocks:
            owners.setdefault(block, []).append(name)
            if name in state["ended"]:
                yield Failure(
                    f"block {block} is leaked: its owner, request {name}, has ended",
                    f"块 {block} 泄漏了：其所有者请求 {name} 已结束",
                )
            if name in state["waiting"]:
                yield Failure(
                    f"request {name} waits and still owns block {block}", f"请求 {name} 在等待，却仍拥有块 {block}"
                )
    for block, references in enumerate(state["references"]):
        names = owners.get(block, [])
        if block and references != len(names):
            yield Failure(
                f"block {block} has a reference count of {references} and {len(names)} owners",
                f"块 {block} 的引用计数为 {references}，所有者有 {len(names)} 个",
            )


def _broken_tokens(case: Workload, state: State) -> Iterator[Failure]:
    if state["fault"] is not None and state["fault"][0] != "tokens":  # the decisions explain those better
        yield describe_fault(*state["fault"])
    for name, (computed, total) in state["totals"].items():
        if computed > total:
            yield Failure(
                f"request {name} has {total} tokens, and {computed} count as computed",
                f"请求 {name} 有 {total} 个 token，却有 {computed} 个算作已计算",
            )
    for name, (tokens, num_prompt) in state["generated"].items():
        limit = min(
            case["requests"][int(name) - case["first_id"]].get("max_tokens", 4), case["max_model_len"] - num_prompt
        )
        if len(tokens) > limit:
            yield Failure(
                f"request {name} has generated {len(tokens)} tokens; its limit is {limit}",
                f"请求 {name} 已生成 {len(tokens)} 个 token，其上限为 {limit}",
            )
        sampled = state["sampled"].get(name)
        if sampled and tokens[-1:] != sampled:
            yield Failure(
                f"the model generated token {sampled[0]} for request {name}, and the request's outputs are {tokens}",
                f"模型为请求 {name} 生成了 token {sampled[0]}，而该请求的输出为 {tokens}",
            )


def _broken_records(state: State) -> Iterator[Failure]:
    """Judge what the scheduler remembers: statuses, `requests`, `prev_step_scheduled_req_ids`."""
    for name, status in state["statuses"].items():
        if status != "RUNNING":
            yield Failure(
                f"request {name} is in the running list, and its status is {status} instead of RUNNING",
                f"请求 {name} 在运行列表中，其状态却为 {status}，应为 RUNNING",
            )
    if state["previous"] != sorted(state["scheduled"]):
        yield Failure(
            f"prev_step_scheduled_req_ids has {state['previous']}; the scheduled ids are {sorted(state['scheduled'])}",
            f"prev_step_scheduled_req_ids 中有 {state['previous']}；被调度的 id 为 {sorted(state['scheduled'])}",
        )
    for name, status in state["aborted_after"].items():
        if status != "FINISHED_ABORTED":
            yield Failure(
                f"after this step request {name} is aborted, and its status is {status} instead of FINISHED_ABORTED",
                f"本步之后请求 {name} 被中止，其状态却为 {status}，应为 FINISHED_ABORTED",
            )
    for name in state["known_after"]:
        if name in state["ended_after"]:
            yield Failure(
                f"after this step request {name} has ended, and it is still in self.requests",
                f"本步之后请求 {name} 已结束，却仍在 self.requests 中",
            )


def describe_fault(kind: str, name: str, *numbers: Any) -> Failure:
    """Describe a fault that the worker found."""
    if kind == "unknown":
        return Failure(
            f"request {name} is scheduled as a known request, and its data was never sent",
            f"请求 {name} 按已知请求调度，但从未发送过它的数据",
        )
    if kind == "beyond":
        count, left = numbers
        return Failure(
            f"{_tokens(count)} of request {name} scheduled, and {left} left to compute",
            f"为请求 {name} 调度了 {count} 个 token，而待计算的只有 {left} 个",
        )
    if kind == "no_slot":
        position, blocks = numbers
        return Failure(
            f"token {position} of request {name} has no slot: the request has {blocks} blocks",
            f"请求 {name} 的 token {position} 没有槽位：该请求有 {blocks} 个块",
        )
    if kind == "tokens":
        sent, right = numbers
        return Failure(
            f"request {name} is resumed, and all_token_ids has {sent} of its {right} tokens",
            f"请求 {name} 恢复运行，all_token_ids 中有它的 {right} 个 token 中的 {sent} 个",
        )
    position, slot, block, writer = numbers
    holds = "nothing" if writer is None else f"token {writer[1]} of request {writer[0]}"
    holds_zh = "没有内容" if writer is None else f"是请求 {writer[0]} 的 token {writer[1]}"
    if writer == [name, position]:
        holds, holds_zh = "a value computed from wrong tokens", "是由错误的 token 算出的值"
    return Failure(
        f"request {name} attends to its token {position} in slot {slot} (block {block}), which holds {holds}",
        f"请求 {name} 关注槽位 {slot}（块 {block}）中它的 token {position}，而那里{holds_zh}",
    )


# -- decisions --------------------------------------------------------------------------------------------------------


def _differs(case: Workload, state: State, right: State, who: str) -> Failure | None:
    """Return the first decision that differs, the most explanatory first."""
    who_zh = "引擎" if who == "the engine" else f"{who} "
    names = list(dict.fromkeys([*right["scheduled"], *state["scheduled"]]))
    other = [name for name in names if state["scheduled"].get(name) != right["scheduled"].get(name)]
    if other:
        (theirs, theirs_zh), (yours, yours_zh) = (_acts(one, other) for one in (right, state))
        why, why_zh = _limits(case, right)
        return Failure(
            f"{who} {theirs} ({why}); this scheduler {yours}", f"{who_zh}{theirs_zh}（{why_zh}）；此调度器{yours_zh}"
        )
    for key in ("new", "resumed"):
        wrong = [(name, count) for name, count in right[key] if [name, count] not in state[key]]
        if wrong:
            name, count = wrong[0]
            start = dict(state[key]).get(name)
            if start is None:
                return Failure(
                    f"request {name} is not sent as {key}; {who} sends it with {count} computed tokens",
                    f"请求 {name} 没有作为 {key} 发送；{who_zh}发送了它，已计算 token 数为 {count}",
                )
            return Failure(
                f"request {name} starts with {start} computed tokens; {who} found {count} in the prefix cache",
                f"请求 {name} 从 {start} 个已计算 token 开始；{who_zh}在前缀缓存中找到了 {count} 个",
            )
    for name, blocks in right["blocks"].items():
        got = state["blocks"].get(name, [])
        if got != blocks:
            by_order = len(got) == len(blocks) and state["free"] == right["free"]  # the free queue has another order
            cause = " (blocks are freed in the order of num_scheduled_tokens, the last block of a request first)"
            cause_zh = "（块按 num_scheduled_tokens 的顺序释放，每个请求先释放最后一块）"
            return Failure(
                f"request {name} got blocks {got}; {who} gave it {blocks}{cause * by_order}",
                f"请求 {name} 得到块 {got}；{who_zh}给它的是 {blocks}{cause_zh * by_order}",
            )
    for key, (place, place_zh) in _PLACES.items():
        if state[key] != right[key]:
            return Failure(
                f"the {place} is {state[key]}; in {who} it is {right[key]}",
                f"{place_zh}为 {state[key]}；{who_zh}的是 {right[key]}",
            )
    for name in sorted(set(right["finished"]) ^ set(state["finished"])):
        inside = name in state["finished"]
        return Failure(
            f"finished_req_ids {'reports' if inside else 'does not report'} request {name}, which has "
            f"{'not ' if inside else ''}ended since the previous step",
            f"finished_req_ids {'报告了' if inside else '没有报告'}请求 {name}，它在上一步之后"
            f"{'并未' if inside else '已经'}结束",
        )
    return _outputs_differ(state, right, who, who_zh) or first_difference(
        {key: state[key] for key in ("computed", "free")}, {key: right[key] for key in ("computed", "free")}
    )


def _acts(state: State, names: list[str]) -> tuple[str, str]:
    """Describe the treatment of some requests in a step."""
    given = [name for name in names if name in state["scheduled"]]
    waits = [name for name in names if name not in state["scheduled"]]
    parts, parts_zh = [], []
    if given:
        parts.append("scheduled " + ", ".join(f"{_tokens(state['scheduled'][one])} of request {one}" for one in given))
        parts_zh.append("、".join(f"调度了请求 {one} 的 {state['scheduled'][one]} 个 token" for one in given))
    if waits:
        parts.append(f"let {_requests(waits)} wait")
        parts_zh.append(f"让请求 {'、'.join(waits)} 等待")
    return " and ".join(parts), "，并".join(parts_zh)


def _limits(case: Workload, state: State) -> tuple[str, str]:
    """Describe the limits of a step, those that are reached first."""
    used, budget = sum(state["scheduled"].values()), case["max_num_batched_tokens"]
    if used == budget:
        return f"the budget of {budget} is used up", f"{budget} 的预算已用完"
    if state["waiting"] and len(state["running"]) == case["max_num_seqs"]:
        most = case["max_num_seqs"]
        return f"{most} requests run, the most allowed", f"已有 {most} 个请求在运行，达到上限"
    return (
        f"{used} of {budget} tokens used, {len(state['running'])} running, free blocks: {state['free']}",
        f"{budget} 个 token 用了 {used} 个，{len(state['running'])} 个请求在运行，{state['free']} 个块空闲",
    )


def _outputs_differ(state: State, right: State, who: str, who_zh: str) -> Failure | None:
    theirs, yours = ({one[0]: one[1:] for one in side["outputs"]} for side in (right, state))
    for name in dict.fromkeys([*theirs, *yours]):
        if yours.get(name) != theirs.get(name):
            (mine, mine_zh), (its, its_zh) = (_output(side.get(name)) for side in (yours, theirs))
            return Failure(
                f"the output of request {name} is {mine}; in {who} it is {its}",
                f"请求 {name} 的输出为{mine_zh}；{who_zh}的是{its_zh}",
            )
    return None


def _output(output: list[Any] | None) -> tuple[str, str]:
    if output is None:
        return "none", "空"
    tokens, finish, stop, cached = output
    ends = f", finished by {finish}" + (f" ({stop})" if stop is not None else "") if finish else ", not finished"
    ends_zh = f"，以 {finish} 结束" + (f"（{stop}）" if stop is not None else "") if finish else "，未结束"
    return f"{tokens}{ends}, {cached} cached", f"{tokens}{ends_zh}，缓存命中 {cached}"


def _tokens(count: int) -> str:
    return f"{count} token{'s' * (count != 1)}"


def _requests(names: list[str]) -> str:
    """Write "request 1", or "requests 1, 2 and 3"."""
    if len(names) == 1:
        return f"request {names[0]}"
    return f"requests {', '.join(names[:-1])} and {names[-1]}"

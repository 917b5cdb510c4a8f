"""Checks of lab 11: runs with steps in flight, compared with the plain scheduler's; stand_in.py has the fake model.

After each step the state of the requests is recorded. A run ends when no request and no step is left.
"""

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab11_overlap.stand_in import (
    BLOCK,
    Model,
    Problem,
    make_core,
    make_request,
    make_scheduler,
)

__all__ = ["CHECKS"]

_MOST_STEPS = 400


# -- runs --------------------------------------------------------------------------------------------------------------


class _Loop:
    """The loop of the engine core, with any number of steps in flight."""

    def __init__(self, settings: dict[str, Any], model: Model, ahead: int, asynchronous: bool) -> None:
        self.scheduler = make_scheduler(settings, asynchronous)
        self._model, self._ahead = model, ahead
        self._queue: deque[tuple[Any, Any]] = deque()

    def step(self) -> dict[int, Any]:
        """Launch a step, and process the oldest one if enough are in flight."""
        if self.scheduler.has_requests():
            step = self.scheduler.schedule()
            self._queue.append((step, self._model.execute(step)))
            if step.num_scheduled_tokens and len(self._queue) < self._ahead:
                return {}
        if not self._queue:
            return {}
        step, result = self._queue.popleft()
        self._model.finish(result)
        outputs: dict[int, Any] = self.scheduler.update_from_output(step, result)
        return outputs

    def interrupt(self) -> None:
        """Drop the steps in flight."""
        self._queue.clear()

    def has_work(self) -> bool:
        """Return whether a step has anything to do."""
        return self.scheduler.has_requests() or bool(self._queue)


class _Core:
    """The engine core itself."""

    def __init__(self, settings: dict[str, Any], model: Model, ahead: int) -> None:
        self._core = make_core(settings, model, ahead)
        self.scheduler = self._core.scheduler

    def step(self) -> dict[int, Any]:
        """Run one step."""
        return self._core.step_fn()[0] or {}

    def interrupt(self) -> None:
        """Drop the steps in flight, as an error in a step does."""
        self._core.batch_queue.clear()

    def has_work(self) -> bool:
        """Return whether a step has anything to do."""
        return bool(self._core.has_work())


class _Run:
    """A run of a case: its requests, what their clients got, and the state after each step."""

    def __init__(self, case: dict[str, Any], asynchronous: bool, core: bool) -> None:
        self._case, self._requests = case, case["requests"]
        settings = case["settings"]
        self.model = Model(bool(case.get("fails")))
        self.engine: Any = (
            _Core(settings, self.model, case["ahead"])
            if core
            else _Loop(settings, self.model, case["ahead"] if asynchronous else 1, asynchronous)
        )
        _check_caching(self.engine.scheduler.kv_cache_manager)
        self.steps: list[dict[str, Any]] = []
        self.got: dict[str, list[Any]] = {}
        """Tokens and the end of each request; the name has an apostrophe if its id was used before."""
        self._name: dict[str, str] = {}
        self._all: dict[str, Any] = {}
        self.problem: list[Any] | None = None

    def go(self) -> dict[str, Any]:
        """Run to the end, and return what happened as plain data."""
        try:
            while self.problem is None and (self._coming() or self._name or self.engine.has_work()):
                if len(self.steps) == _MOST_STEPS:
                    self.problem = ["endless", sorted(self._name)]
                else:
                    self._step()
        except Problem as problem:
            self.problem = problem.values
        scheduler = self.engine.scheduler
        return {
            "steps": self.steps,
            "got": self.got,
            "problem": self.problem,
            "log": self.model.log,
            "used": self._case["settings"]["num_blocks"]
            - 1
            - scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "cached": {name: self._cached(request) for name, request in self._all.items()},
        }

    def _coming(self) -> bool:
        return any(one["at"] >= len(self.steps) for one in self._requests)

    def _step(self) -> None:
        number = len(self.steps)
        if number == self._case.get("interrupt"):
            self.engine.interrupt()
            self.model.in_flight.clear()
            for request_id in list(self._name):
                self._leave(request_id, "interrupted")
                if self._requests[int(request_id)].get("again"):
                    self._add(request_id)
        for index, one in enumerate(self._requests):
            if one["at"] == number:
                self._add(str(index))
        launched = len(self.model.scheduled)
        outputs = self.engine.step()
        received = [output for of_client in outputs.values() for output in of_client.outputs]
        self.steps.append(
            {
                "scheduled": self.model.scheduled[launched] if launched < len(self.model.scheduled) else {},
                "received": {output.request_id: list(output.new_token_ids) for output in received},
            }
        )
        for output in received:
            self._receive(output)
        self.steps[-1]["state"] = {
            request_id: {
                "tokens": request.num_tokens,
                "computed": request.num_computed_tokens,
                "placeholders": request.num_output_placeholders,
                "in_flight": self.model.count_in_flight(request_id),
            }
            for request_id, request in self.engine.scheduler.requests.items()
        }
        self.problem = self.problem or self._stays()

    def _stays(self) -> list[Any] | None:
        """Return the problem of a request that has ended and is still in a queue."""
        scheduler = self.engine.scheduler
        places = {"running": scheduler.running, "waiting": scheduler.waiting, "requests": scheduler.requests.values()}
        for place, requests in places.items():
            for request in requests:
                if request.is_finished():
                    return ["stays", request.request_id, str(request.status), place]
        return None

    def _add(self, request_id: str) -> None:
        one = self._requests[int(request_id)]
        name = request_id
        while name in self.got:
            name += "'"
        self._name[request_id], self.got[name] = name, []
        self._all[name] = make_request(request_id, one, self._case["settings"]["caching"])
        self.engine.scheduler.add_request(self._all[name])
        if one.get("gives_up") == 0 and name == request_id:
            self._give_up(request_id)

    def _receive(self, output: Any) -> None:
        request_id = output.request_id
        name = self._name.get(request_id)
        if name is None:
            self.problem = ["ended", request_id, list(output.new_token_ids)]
            return
        got, one = self.got[name], self._requests[int(request_id)]
        got += output.new_token_ids
        if output.finish_reason is not None:
            got.append(str(output.finish_reason))
            del self._name[request_id]
            self.model.forget(request_id)
        elif len(got) == one.get("gives_up") and name == request_id:
            self._give_up(request_id)

    def _give_up(self, request_id: str) -> None:
        self._leave(request_id, "gave up")
        if self._requests[int(request_id)].get("again"):
            self._add(request_id)

    def _leave(self, request_id: str, why: str) -> None:
        from tracellm.engine.core.request import RequestStatus

        self.engine.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self.got[self._name.pop(request_id)].append(why)
        self.model.forget(request_id)

    def _cached(self, request: Any) -> int:
        """Return how many of the request's full blocks the prefix cache has."""
        pool = self.engine.scheduler.kv_cache_manager.block_pool
        return sum(pool.get_cached_block(block_hash, [0]) is not None for block_hash in request.block_hashes)


def _check_caching(manager: Any) -> None:
    """Make the manager raise `Problem` when it is to cache tokens that are not known, or have no block."""
    cache_blocks, blocks_of = manager.cache_blocks, manager.coordinator.single_type_managers[0].req_to_blocks

    def checked(request: Any, num_computed_tokens: int) -> None:
        if num_computed_tokens > request.num_tokens:
            raise Problem("unknown", request.request_id, num_computed_tokens, request.num_tokens)
        if num_computed_tokens // BLOCK > (num_blocks := len(blocks_of.get(request.request_id, ()))):
            raise Problem("unowned", request.request_id, num_computed_tokens, num_blocks)
        cache_blocks(request, num_computed_tokens)

    manager.cache_blocks = checked


# -- verdicts ----------------------------------------------------------------------------------------------------------


def _broken(output: dict[str, Any]) -> Failure | None:
    """Return the first rule that a run breaks, whatever its workload."""
    if output["problem"] is not None and output["problem"][0] == "stays":
        return _problem(output)
    for number, step in enumerate(output["steps"], start=1):
        for request_id, state in step["state"].items():
            placeholders, in_flight = state["placeholders"], state["in_flight"]
            if placeholders != in_flight:
                return Failure(
                    f"after step {number}, request {request_id} has {_count(placeholders, 'placeholder')}, "
                    f"and {_count(in_flight, 'token')} in flight",
                    f"第 {number} 步之后，请求 {request_id} 有 {placeholders} 个占位符，"
                    f"而在途的 token 有 {in_flight} 个",
                )
    if output["problem"] is not None:
        return _problem(output)
    if output["used"]:
        return Failure(
            f"all requests have ended, and {output['used']} blocks are not free",
            f"所有请求都已结束，但有 {output['used']} 个块没有释放",
        )
    return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _problem(output: dict[str, Any]) -> Failure:
    number = len(output["steps"]) + 1
    kind, *values = output["problem"]
    if kind == "endless" and not values[0]:
        return Failure(
            f"all requests have ended, and after {_MOST_STEPS} steps one is still in flight",
            f"所有请求都已结束，但 {_MOST_STEPS} 步之后仍有一步在途",
        )
    if kind == "endless":
        return Failure(
            f"after {_MOST_STEPS} steps, requests {values[0]} have not ended",
            f"{_MOST_STEPS} 步之后，请求 {values[0]} 仍未结束",
        )
    if kind == "ended":
        return Failure(
            f"step {number - 1}: request {values[0]} has ended, and its client gets the token {values[1]}",
            f"第 {number - 1} 步：请求 {values[0]} 已经结束，客户端却收到了 token {values[1]}",
        )
    request_id, one, other = values
    if kind == "stays":
        return Failure(
            f"after step {number - 1}, request {request_id} has ended ({one}), and is still in `{other}`",
            f"第 {number - 1} 步之后，请求 {request_id} 已经结束（{one}），却仍在 `{other}` 中",
        )
    if kind == "unknown":
        return Failure(
            f"step {number}: the first {one} tokens of request {request_id} are to be cached; {other} are known",
            f"第 {number} 步：要缓存请求 {request_id} 的前 {one} 个 token，而已知的只有 {other} 个",
        )
    if kind == "unowned":
        return Failure(
            f"step {number}: the first {one} tokens of request {request_id} are to be cached; "
            f"it has {_count(other, 'block')} of {BLOCK} tokens",
            f"第 {number} 步：要缓存请求 {request_id} 的前 {one} 个 token，"
            f"而它只有 {other} 个块，每块 {BLOCK} 个 token",
        )
    if kind == "start":
        return Failure(
            f"step {number}: request {request_id} is computed from token {one} on (from 0), "
            f"and {other} of its tokens are computed already",
            f"第 {number} 步：请求 {request_id} 从第 {one} 个 token（从 0 起）开始计算，"
            f"而它已有 {other} 个 token 计算过",
        )
    if kind == "beyond":
        return Failure(
            f"step {number}: request {request_id} is to compute its first {one} tokens, "
            f"and it has {other}, those in flight included",
            f"第 {number} 步：请求 {request_id} 要计算前 {one} 个 token，而连同在途的一共只有 {other} 个",
        )
    return Failure(
        f"step {number}: request {request_id} computes its first {one} tokens, "
        f"and has {_count(other, 'block')} of {BLOCK} tokens",
        f"第 {number} 步：请求 {request_id} 计算前 {one} 个 token，却只有 {other} 个块，每块 {BLOCK} 个 token",
    )


def _other_tokens(output: dict[str, Any], plain: dict[str, Any]) -> Failure | None:
    """Return the first request whose client got something else than under the plain scheduler."""
    for name, right in plain["got"].items():
        got = output["got"].get(name, [])
        if got == right or "interrupted" in got or "interrupted" in right:
            continue
        same = next((i for i, (one, other) in enumerate(zip(got, right, strict=False)) if one != other), len(got))
        return Failure(
            f"request {name} gets {_listed(got)}; under the plain scheduler {_listed(right)} "
            f"(the first difference is number {min(same, len(right)) + 1})",
            f"请求 {name} 得到 {_listed(got)}；普通调度器下为 {_listed(right)}"
            f"（从第 {min(same, len(right)) + 1} 个起不同）",
        )
    return None


def _listed(got: list[Any]) -> str:
    return ", ".join(map(str, got)) or "nothing"


class _Runs(Check):
    """Runs whose outputs are those of the plain scheduler."""

    uses_reference = False
    core = False
    """True if the engine core's own loop runs the steps."""

    def run(self, case: Any) -> Any:
        """Return what happened."""
        return _Run(case, True, self.core).go()

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a broken rule, else the first output that differs from the plain scheduler's."""
        return _broken(output) or _other_tokens(output, _Run(case, False, False).go())

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out requests, then shorten them."""
        requests = case["requests"]
        for index in range(len(requests)):
            if len(requests) > 1:
                yield case | {"requests": requests[:index] + requests[index + 1 :]}
        for index, one in enumerate(requests):
            for smaller in (
                {"max_tokens": one["max_tokens"] - 1} if one["max_tokens"] > 1 else None,
                {"prompt": one["prompt"][:-1]} if len(one["prompt"]) > 1 else None,
                {"at": 0} if one["at"] else None,
            ):
                if smaller:
                    yield case | {"requests": [*requests[:index], one | smaller, *requests[index + 1 :]]}


def _settings(random: Random, **more: Any) -> dict[str, Any]:
    return {"num_blocks": 120, "budget": random.randint(16, 40), "max_num_seqs": 4, "caching": True, **more}


def _requests(random: Random, count: int, **more: Any) -> list[dict[str, Any]]:
    """Return requests whose prompts consist of few different tokens, so that some share a prefix."""
    return [
        {
            "at": random.randint(0, 5),
            "prompt": [random.randint(3, 4) for _ in range(random.randint(1, 14))],
            "max_tokens": random.randint(1, 14),
            "stop": False,
        }
        | {name: value() for name, value in more.items()}
        for _ in range(count)
    ]


class SchedulesAhead(_Runs):
    """A step is scheduled before the tokens of the steps in flight are known; each of those has a placeholder."""

    zh = "在途步骤的 token 未知时就调度下一步；每个在途 token 有一个占位符。"
    uses_reference = True
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`. One request, whose prompt may be computed in pieces; with a grammar it waits for its token."""
        requests = _requests(
            random,
            1,
            at=lambda: 0,
            max_tokens=lambda: random.randint(5, 12),
            grammar=lambda: random.random() < 0.4,
        )
        return {
            "settings": _settings(random, budget=random.choice([3, 5, 40])),
            "requests": requests,
            "ahead": random.randint(2, 3),
        }

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the tokens of each step with the reference's too."""
        if output["problem"] is None:
            for number, (step, right) in enumerate(zip(output["steps"], expected["steps"], strict=False), start=1):
                one, other = step["scheduled"].get("0", 0), right["scheduled"].get("0", 0)
                if one != other:
                    before = output["steps"][number - 2]["state"].get("0") if number > 1 else None
                    return Failure(
                        f"{_ahead_en(number, one, other)}{_state_en(before)}",
                        f"{_ahead_zh(number, one, other)}{_state_zh(before)}",
                    )
        return super().judge(case, output, None)


def _ahead_en(number: int, one: int, other: int) -> str:
    return f"step {number} computes {_count(one, 'token')} of request 0; it should compute {other}"


def _ahead_zh(number: int, one: int, other: int) -> str:
    return f"第 {number} 步计算请求 0 的 {one} 个 token，应为 {other} 个"


def _state_en(state: dict[str, int] | None) -> str:
    if state is None:
        return ""
    return (
        f". Before it the request has {_count(state['tokens'], 'token')} and "
        f"{_count(state['placeholders'], 'placeholder')}, {state['computed']} of them computed"
    )


def _state_zh(state: dict[str, int] | None) -> str:
    if state is None:
        return ""
    return f"。此前该请求有 {state['tokens']} 个 token、{state['placeholders']} 个占位符，已计算 {state['computed']} 个"


class TheLastTokenIsForeseen(_Runs):
    """No step is spent on what follows the last token that max_tokens or the model's length allows."""

    zh = "达到 max_tokens 或模型长度上限的最后一个 token 之后，不再为该请求安排步骤。"

    def make(self, random: Random) -> Any:
        """See `Check`. Some requests reach the model's length before max_tokens."""
        settings = _settings(random, budget=60, max_num_seqs=6, max_model_len=random.choice([16, 32]), caching=False)
        return {"settings": settings, "requests": _requests(random, 4), "ahead": random.randint(2, 3)}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Count the tokens that were computed for each request."""
        length = case["settings"]["max_model_len"]
        for index, one in enumerate(case["requests"]):
            num_prompt = len(one["prompt"])
            most = min(num_prompt + one["max_tokens"], length)
            computed = sum(step["scheduled"].get(str(index), 0) for step in output["steps"])
            if output["problem"] is None and computed > most - 1:
                return Failure(
                    f"request {index} ends with {most} tokens (prompt {num_prompt}, max_tokens {one['max_tokens']}, "
                    f"model's length {length}), so {most - 1} are computed; {computed} were",
                    f"请求 {index} 结束时共 {most} 个 token（提示词 {num_prompt}，max_tokens {one['max_tokens']}，"
                    f"模型长度 {length}），应计算 {most - 1} 个，实际计算了 {computed} 个",
                )
        return super().judge(case, output, expected)


class LateTokensAreDropped(_Runs):
    """A request that ended by a stop token or an error gets nothing from the steps that were in flight."""

    zh = "因停止 token 或错误而结束的请求，不再得到在途步骤的 token。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        requests = _requests(random, 5, stop=lambda: random.random() < 0.7, max_tokens=lambda: random.randint(6, 16))
        return {"settings": _settings(random), "requests": requests, "ahead": random.randint(2, 3), "fails": True}


class AbortedRequestsGetNothing(_Runs):
    """A token of an aborted request reaches neither its client nor a new request with the same id."""

    zh = "已中止请求的 token 既不会到达其客户端，也不会到达同一 id 的新请求。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        requests = _requests(
            random,
            5,
            max_tokens=lambda: random.randint(4, 14),
            gives_up=lambda: random.choice([None, 0, 1, 2, 3]),
            again=lambda: random.random() < 0.7,
        )
        return {"settings": _settings(random), "requests": requests, "ahead": random.randint(2, 3)}


class AnInterruptedStepIsForgotten(_Runs):
    """After an interruption, results belong to the steps that were launched since."""

    zh = "中断之后，结果只属于此后启动的步骤。"
    cases = 4

    def make(self, random: Random) -> Any:
        """See `Check`. Before some step those in flight are lost, and all requests; some are sent again."""
        requests = _requests(
            random,
            4,
            at=lambda: random.randint(0, 1),
            max_tokens=lambda: random.randint(8, 14),
            again=lambda: random.random() < 0.7,
        )
        return {"settings": _settings(random), "requests": requests, "ahead": 2, "interrupt": random.randint(2, 4)}


class PreemptedRequestsKeepTheirToken(_Runs):
    """A request that was preempted while its token was in flight gets it, and can end by it."""

    zh = "token 在途时被抢占的请求仍会得到该 token，也可能因此结束。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`. The blocks suffice for one request of maximum length."""
        settings = _settings(random, num_blocks=random.randint(9, 11), caching=random.random() < 0.5, budget=40)
        requests = _requests(
            random,
            5,
            at=lambda: random.randint(0, 2),
            stop=lambda: random.random() < 0.4,
            prompt=lambda: [random.randint(3, 9) for _ in range(random.randint(4, 14))],
            max_tokens=lambda: random.randint(6, 16),
        )
        return {"settings": settings, "requests": requests, "ahead": random.randint(2, 3), "fails": True}


class OnlyKnownTokensAreCached(_Runs):
    """A block enters the prefix cache when its last token is known: what the plain scheduler caches, and no more."""

    zh = "块的最后一个 token 已知时才进入前缀缓存：与普通调度器缓存的内容完全相同。"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`."""
        requests = _requests(random, 4, stop=lambda: random.random() < 0.3, max_tokens=lambda: random.randint(5, 16))
        return {"settings": _settings(random), "requests": requests, "ahead": random.randint(2, 3)}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the number of cached blocks of each request too."""
        if failure := super().judge(case, output, expected):
            return failure
        for name, right in _Run(case, False, False).go()["cached"].items():
            found = output["cached"][name]
            if found != right:
                return Failure(
                    f"at the end the prefix cache has {found} full blocks of request {name}; "
                    f"under the plain scheduler it has {right}",
                    f"结束时前缀缓存中有请求 {name} 的 {found} 个满块；普通调度器下为 {right} 个",
                )
        return None


class TheCoreLaunchesBeforeItWaits(_Runs):
    """The engine core launches the next step before it waits for the oldest one in flight."""

    zh = "引擎核心先启动下一步，再等待最早的在途步骤。"
    uses_reference = True
    core = True
    cases = 4

    def make(self, random: Random) -> Any:
        """See `Check`."""
        requests = _requests(random, 2, at=lambda: random.choice([0, 0, 12]), max_tokens=lambda: random.randint(3, 7))
        return {"settings": _settings(random), "requests": requests, "ahead": random.randint(2, 3)}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the order of launches and waits."""
        if output["problem"] is not None and output["problem"][0] != "endless":
            return _problem(output)
        log, right = output["log"], expected["log"]
        for index in range(max(len(log), len(right))):
            one, other = ([*events, *["end"] * len(log + right)][index] for events in (log, right))
            if one != other:
                before = ", ".join(log[max(0, index - 3) : index]) or "-"
                return Failure(
                    f"with {case['ahead']} steps in flight at most, after [{before}] comes '{one}'; "
                    f"it should be '{other}'",
                    f"最多 {case['ahead']} 个在途步骤，在 [{before}] 之后是“{one}”，应为“{other}”",
                )
        return super().judge(case, output, None)


class AnyWorkloadGivesThePlainOutputs(_Runs):
    """In the engine core, any workload gives the plain scheduler's outputs."""

    zh = "在引擎核心中，任何负载的输出都与普通调度器相同。"
    core = True
    cases = 8

    def make(self, random: Random) -> Any:
        """See `Check`."""
        settings = {
            "num_blocks": random.randint(9, 20),
            "budget": random.randint(4, 40),
            "max_num_seqs": random.randint(1, 4),
            "caching": random.random() < 0.7,
        }
        requests = _requests(
            random,
            random.randint(4, 8),
            at=lambda: random.randint(0, 12),
            stop=lambda: random.random() < 0.5,
            gives_up=lambda: random.choice([None, None, None, 0, 1, 2, 5]),
            again=lambda: random.random() < 0.5,
        )
        return {
            "settings": settings,
            "requests": requests,
            "ahead": random.randint(2, 3),
            "fails": random.random() < 0.5,
        }


CHECKS: tuple[Check, ...] = (
    SchedulesAhead(),
    TheLastTokenIsForeseen(),
    LateTokensAreDropped(),
    AbortedRequestsGetNothing(),
    AnInterruptedStepIsForgotten(),
    PreemptedRequestsKeepTheirToken(),
    OnlyKnownTokensAreCached(),
    TheCoreLaunchesBeforeItWaits(),
    AnyWorkloadGivesThePlainOutputs(),
)

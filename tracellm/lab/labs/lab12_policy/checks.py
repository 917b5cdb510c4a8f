"""Checks of lab 12: rules of any queue, and workloads in virtual time whose figures must be better than those of FCFS.

A threshold lies between the figure of FCFS and that of the engine's own answer to this lab, so it moves with the case.
"""

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab12_policy.workloads import long, measure, medium, run_workload, short

__all__ = ["CHECKS", "Workload", "is_complete", "run_fcfs"]

_MOST_OVERTAKING = 1000


def _make_queue() -> Any:
    from tracellm.lab.labs.lab12_policy.policy import PolicyRequestQueue

    return PolicyRequestQueue()


def _make_request(name: str, one: dict[str, Any]) -> Any:
    from tracellm.engine.core.request import Request
    from tracellm.engine.sample.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=one["max_tokens"])
    return Request(name, [2] * one["prompt"], params, None, one["tenant"], one["at"], priority=one["priority"])


# -- rules of the queue ------------------------------------------------------------------------------------------------


class KeepsWhatItGets(Check):
    """Each request comes out once, in the order that peek, iteration and length showed before."""

    zh = "每个请求恰好取出一次，顺序与此前 peek、遍历和长度所示一致。"
    cases = 8
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Operations on a queue; requests that were popped can be put back."""
        operations: list[list[Any]] = []
        for number in range(random.randint(20, 40)):
            kind = random.choice(["add", "add", "add", "pop", "pop", "put back", "put back several", "remove", "look"])
            if kind == "add":
                name = str(number)
                fields = {
                    "at": float(number),
                    "prompt": random.choice([20, 100, 500]),
                    "max_tokens": random.choice([4, 30]),
                    "tenant": random.randint(0, 2),
                    "priority": random.choice([0, 0, 1]),
                }
                operations.append([kind, name, fields])
            else:
                operations.append([kind, random.randint(0, 99)])
        return {"operations": operations}

    def run(self, case: Any) -> Any:
        """Return what each operation showed, up to the first view that is wrong."""
        queue = _make_queue()
        known: dict[str, Any] = {}
        inside: list[str] = []
        out: list[str] = []
        shown: list[dict[str, Any]] = []
        for kind, *values in [*case["operations"], *[["pop", 0]] * len(case["operations"])]:
            popped = None
            if kind == "add":
                name, fields = values
                known[name] = _make_request(name, fields)
                queue.add_request(known[name])
                inside.append(name)
            elif kind == "pop" and inside:
                popped = str(queue.pop_request().request_id)
                if popped in inside:
                    inside.remove(popped)
                    out.append(popped)
            elif kind == "put back" and out:
                inside.append(out.pop(values[0] % len(out)))
                queue.prepend_request(known[inside[-1]])
            elif kind == "put back several" and len(out) > 1:
                queue.prepend_requests(_several([known[name] for name in out[-2:]]))
                inside += out[-2:]
                del out[-2:]
            elif kind == "remove" and inside:
                name = inside.pop(values[0] % len(inside))
                queue.remove_requests(iter([known[name]]))
            shown.append(self._look(queue, inside) | {"popped": popped})
            if self._seen(shown[-1]):
                return {"shown": shown, "empty": []}
        return {"shown": shown, "empty": [_index_error(queue.pop_request), _index_error(queue.peek_request)]}

    def _look(self, queue: Any, inside: list[str]) -> dict[str, Any]:
        order = [request.request_id for _, request in zip(range(len(inside) + 3), queue, strict=False)]
        return {
            "inside": list(inside),
            "order": order,
            "len": len(queue),
            "true": bool(queue),
            "peek": str(queue.peek_request().request_id) if order else None,
        }

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare each view of the queue with what went in, and each pop with the view before it."""
        before: dict[str, Any] | None = None
        for view in output["shown"]:
            if failure := self._popped(view, before) or self._seen(view):
                return failure
            before = view
        for name, right in zip(("pop_request", "peek_request"), output["empty"], strict=True):
            if not right:
                return Failure(
                    f"{name} raises no IndexError in an empty queue", f"{name} 在空队列中没有引发 IndexError"
                )
        return None

    def _popped(self, view: dict[str, Any], before: dict[str, Any] | None) -> Failure | None:
        if view["popped"] is None or before is None:
            return None
        name, first = view["popped"], before["peek"]
        if name != first:
            return Failure(
                f"peek_request showed request {first}, and pop_request returned {name}",
                f"peek_request 显示请求 {first}，而 pop_request 返回了 {name}",
            )
        if view["order"] == before["order"]:
            return Failure(
                f"pop_request returned request {name}, and it is still in the queue {view['order']}",
                f"pop_request 返回了请求 {name}，而它仍在队列 {view['order']} 中",
            )
        if view["order"] != before["order"][1:]:
            return Failure(
                f"iteration showed {before['order']} before request {name} was popped, and {view['order']} after it",
                f"取出请求 {name} 之前遍历显示 {before['order']}，之后显示 {view['order']}",
            )
        return None

    def _seen(self, view: dict[str, Any]) -> Failure | None:
        inside, order = view["inside"], view["order"]
        if lost := [name for name in inside if name not in order]:
            return Failure(
                f"request {lost[0]} was put into the queue and is lost: iteration shows {order}",
                f"请求 {lost[0]} 放入队列后丢失：遍历显示 {order}",
            )
        if len(order) != len(inside):
            more = next(name for index, name in enumerate(order) if name not in inside or name in order[:index])
            return Failure(
                f"iteration shows request {more}, which is not there (any more): {order}",
                f"遍历显示了已不在队列中的请求 {more}：{order}",
            )
        if view["len"] != len(inside) or view["true"] != bool(inside):
            return Failure(
                f"the queue has {len(inside)} requests, {order}, and its length is {view['len']}",
                f"队列中有 {len(inside)} 个请求 {order}，而长度为 {view['len']}",
            )
        if inside and view["peek"] != order[0]:
            return Failure(
                f"peek_request shows request {view['peek']}, and iteration begins with {order[0]}",
                f"peek_request 显示请求 {view['peek']}，而遍历从 {order[0]} 开始",
            )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out operations."""
        operations = case["operations"]
        for index in range(len(operations)):
            yield case | {"operations": operations[:index] + operations[index + 1 :]}


def _several(requests: list[Any]) -> Any:
    """Return a queue of the engine with these requests."""
    from tracellm.engine.core.sched.request_queue import FCFSRequestQueue

    queue = FCFSRequestQueue()
    for request in requests:
        queue.add_request(request)
    return queue


def _index_error(function: Any) -> bool:
    try:
        function()
    except IndexError:
        return True
    return False


class EqualRequestsKeepTheirOrder(Check):
    """Of equal requests the earlier arrival starts first, and before both one that was started already."""

    zh = "除到达时间外都相同的请求，先到者先开始；曾经开始过的请求最先。"
    cases = 5
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Some are put back, and some removed; some arrive at the same time."""
        at, times = 0.0, []
        for _ in range(random.randint(5, 9)):
            at += random.choice([0.0, 0.5])
            times.append(at)
        return {
            "times": times,
            "fields": {
                "prompt": random.choice([20, 500]),
                "max_tokens": random.choice([4, 40]),
                "tenant": random.randint(0, 3),
                "priority": random.randint(0, 1),
            },
            "started": random.randint(1, 3),
            "removed": random.randint(0, len(times) - 4),
        }

    def run(self, case: Any) -> Any:
        """Start some requests, put them back, remove one of the others; return the order of all that are left."""
        queue = _make_queue()
        requests = [_make_request(str(index), case["fields"] | {"at": at}) for index, at in enumerate(case["times"])]
        for request in requests:
            queue.add_request(request)
        started = [queue.pop_request() for _ in range(case["started"])]
        for request in reversed(started):  # the scheduler preempts the last one first
            queue.prepend_request(request)
        removed = requests[case["started"] + case["removed"]]
        queue.remove_requests([removed])
        popped = [queue.pop_request().request_id for _ in range(min(len(queue), len(requests)))]
        return {"started": [one.request_id for one in started], "removed": removed.request_id, "popped": popped}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Expect the order of arrival."""
        order = [str(index) for index in range(len(case["times"]))]
        right = [name for name in order if name != str(case["started"] + case["removed"])]
        for got, wanted, en, zh in (
            (output["started"], order[: case["started"]], "start in the order", "开始的顺序为"),
            (
                output["popped"],
                right,
                f"then {', '.join(output['started'])} are put back and {output['removed']} is removed: the order is",
                f"随后放回 {'、'.join(output['started'])} 并移除 {output['removed']}：顺序为",
            ),
        ):
            if got != wanted:
                times = ", ".join(f"{index} at {at} s" for index, at in enumerate(case["times"]))
                times_zh = "，".join(f"{at} 秒：{index}" for index, at in enumerate(case["times"]))
                return Failure(
                    f"equal requests arrive ({times}) and {en} {', '.join(got)}; it should be {', '.join(wanted)}",
                    f"相同的请求到达（{times_zh}），{zh} {'、'.join(got)}，应为 {'、'.join(wanted)}",
                )
        return None


class NobodyStarves(Check):
    """A request is overtaken by at most 1000 later ones, however large it is, whatever its priority and its tenant."""

    zh = "无论请求多大、优先级和租户如何，超过它的后到请求不超过 1000 个。"
    cases = 6
    uses_reference = False
    streams: ClassVar[list[dict[str, Any]]] = [
        {"prompt": 30, "max_tokens": 6, "priority": 0, "tenant": 0},
        {"prompt": 20, "max_tokens": 30, "priority": 0, "tenant": 0},
        {"prompt": 300, "max_tokens": 4, "priority": 0, "tenant": 0},
    ]

    def make(self, random: Random) -> Any:
        """See `Check`. A request waits while a stream of others arrives, one for each that starts."""
        stream = dict(random.choice(self.streams))
        waits = {"prompt": random.randint(600, 1000), "max_tokens": random.randint(30, 60), "priority": 0, "tenant": 0}
        kind = random.choice(["large", "large", "priority", "tenant"])
        if kind == "priority":
            waits |= {"priority": random.randint(1, 2)}
        if kind == "tenant":
            waits |= {"tenant": 1}
        return {"waits": waits, "stream": stream, "behind": random.randint(1, 6)}

    def run(self, case: Any) -> Any:
        """Return the number of later requests that start before the one that waits; None if it never starts."""
        queue = _make_queue()
        queue.add_request(_make_request("waits", case["waits"] | {"at": 0.0}))
        number = 0
        for overtaking in range(_MOST_OVERTAKING + 1):
            while number < overtaking + case["behind"]:
                number += 1
                queue.add_request(_make_request(str(number), case["stream"] | {"at": 0.008 * number}))
            if queue.pop_request().request_id == "waits":
                return overtaking
        return None

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Expect it to start."""
        if output is not None:
            return None
        en = "prompt {prompt}, max_tokens {max_tokens}, priority {priority}, tenant {tenant}"
        zh = "提示词 {prompt}，max_tokens {max_tokens}，优先级 {priority}，租户 {tenant}"
        waits, stream = case["waits"], case["stream"]
        return Failure(
            f"a request ({en.format(**waits)}) still waits after {_MOST_OVERTAKING} later ones ({en.format(**stream)}) "
            "have started",
            f"{_MOST_OVERTAKING} 个后到的请求（{zh.format(**stream)}）都已开始，"
            f"而一个请求（{zh.format(**waits)}）仍在等待",
        )


# -- workloads ---------------------------------------------------------------------------------------------------------


def run_fcfs(case: Any) -> dict[str, Any]:
    """Run a workload under first come, first served."""
    return _run_fcfs(json.dumps(case))


@cache
def _run_fcfs(case: str) -> dict[str, Any]:
    from tracellm.engine.core.sched.request_queue import FCFSRequestQueue

    return run_workload(json.loads(case), FCFSRequestQueue)


def is_complete(case: Any, output: Any) -> bool:
    """Return whether all requests of a run got all their tokens."""
    return output is not None and _unfinished(case, output) is None


class Workload(Check):
    """A workload in virtual time."""

    figure = ""
    """Name of the figure that must be better than under FCFS; "" for none."""
    gain = 0.5
    """Part of the reference's gain that is wanted."""
    most_time = 1.4
    """Longest total time, as a multiple of that under FCFS."""
    label_en, label_zh = "", ""
    short_en, short_zh = "", ""
    """Name of the workload in tables."""

    def run(self, case: Any) -> Any:
        """Run the workload with the queue."""
        return run_workload(case, _make_queue)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Expect all tokens of all requests, about the time of FCFS, and a better figure."""
        if failure := _unfinished(case, output):
            return failure
        fcfs, got, reference = (measure(case, one) for one in (run_fcfs(case), output, expected))
        if got["total"] > self.most_time * fcfs["total"]:
            return Failure(
                f"all requests together take {got['total']:.2f} s, and {fcfs['total']:.2f} s under FCFS; "
                f"at most {self.most_time} times as much is allowed",
                f"全部请求共用 {got['total']:.2f} 秒，FCFS 下为 {fcfs['total']:.2f} 秒；最多允许 {self.most_time} 倍",
            )
        if not self.figure:
            return None
        before, mine, best = fcfs[self.figure], got[self.figure], reference[self.figure]
        threshold = before + self.gain * (best - before)
        more_is_better = self.figure == "fairness"
        if mine >= threshold if more_is_better else mine <= threshold:
            return None
        word_en, word_zh = ("at least", "不低于") if more_is_better else ("at most", "不超过")
        return Failure(
            f"{self.label_en} is {mine:.3f}; under FCFS it is {before:.3f}, and {word_en} {threshold:.3f} is wanted",
            f"{self.label_zh}为 {mine:.3f}；FCFS 下为 {before:.3f}，要求{word_zh} {threshold:.3f}",
        )


def _unfinished(case: Any, output: Any) -> Failure | None:
    """Return the first request that did not get its tokens, or another problem of the run."""
    done = output["requests"]
    index = next((i for i, one in enumerate(case["requests"]) if done[i][2] != one["output"]), None)
    if output["problem"] is not None:
        kind, now, *values = output["problem"]
        if kind == "twice":
            return Failure(
                f"at {now} s request {values[0]} is started a second time: pop_request did not remove it",
                f"{now} 秒时请求 {values[0]} 第二次开始：pop_request 没有移除它",
            )
        waiting, running = values
        what_en, what_zh = {
            "stuck": ("the scheduler finds nothing to run", "调度器没有可运行的请求"),
            "endless": ("the run does not end", "运行没有结束"),
        }[kind]
        return Failure(
            f"after {now} s {what_en}; the queue's length is {waiting}, {running} requests run, "
            f"and request {index} has not all its tokens",
            f"{now} 秒后{what_zh}；队列长度为 {waiting}，有 {running} 个请求在运行，而请求 {index} 的 token 还不完整",
        )
    if index is not None:
        return Failure(
            f"request {index} got {done[index][2]} of its {case['requests'][index]['output']} tokens: it is lost",
            f"请求 {index} 只得到 {case['requests'][index]['output']} 个 token 中的 {done[index][2]} 个：它丢失了",
        )
    if output["used"]:
        return Failure(
            f"all requests have ended, and {output['used']} blocks are not free",
            f"所有请求都已结束，但有 {output['used']} 个块没有释放",
        )
    return None


class EveryRequestEnds(Workload):
    """Where blocks are few and requests are preempted, each gets all its tokens, in at most twice the time of FCFS."""

    zh = "块很少、请求被抢占并放回时，每个请求仍得到全部 token，总时间不超过 FCFS 的两倍。"
    short_en, short_zh = "mixed", "混合"
    most_time = 2.0  # which requests are preempted is a matter of luck

    def make(self, random: Random) -> Any:
        """See `Check`."""
        requests = [
            random.choice([short, medium, long])(
                random, 0.3 * random.random(), tenant=random.randint(0, 2), priority=random.choice([0, 0, 1])
            )
            for _ in range(22)
        ]
        return {"num_blocks": random.randint(70, 100), "requests": requests}


class ShortOnesDoNotWaitInBursts(Workload):
    """When many requests arrive at once, the mean slowdown is much lower than under FCFS."""

    zh = "大量请求同时到达时，平均减速比远低于 FCFS。"
    short_en, short_zh = "bursts", "突发"
    figure = "slowdown"
    gain = 0.25
    label_en, label_zh = "the mean slowdown", "平均减速比"
    cases = 4

    def make(self, random: Random) -> Any:
        """See `Check`. Two bursts, in which 1 in 4 is long."""
        requests = [
            (long if index % 4 == 0 else short)(random, burst + 0.02 * random.random())
            for burst in (0.0, 0.25)
            for index in range(22)
        ]
        return {"num_blocks": 600, "requests": requests}


class ShortOnesDoNotWaitInAStream(Workload):
    """In a stream that is too much for the engine for a while, the mean slowdown is much lower than under FCFS."""

    zh = "请求流暂时超出引擎能力时，平均减速比远低于 FCFS。"
    short_en, short_zh = "stream", "请求流"
    figure = "slowdown"
    gain = 0.25
    label_en, label_zh = "the mean slowdown", "平均减速比"
    cases = 4

    def make(self, random: Random) -> Any:
        """See `Check`. In the first half, 1 in 4 is long."""
        now, requests = 0.0, []
        for index in range(60):
            now += random.expovariate(1 / 0.008)
            requests.append((long if index < 30 and index % 4 == 0 else short)(random, now))
        return {"num_blocks": 600, "requests": requests}


class TenantsShareTheEngine(Workload):
    """Tenants that all have requests waiting get about equal shares of the engine's time, by Jain's index."""

    zh = "都有请求等待的租户获得大致相等的引擎时间（Jain 公平指数）。"
    short_en, short_zh = "tenants", "租户"
    figure = "fairness"
    label_en, label_zh = "Jain's index of the tenants' shares", "各租户份额的 Jain 指数"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`. One tenant has many requests, smaller ones than the others have, and is first."""
        heavy, others = random.randint(0, 3), random.randint(6, 8)
        requests = []
        for tenant in range(4):
            for _ in range(36 if tenant == heavy else others):
                kind = short if tenant == heavy else medium
                requests.append(kind(random, 0.01 * random.random() + 0.01 * (tenant != heavy), tenant=tenant))
        return {"num_blocks": 600, "requests": requests}


class UrgentOnesGoFirst(Workload):
    """Requests with priority 0 get their first token much earlier than under FCFS, when others have priority 1."""

    zh = "在其他请求优先级为 1 时，优先级为 0 的请求比 FCFS 更早得到第一个 token。"
    short_en, short_zh = "priorities", "优先级"
    figure = "ttft"
    gain = 0.75
    label_en, label_zh = "the urgent requests' mean time to the first token (s)", "紧急请求的首 token 平均时间（秒）"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`. The urgent requests are no shorter than the others."""
        requests = [medium(random, 0.15 * random.random(), priority=1) for _ in range(32)]
        requests += [medium(random, 0.05 + 0.25 * random.random(), priority=0) for _ in range(10)]
        return {"num_blocks": 600, "requests": requests}


CHECKS: tuple[Check, ...] = (
    KeepsWhatItGets(),
    EqualRequestsKeepTheirOrder(),
    NobodyStarves(),
    EveryRequestEnds(),
    ShortOnesDoNotWaitInBursts(),
    ShortOnesDoNotWaitInAStream(),
    TenantsShareTheEngine(),
    UrgentOnesGoFirst(),
)

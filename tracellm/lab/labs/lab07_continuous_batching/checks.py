"""Checks of lab 7: workloads run without a model, whose decisions are compared with those of a real vLLM 0.11.1.

`recorded.jsonl` has 14 workloads for each of the first eight checks; a seed chooses among them. The last three checks
draw workloads at random, and compare with the engine.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab07_continuous_batching.judging import judge_run
from tracellm.lab.labs.lab07_continuous_batching.workload import draw_requests, recorded, run, smaller

__all__ = ["CHECKS", "Recorded"]


class Recorded(Check):
    """Workloads of one group of `recorded.jsonl`."""

    group: ClassVar[str]
    folder: ClassVar[Path] = Path(__file__).parent
    cases = 4
    uses_reference = False

    def make(self, random: Random) -> Any:
        """Choose a workload of the group, without vLLM's decisions."""
        names = [name for name in recorded(self.folder) if name.rpartition("-")[0] == self.group]
        return self._workload(random.choice(names))

    def _workload(self, name: str) -> Any:
        return {key: value for key, value in recorded(self.folder)[name].items() if key not in ("steps", "engine")}

    def run(self, case: Any) -> Any:
        """Return the state of each step."""
        return run(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with vLLM's decisions, or with the engine's if the workload is not a recorded one."""
        found = recorded(self.folder).get(case.get("name"))
        if found is not None and self._workload(case["name"]) == case:
            return judge_run(case, output, found["steps"], vllm=True)
        return judge_run(case, output, run(case), vllm=False)


class RequestsStartAndEnd(Recorded):
    """Requests start, get a token in each step, and end after max_tokens, as in vLLM."""

    zh = "请求开始运行，每步得到一个 token，在 max_tokens 个之后结束，与 vLLM 一致。"
    group = "plain"


class TheBudgetIsKept(Recorded):
    """A step has at most max_num_batched_tokens tokens; running requests come first, then waiting ones in order."""

    zh = "每步最多 max_num_batched_tokens 个 token；先运行中的请求，再按顺序处理等待的请求。"
    group = "budget"


class AtMostMaxNumSeqsRun(Recorded):
    """At most max_num_seqs requests run, and the next one starts in the step after one has ended."""

    zh = "最多运行 max_num_seqs 个请求；一个请求结束后，下一个在下一步开始。"
    group = "seqs"


class RequestsWaitForBlocks(Recorded):
    """A request that finds too few free blocks waits, and so do all requests behind it."""

    zh = "空闲块不足时请求等待，它之后的所有请求也等待。"
    group = "blocks"


class CachedPrefixesAreNotComputed(Recorded):
    """A request starts behind its cached prefix, and its tokens of the prefix count as computed."""

    zh = "请求从已缓存的前缀之后开始计算，前缀的 token 算作已计算。"
    group = "prefix"


class StopTokensEndARequest(Recorded):
    """A request ends at the end-of-sequence token, a stop token, max_tokens or max_model_len, not before min_tokens."""

    zh = "请求在遇到结束 token、停止 token、max_tokens 或 max_model_len 时结束，但不早于 min_tokens。"
    group = "stops"
    cases = 6


class RequestsComeAndGo(Recorded):
    """Requests join while others run; an aborted request leaves its queue and frees its blocks."""

    zh = "请求可在其他请求运行时加入；被中止的请求离开队列并释放其块。"
    group = "arrivals"


class WholePromptsMayOvertake(Recorded):
    """Without chunked prefill, a prompt that does not fit into the rest of the budget is skipped."""

    zh = "关闭分块预填充时，放不进剩余预算的提示词会被跳过。"
    group = "whole"


class _Drawn(Check):
    """Workloads drawn at random."""

    def run(self, case: Any) -> Any:
        """Return the state of each step."""
        return run(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a broken invariant, else the first decision that differs."""
        return judge_run(case, output, expected, vllm=False)

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out requests, and shorten outputs."""
        return smaller(case)


class RequestsEndFromOutside(_Drawn):
    """Any known request can be ended, also while a step runs, by its id or a list; unknown ids are ignored."""

    zh = "任何已知请求都可以按 id 或 id 列表结束，步进行中也可以；未知的 id 被忽略。"
    cases = 4

    def make(self, random: Random) -> Any:
        """Draw five requests, two of which run; each call ends at most one of those, so that its order is free."""
        first = random.randint(10, 90)
        requests = draw_requests(random, 5)
        for request in requests:
            request |= {"max_tokens": random.randint(6, 10), "add_before_step": 0, "abort_before_step": None}
        one, other = random.sample([first, first + 1], 2)
        unknown = str(first + random.randint(5, 9))
        return {
            "first_id": first,
            "max_num_seqs": 2,
            "enable_prefix_caching": random.random() < 0.5,
            "requests": requests,
            "aborts": [
                {"before_step": random.randint(1, 2), "ids": str(one)},
                {"in_step": random.randint(3, 4), "ids": [str(other), unknown, str(first + 4)]},
                {"before_step": 5, "ids": [str(one), unknown]},
            ],
        }


class PreemptedRequestsComeBack(_Drawn):
    """A step that has preempted starts no request; a request that comes back keeps its num_cached_tokens."""

    zh = "发生过抢占的步不开始任何请求；恢复运行的请求保留其 num_cached_tokens。"
    cases = 5

    def make(self, random: Random) -> Any:
        """Draw two requests that fill all four blocks until the first needs a fifth, and one that waits."""
        caching = random.random() < 0.5
        long, other = sorted((random.randint(9, 12) for _ in range(2)), reverse=True)
        return {
            "max_num_batched_tokens": random.randint(30, 64) if caching else random.randint(8, 9),
            "num_gpu_blocks": 5,
            "enable_prefix_caching": caching,
            "requests": [
                {"prompt": _prompt(random, long), "max_tokens": 18 - long + random.randint(1, 4)},
                {"prompt": _prompt(random, other), "max_tokens": random.randint(10, 12)},
                {"prompt": _prompt(random, random.randint(1, 7)), "add_before_step": 3},
            ],
        }


def _prompt(random: Random, length: int) -> list[int]:
    return [random.randrange(10, 99) for _ in range(length)]


class AnyWorkloadKeepsTheInvariants(_Drawn):
    """In any workload without preemption the invariants hold, and the decisions are the engine's."""

    zh = "在任何没有抢占的工作负载中，不变量都成立，决定与引擎一致。"
    cases = 10

    def make(self, random: Random) -> Any:
        """Draw limits and requests, with blocks for all requests that can run at once."""
        most = random.choice([1, 2, 3, 8])
        case: dict[str, Any] = {
            "max_num_batched_tokens": random.choice([9, 16, 30, 64]),
            "max_num_seqs": most,
            "num_gpu_blocks": 1 + 8 * min(most, 6),
            "enable_prefix_caching": random.random() < 0.5,
            "requests": draw_requests(random, random.randint(2, 6)),
        }
        if random.random() < 0.5:  # the longest request ends at max_model_len, below min_tokens
            longest = max(case["requests"], key=lambda request: len(request["prompt"]))
            longest |= {"min_tokens": 10, "max_tokens": 10, "abort_before_step": None}
            case["max_model_len"] = len(longest["prompt"]) + random.randint(1, 9)
        return case


CHECKS: tuple[Check, ...] = (
    RequestsStartAndEnd(),
    TheBudgetIsKept(),
    AtMostMaxNumSeqsRun(),
    RequestsWaitForBlocks(),
    CachedPrefixesAreNotComputed(),
    StopTokensEndARequest(),
    RequestsComeAndGo(),
    WholePromptsMayOvertake(),
    RequestsEndFromOutside(),
    PreemptedRequestsComeBack(),
    AnyWorkloadKeepsTheInvariants(),
)

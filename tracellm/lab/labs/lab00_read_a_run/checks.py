"""Checks of lab 0: one for each question about the run of the student's seed, and three for the diagram.

`run` only reads the student's sheets. The facts come from a recording that the grader makes of the same seed. Hidden
cases are the same questions: a teacher's seed cannot ask an absent student about another run.
"""

import json
import os
import tempfile
import tomllib
from abc import abstractmethod
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab00_read_a_run.runs import Numbers, Run, make_run
from tracellm.lab.loader import LAB_FILE, VARIABLE

if TYPE_CHECKING:
    from tracellm.trace.expect.match import Miss, Result

__all__ = ["CHECKS", "QUESTIONS", "Question"]


class _Sheet(Check):
    """A check of what the student wrote; there is one case, whatever the seed."""

    cases = 1
    uses_reference = False
    file: str

    def make(self, random: Random) -> Any:
        """See `Check`."""
        return {"sheet": self.file}

    def run(self, case: Any) -> Any:
        """Return the seed of the student's folder, and the text of the sheet."""
        folder = Path(os.environ[VARIABLE])
        seed = str(json.loads((folder / LAB_FILE).read_text(encoding="utf-8"))["seed"])
        return {"seed": seed, "text": (folder / self.file).read_text(encoding="utf-8")}


# -- questions --------------------------------------------------------------------------------------------------------
class Question(_Sheet):
    """A question about the run; the class's name in words is its name in the answer sheet."""

    file = "answers.toml"
    form = '""'
    """Value in an empty answer sheet."""

    @property
    def key(self) -> str:
        """Name in the answer sheet."""
        return self.name.replace("-", "_")

    @abstractmethod
    def ask(self, numbers: Numbers, lang: str) -> str:
        """Return the question in English (`en`) or Chinese (`zh`)."""

    @abstractmethod
    def answer(self, run: Run) -> Any:
        """Return the right answer: an integer, a string, or a list of integers."""

    @abstractmethod
    def truth(self, run: Run, lang: str) -> str:
        """Return the answer as a sentence with its reason."""

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the answer with the run of the student's seed."""
        try:
            given = tomllib.loads(output["text"]).get(self.key, "")
        except tomllib.TOMLDecodeError as error:
            return Failure(f"{self.file} is no TOML: {error}", f"{self.file} 不是 TOML：{error}")
        if given in ("", []):
            return Failure(f"{self.key} is not answered yet in {self.file}", f"{self.file} 中的 {self.key} 还没有回答")
        run = make_run(output["seed"])
        if _plain(given) == _plain(self.answer(run)):
            return None
        return Failure(
            f"{self.key}: you answered {_show(given)}; in your run, {self.truth(run, 'en')}",
            f"{self.key}：你的回答是 {_show(given)}；在你的运行中，{self.truth(run, 'zh')}",
        )


def _plain(answer: Any) -> Any:
    """Return an answer without differences of form: spaces, capitals, numbers written as strings."""
    return [_plain(one) for one in answer] if isinstance(answer, list) else str(answer).strip().lower()


def _show(answer: Any) -> str:
    return str(answer)[:80]


def _or(lang: str, en: str, zh: str) -> str:
    return zh if lang == "zh" else en


class Client(Question):
    """The class of the engine client is named."""

    zh = "写出引擎客户端的类。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(
            lang,
            "Which class is the engine client, which LLMEngine calls to reach the engine core?",
            "LLMEngine 通过引擎客户端访问引擎核心，它是哪个类？",
        )

    def answer(self, run: Run) -> str:
        """See `Question`."""
        return self._choice(run)[0]

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        client, rule = self._choice(run)
        return _or(lang, f"it is {client}, because this holds: {rule}", f"它是 {client}，因为满足条件：{rule}")

    def _choice(self, run: Run) -> tuple[str, str]:
        from tracellm.trace import names

        span = next(span for span in run.trace.spans if names.CLIENT_CHOICE in span.attributes)
        return str(span.attributes[names.CLIENT_CHOICE]), str(span.attributes[names.CLIENT_RULE])


class Process(Question):
    """The process of the steps is named."""

    zh = "写出执行 step 的进程。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(
            lang,
            "In which process is EngineCore.step_fn called? (name of the process in the report)",
            "EngineCore.step_fn 在哪个进程中被调用？（报告中的进程名）",
        )

    def answer(self, run: Run) -> str:
        """See `Question`."""
        process = run.step(1).span.process
        return process.name if process else ""

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        name = self.answer(run)
        return _or(lang, f"all steps ran in the process {name}", f"所有 step 都在进程 {name} 中执行")


class Steps(Question):
    """The steps are counted."""

    zh = "数出 step 的数量。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(lang, "How many steps does the run have?", "这次运行有多少个 step？")

    def answer(self, run: Run) -> int:
        """See `Question`."""
        return len(run.steps)

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        last = ", ".join(run.steps[-1].finished)
        return _or(
            lang,
            f"step {len(run.steps)} is the last: request {last} finished in it",
            f"step {len(run.steps)} 是最后一个：请求 {last} 在其中结束",
        )


class ScheduledTokens(Question):
    """The tokens of a step are counted."""

    zh = "数出某个 step 计算的 token。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        step = numbers.tokens_step
        return _or(
            lang,
            f"How many tokens does step {step} compute, of all requests together?",
            f"step {step} 一共计算所有请求的多少个 token？",
        )

    def answer(self, run: Run) -> int:
        """See `Question`."""
        return run.step(run.numbers.tokens_step).num_tokens

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        step = run.step(run.numbers.tokens_step)
        parts = [
            _or(
                lang,
                f"{one.num_tokens} of request {one.request_id}",
                f"请求 {one.request_id} 的 {one.num_tokens} 个",
            )
            for one in step.requests
        ]
        return _or(
            lang,
            f"step {step.index} computes {step.num_tokens}: {', '.join(parts)}",
            f"step {step.index} 计算 {step.num_tokens} 个：{'，'.join(parts)}",
        )


class Blocks(Question):
    """The KV cache blocks of a request are listed."""

    zh = "列出某个请求的 KV 缓存块。"
    form = "[]"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        request, step = numbers.blocks_request, numbers.blocks_step
        return _or(
            lang,
            f"Which KV cache blocks does request {request} have in step {step}, in the order of its tokens? (a list)",
            f"在 step {step} 中，请求 {request} 有哪些 KV 缓存块？按其 token 的顺序列出。（列表）",
        )

    def answer(self, run: Run) -> list[int]:
        """See `Question`."""
        return run.blocks(run.numbers.blocks_request, run.numbers.blocks_step)

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        request, step, blocks = run.numbers.blocks_request, run.numbers.blocks_step, self.answer(run)
        return _or(
            lang,
            f"request {request} has blocks {blocks} in step {step}, {run.engine.block_size} tokens each",
            f"请求 {request} 在 step {step} 中有块 {blocks}，每块 {run.engine.block_size} 个 token",
        )


class FirstTokens(Question):
    """The steps of the first tokens are listed."""

    zh = "列出各请求得到第一个 token 的 step。"
    form = "[]"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(
            lang,
            "In which step does each request get its first token? (a list, beginning with request 0)",
            "各请求在哪个 step 得到第一个 token？（列表，从请求 0 开始）",
        )

    def answer(self, run: Run) -> list[int]:
        """See `Question`."""
        first: dict[str, int] = {}
        for step in run.steps:
            for sampled in step.sampled:
                first.setdefault(sampled.request_id, step.index)
        return [first[str(request)] for request in range(run.num_requests)]

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        steps = self.answer(run)
        return _or(
            lang,
            f"the first tokens come in the steps {steps}: each in the step that computes the last token of the prompt",
            f"第一个 token 出现在 step {steps}：即计算提示词最后一个 token 的那个 step",
        )


class _Preemption(Question):
    """A question about the first preemption."""

    def first(self, run: Run) -> tuple[int, str, str]:
        """Return the step, the request, and the request that got its blocks."""
        step = next(step for step in run.steps if step.preempted)
        request = step.preempted[0]
        details = next((held.details for held in step.held if held.request_id == request), "")
        return step.index, request, dict(part.split("=") for part in details.split()).get("by", request)

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        step, request, other = self.first(run)
        if request == other:
            return _or(
                lang,
                f"request {request} was the first to be preempted, in step {step}: it needed a block, none was free, "
                "and it arrived last of those that were running",
                f"最先被抢占的是请求 {request}，在 step {step}：它需要一个块，但没有空闲块，而它是运行中最后到达的",
            )
        return _or(
            lang,
            f"request {request} was the first to be preempted, in step {step}: request {other} needed a block, none "
            f"was free, and request {request} arrived last of those that were running",
            f"最先被抢占的是请求 {request}，在 step {step}：请求 {other} 需要一个块，但没有空闲块，而请求 {request} "
            "是运行中最后到达的",
        )


class PreemptedStep(_Preemption):
    """The step of the first preemption is found."""

    zh = "找出第一次抢占发生的 step。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(lang, "Which step is the first that preempts a request?", "哪个 step 第一次抢占请求？")

    def answer(self, run: Run) -> int:
        """See `Question`."""
        return self.first(run)[0]


class PreemptedRequest(_Preemption):
    """The request that is preempted first is found."""

    zh = "找出最先被抢占的请求。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(lang, "Which request is preempted in that step?", "那个 step 抢占了哪个请求？")

    def answer(self, run: Run) -> str:
        """See `Question`."""
        return self.first(run)[1]


class Preemptions(Question):
    """All preemptions are listed."""

    zh = "列出所有发生抢占的 step。"
    form = "[]"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(
            lang,
            "Which steps preempt a request, in the whole run? (a list)",
            "整个运行中哪些 step 抢占了请求？（列表）",
        )

    def answer(self, run: Run) -> list[int]:
        """See `Question`."""
        return [step.index for step in run.steps if step.preempted]

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        parts = [
            _or(
                lang,
                f"step {step.index} preempts request {', '.join(step.preempted)}",
                f"step {step.index} 抢占请求 {'、'.join(step.preempted)}",
            )
            for step in run.steps
            if step.preempted
        ]
        return ("；" if lang == "zh" else "; ").join(parts)


class WaitingReason(Question):
    """The reason is found for which a request waits."""

    zh = "找出请求等待的原因。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        step = numbers.waiting_step
        return _or(
            lang,
            f'Why does the first of the waiting requests not run in step {step}? ("tokens": the token budget is used '
            'up; "requests": as many requests run as may; "blocks": KV cache blocks are missing)',
            f'在 step {step} 中，等待队列中的第一个请求为什么没有运行？（"tokens"：token 预算已用完；"requests"：'
            '运行的请求已达上限；"blocks"：缺少 KV 缓存块）',
        )

    def answer(self, run: Run) -> str:
        """See `Question`."""
        kinds = {"token_budget": "tokens", "max_num_seqs": "requests"}
        return kinds.get(self._held(run).reason, "blocks")

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        from tracellm.report.wording.changes import held_reason

        held, step = self._held(run), run.numbers.waiting_step
        why = held_reason(held.reason, held.details, lang, held.request_id)
        return _or(
            lang,
            f'it was "{self.answer(run)}": request {held.request_id} in step {step}: {why}',
            f'原因是 "{self.answer(run)}"：step {step} 中的请求 {held.request_id}：{why}',
        )

    def _held(self, run: Run) -> Any:
        step = run.step(run.numbers.waiting_step)
        return next(held for held in step.held if held.request_id == step.waiting[0])


class PrefixHits(Question):
    """The tokens that the prefix cache saved are counted."""

    zh = "数出前缀缓存省下的 token。"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(
            lang,
            "How many tokens were found in the prefix cache, in the whole run, also by requests that came back after a "
            "preemption?",
            "整个运行中，一共有多少个 token 在前缀缓存中命中（包括抢占后恢复的请求）？",
        )

    def answer(self, run: Run) -> int:
        """See `Question`."""
        return sum(one.prefix_hit_tokens for step in run.steps for one in step.requests)

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        parts = [
            _or(
                lang,
                f"{one.prefix_hit_tokens} of request {one.request_id} in step {step.index}",
                f"请求 {one.request_id} 在 step {step.index} 命中 {one.prefix_hit_tokens} 个",
            )
            for step in run.steps
            for one in step.requests
            if one.prefix_hit_tokens
        ]
        total = self.answer(run)
        return _or(lang, f"there were {total}: {', '.join(parts)}", f"共 {total} 个：{'，'.join(parts)}")


class FinishOrder(Question):
    """The order is found in which the requests finish."""

    zh = "找出请求结束的顺序。"
    form = "[]"

    def ask(self, numbers: Numbers, lang: str) -> str:
        """See `Question`."""
        return _or(
            lang,
            "In which order do the requests finish? (a list of request numbers; those of one step in ascending order)",
            "请求按什么顺序结束？（请求编号的列表；同一 step 结束的按编号升序）",
        )

    def answer(self, run: Run) -> list[int]:
        """See `Question`."""
        return [int(request) for step in run.steps for request in sorted(step.finished)]

    def truth(self, run: Run, lang: str) -> str:
        """See `Question`."""
        parts = [
            _or(lang, f"{request} in step {step.index}", f"请求 {request} 在 step {step.index}")
            for step in run.steps
            for request in sorted(step.finished)
        ]
        return _or(lang, f"they finish so: {', '.join(parts)}", f"结束顺序为：{'，'.join(parts)}")


# -- the diagram ------------------------------------------------------------------------------------------------------
_FEWEST, _MOST = 12, 30
"""Number of calls in a diagram. A run's own diagram has more."""

_WAY = ("LLMEngine", "InprocClient", "EngineCore", "Scheduler", "GPUModelRunner", "Sampler", "OutputProcessor")
"""Lifelines on the way of a request from the script to its token."""


class _Diagram(_Sheet):
    """A check of the sequence diagram, with the comparison of `tracellm check`."""

    file = "diagram.mmd"

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the diagram with the run of the student's seed."""
        from tracellm.trace.expect import ExpectError, check, read

        with tempfile.NamedTemporaryFile("w", suffix=".mmd", encoding="utf-8") as file:
            file.write(output["text"])
            file.flush()
            try:
                expectation = read(file.name)
            except ExpectError:
                return Failure(f"{self.file} has no calls yet", f"{self.file} 中还没有调用")
        if len(expectation.arrows) > _MOST:
            return Failure(
                f"{self.file} has {len(expectation.arrows)} calls; draw the {_FEWEST} to {_MOST} that matter most",
                f"{self.file} 有 {len(expectation.arrows)} 个调用；请画出最重要的 {_FEWEST} 到 {_MOST} 个",
            )
        result = check(make_run(output["seed"]).trace, expectation)
        missed = {miss.arrow.line for miss in result.misses}
        found = [arrow for arrow in expectation.arrows if arrow.line not in missed]
        return self.compare(result, [target for arrow in found for target in arrow.target])

    @abstractmethod
    def compare(self, result: "Result", reached: list[str]) -> Failure | None:
        """Return the failure of a comparison.

        Args:
            result: what `tracellm check` finds.
            reached: lifelines that the calls found in the run reach.
        """


class DiagramHasEnoughCalls(_Diagram):
    """The diagram has at least 12 calls that the run has too, in this order."""

    zh = "图中至少有 12 个调用出现在运行中，且顺序相同。"

    def compare(self, result: "Result", reached: list[str]) -> Failure | None:
        """See `_Diagram`."""
        if result.matched >= _FEWEST:
            return None
        return Failure(
            f"{result.matched} of the {result.total} calls in {self.file} are in your run, in this order; "
            f"at least {_FEWEST} are needed",
            f"{self.file} 的 {result.total} 个调用中有 {result.matched} 个按此顺序出现在你的运行中；"
            f"至少需要 {_FEWEST} 个",
        )


class DiagramHasNoWrongCall(_Diagram):
    """Each call of the diagram is in the run, between the same lifelines and in the same order."""

    zh = "图中的每个调用都出现在运行中，两端和顺序都相同。"

    def compare(self, result: "Result", reached: list[str]) -> Failure | None:
        """See `_Diagram`."""
        if result.total < _FEWEST:
            return Failure(
                f"{self.file} has {result.total} calls; draw at least {_FEWEST}",
                f"{self.file} 有 {result.total} 个调用；请至少画出 {_FEWEST} 个",
            )
        if not result.misses:
            return None
        miss = result.misses[0]
        en, zh = _why(miss)
        line, call = miss.arrow.line, miss.arrow.text.strip()
        return Failure(f"line {line}, {call}: {en}", f"第 {line} 行，{call}：{zh}")


def _why(miss: "Miss") -> tuple[str, str]:
    """Return why an arrow is not in the run."""
    if miss.elsewhere:
        before = f", after line {miss.before[0].line}" if miss.before else ""
        return (
            f"the call is in your run, but not here{before}: the order is wrong",
            "运行中有这个调用，但不在这个位置：顺序不对",
        )
    if miss.others:
        call = miss.others[0]
        one, other = "/".join(sorted(call.callers)), "/".join(sorted(call.targets))
        return f"in your run, {one} calls it on {other}", f"在你的运行中，是 {one} 在 {other} 上调用它"
    if miss.near:
        return f"it is never called; did you mean {miss.near[0]}?", f"从未被调用；是否指 {miss.near[0]}？"
    return "it is never called in your run", "在你的运行中从未被调用"


class DiagramReachesTheSampler(_Diagram):
    """The diagram shows a request's way: client, engine core, scheduler, model runner, sampler, output processor."""

    zh = "图中有请求所经过的路：客户端、引擎核心、调度器、模型执行器、采样器、输出处理器。"

    def compare(self, result: "Result", reached: list[str]) -> Failure | None:
        """See `_Diagram`."""
        missing = [lifeline for lifeline in _WAY if lifeline not in reached]
        if not missing:
            return None
        return Failure(
            f"no call that is in your run reaches {', '.join(missing)}",
            f"图中没有到达 {'、'.join(missing)} 的调用（且出现在你的运行中）",
        )


QUESTIONS: tuple[Question, ...] = (
    Client(),
    Process(),
    Steps(),
    ScheduledTokens(),
    FirstTokens(),
    Blocks(),
    WaitingReason(),
    PreemptedStep(),
    PreemptedRequest(),
    Preemptions(),
    PrefixHits(),
    FinishOrder(),
)

CHECKS: tuple[Check, ...] = (*QUESTIONS, DiagramHasEnoughCalls(), DiagramHasNoWrongCall(), DiagramReachesTheSampler())

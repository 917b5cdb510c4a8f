"""Checks of lab 10: the busy loop and the clients with a scripted other side, then real processes.

The scripts (loops.py, clients.py) take the place of sockets, threads and the model, so that the order of events is the
same in each run, and waiting for ever is noticed at once. The last checks use a real engine core (processes.py).
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure, first_difference
from tracellm.lab.labs.lab10_boundary.clients import run_client, run_inproc, run_receiver
from tracellm.lab.labs.lab10_boundary.loops import run_loop
from tracellm.lab.labs.lab10_boundary.processes import NUM_BLOCKS, in_process, run_abort, run_generation, run_kill

__all__ = ["CHECKS"]

_METHODS = ("get_request_counts", "get_num_free_blocks", "reset_prefix_cache")


# -- the choice of the client -----------------------------------------------------------------------------------------


class ChoosesTheClient(Check):
    """Each combination of multiprocess_mode and asyncio_mode gets its client, or an EngineError if there is none."""

    zh = "multiprocess_mode 与 asyncio_mode 的每种组合得到相应的客户端；没有时引发 EngineError。"
    cases = 3
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        flags = [[one, other] for one in (False, True) for other in (False, True)]
        random.shuffle(flags)
        return [[*flag, random.random() < 0.5, random.randint(1, 999)] for flag in flags]

    def run(self, case: Any) -> Any:
        """Return the class and the arguments of each client that is made."""
        from types import SimpleNamespace
        from unittest.mock import patch

        from tracellm.engine.config.errors import EngineError
        from tracellm.engine.ipc import core_client, mp_client

        def client(name: str) -> Any:
            return lambda config, *args: [name, config.number, *args]

        made: list[Any] = []
        with (
            patch.object(core_client, "InprocClient", client("InprocClient")),
            patch.multiple(mp_client, SyncMPClient=client("SyncMPClient"), AsyncMPClient=client("AsyncMPClient")),
        ):
            for multiprocess_mode, asyncio_mode, log_stats, number in case:
                config = SimpleNamespace(number=number, parallel_config=SimpleNamespace(data_parallel_size=1))
                arguments: Any = (multiprocess_mode, asyncio_mode, config, "executor", log_stats)
                try:
                    made.append(core_client.EngineCoreClient.make_client(*arguments))
                except EngineError as error:
                    made.append(["EngineError", str(error)])
        return made

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with the table of core_client.py."""
        table = {(False, False): "InprocClient", (True, False): "SyncMPClient", (True, True): "AsyncMPClient"}
        for (multiprocess_mode, asyncio_mode, log_stats, config), made in zip(case, output, strict=True):
            name = table.get((multiprocess_mode, asyncio_mode), "EngineError")
            call = f"multiprocess_mode={multiprocess_mode}, asyncio_mode={asyncio_mode}"
            if made[0] != name:
                return Failure(f"{call} gets {made[0]}; expected {name}", f"{call} 得到 {made[0]}，应为 {name}")
            if name != "EngineError" and made[1:] != [config, "executor", log_stats]:
                return Failure(
                    f"{call}: {name} gets the arguments {made[1:]}; expected {[config, 'executor', log_stats]}",
                    f"{call}：{name} 的参数为 {made[1:]}，应为 {[config, 'executor', log_stats]}",
                )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep one of the calls."""
        if len(case) > 1:
            yield from ([one] for one in case)


class InprocClientStepsOnce(Check):
    """Each get_output of an InprocClient runs one step and post_step, and returns the outputs of client 0."""

    zh = "InprocClient 每次 get_output 运行一步和 post_step，并返回客户端 0 的输出。"
    cases = 4

    def make(self, random: Random) -> Any:
        """See `Check`."""
        steps: list[dict[str, Any]] = [
            {"outputs": {}, "executed": False},
            {"outputs": {"0": [["a", 0]]}, "executed": True},
        ]
        for number in range(4):
            clients = random.sample(("0", "1"), random.randint(0, 2))
            outputs = {client: [[random.choice("abc"), number]] for client in clients}
            steps.append({"outputs": outputs, "executed": bool(outputs) or random.random() < 0.3})
        random.shuffle(steps)
        return {"steps": steps, "aborts": random.choice(([["a"]], [["b", "a"], ["c"]], [[], ["a"]]))}

    def run(self, case: Any) -> Any:
        """Return the outputs and the calls of the engine core."""
        return run_inproc(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare outputs, then calls."""
        steps = zip(case["steps"], output["got"], expected["got"], strict=True)
        for number, (step, got, right) in enumerate(steps, start=1):
            if got != right:
                return Failure(
                    f"step {number} has outputs by client {step['outputs']}; get_output returns {got}, "
                    f"expected {right}",
                    f"第 {number} 步各客户端的输出为 {step['outputs']}；get_output 返回 {got}，应为 {right}",
                )
        calls, others = ([one for one in half["calls"] if one[-1] != []] for half in (output, expected))
        for number, (one, other) in enumerate(zip(calls, others, strict=False), start=1):
            if one != other:
                return Failure(
                    f"call {number} of the engine core is {_call(one)}, expected {_call(other)}",
                    f"对引擎核心的第 {number} 次调用是 {_call(one)}，应为 {_call(other)}",
                )
        return first_difference(calls, others, path="calls")


def _call(call: list[Any]) -> str:
    return f"{call[0]}({', '.join(map(str, call[1:]))})"


# -- the busy loop ----------------------------------------------------------------------------------------------------


class _Loop(Check):
    """Messages for the busy loop of an engine core."""

    weights: ClassVar[dict[str, int]]
    num_batches = 4
    clients = 1

    def make(self, random: Random) -> Any:
        """See `Check`."""
        at, used, call = 0, 0, 10
        active: list[str] = []
        batches: list[dict[str, Any]] = []
        for _ in range(self.num_batches):
            messages: list[dict[str, Any]] = []
            for _ in range(random.randint(1, 4)):
                (kind,) = random.choices(list(self.weights), list(self.weights.values()))
                client = random.randrange(self.clients)
                if kind == "ABORT" and active:
                    ids = random.sample(active, random.randint(1, min(2, len(active))))
                    messages.append({"type": "ABORT", "ids": ids})
                    active = [one for one in active if one not in ids]
                    if random.random() < 0.5:
                        tokens = random.randint(2, 4)
                        messages.append({"type": "ADD", "id": ids[0], "tokens": tokens, "client": client})
                elif kind == "UTILITY":
                    messages.append(self._utility(random, call, client))
                    call += 1
                elif kind == "REFUSED":
                    messages.append({"type": "REFUSED", "id": f"x{used}", "client": client})
                    used += 1
                elif kind != "ABORT":
                    name = "abcdefghijklmnopqrstuvwxyz"[used]
                    tokens = random.randint(2, 7)
                    messages.append({"type": "ADD", "id": name, "tokens": tokens, "client": client})
                    used += 1
                    active.append(name)
            batches.append({"at": at, "messages": messages})
            at += random.choice((1, 2, 12))
        return {"batches": batches}

    def _utility(self, random: Random, call: int, client: int) -> dict[str, Any]:
        method = random.choice((*_METHODS, "has_work", "get_request_counts"))
        arguments = [1] if random.random() < 0.25 else []
        return {"type": "UTILITY", "client": client, "call": call, "method": method, "args": arguments}

    def run(self, case: Any) -> Any:
        """Return the log of the loop, and its end."""
        return run_loop(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare steps, the end, answers, outputs and confirmations."""
        return _judge_loop(output, expected)

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out batches, then messages."""
        batches = case["batches"]
        for index in range(len(batches)):
            yield case | {"batches": batches[:index] + batches[index + 1 :]}
        for index, batch in enumerate(batches):
            messages = batch["messages"]
            for number in range(len(messages)):
                less = batch | {"messages": messages[:number] + messages[number + 1 :]}
                yield case | {"batches": [*batches[:index], less, *batches[index + 1 :]]}


def _judge_loop(output: Mapping[str, Any], expected: Mapping[str, Any]) -> Failure | None:
    log, right = output["log"], expected["log"]
    steps, others = ([one["ids"] for one in half if one["do"] == "step"] for half in (log, right))
    for number, (one, other) in enumerate(zip(steps, others, strict=False), start=1):
        if one != other:
            return Failure(
                f"step {number} computes {_names(one)}; after all messages that came before it: {_names(other)}",
                f"第 {number} 步计算 {_names(one)}；处理完在它之前到来的全部消息后应为：{_names(other)}",
            )
    return (
        _judge_end(output, expected, min(len(steps), len(others)))
        or _judge_answers(log, right)
        or _judge_sent(log, right)
        or _judge_confirmed(log)
        or _judge_posts(log, right)
    )  # fmt: skip


def _names(ids: list[str]) -> str:
    return ", ".join(ids) or "nothing"


def _judge_end(output: Mapping[str, Any], expected: Mapping[str, Any], steps: int) -> Failure | None:
    ended, right = output["ended"], expected["ended"]
    if ended == right:
        return None
    if ended == "stuck":
        left = _unfinished(output["log"])
        return Failure(
            f"after step {steps} the loop waits for input, although requests are unfinished: {_names(left)}",
            f"第 {steps} 步之后循环等待输入，但还有未完成的请求：{_names(left)}",
        )
    if ended == "spins":
        return Failure(
            f"after step {steps} no request is unfinished, and the loop repeats without waiting for input",
            f"第 {steps} 步之后没有未完成的请求，循环却不等待输入而空转",
        )
    says = {"end": "goes on and waits for input", "returned": "returns"}
    says_zh = {"end": "继续并等待输入", "returned": "返回"}
    one, other = (says.get(name, f"ends with {name}") for name in (ended, right))
    one_zh, other_zh = (says_zh.get(name, f"以 {name} 结束") for name in (ended, right))
    return Failure(
        f"after step {steps} the loop {one}; expected: it {other}", f"第 {steps} 步之后循环{one_zh}；应为：{other_zh}"
    )


def _unfinished(log: list[dict[str, Any]]) -> list[str]:
    left: dict[str, None] = {}
    for entry in log:
        if entry["do"] == "add":
            left[entry["id"]] = None
        elif entry["do"] == "abort":
            for name in entry["ids"]:
                left.pop(name, None)
        elif entry["do"] == "send":
            for name, _, reason in entry["outputs"]:
                if reason:
                    left.pop(name, None)
    return list(left)


def _judge_answers(log: list[dict[str, Any]], right: list[dict[str, Any]]) -> Failure | None:
    answers, others = ({one["call"]: one for one in half if one["do"] == "answer"} for half in (log, right))
    for call, other in others.items():
        one = answers.get(call)
        if one is None:
            return Failure(f"utility call {call} gets no answer", f"工具调用 {call} 没有得到应答")
        if one["client"] != other["client"]:
            return Failure(
                f"the answer to utility call {call} goes to client {one['client']}; client {other['client']} called",
                f"工具调用 {call} 的应答发给了客户端 {one['client']}，而调用者是客户端 {other['client']}",
            )
        failed, should = (half["failure"] is not None for half in (one, other))
        if failed != should or one["result"] != other["result"]:
            is_, be = (
                f"fails: {half['failure']}" if half["failure"] else repr(half["result"]) for half in (one, other)
            )
            return Failure(
                f"the answer to utility call {call} is {is_}; expected {be}",
                f"工具调用 {call} 的应答是 {is_}；应为 {be}",
            )
    return None


def _judge_sent(log: list[dict[str, Any]], right: list[dict[str, Any]]) -> Failure | None:
    for client in sorted({one["client"] for one in (*log, *right) if one["do"] == "send"}):
        sent, others = (
            [part for one in half if one["do"] == "send" and one["client"] == client for part in one["outputs"]]
            for half in (log, right)
        )
        for number, other in enumerate(others):
            one = sent[number] if number < len(sent) else None
            if one != other:
                got = f"{one[0]} with tokens {one[1]}" if one else "missing"
                got_zh = f"{one[0]}，token {one[1]}" if one else "缺失"
                return Failure(
                    f"output {number + 1} of client {client} is {got}; expected {other[0]} with tokens {other[1]}",
                    f"客户端 {client} 的第 {number + 1} 个输出是 {got_zh}；应为 {other[0]}，token {other[1]}",
                )
        if len(sent) > len(others):
            return Failure(
                f"client {client} gets output {len(others) + 1}, of {sent[len(others)][0]}; expected: {len(others)}",
                f"客户端 {client} 得到了第 {len(others) + 1} 个输出（{sent[len(others)][0]}）；应只有 {len(others)} 个",
            )
    return None


def _judge_confirmed(log: list[dict[str, Any]]) -> Failure | None:
    """Each abort is confirmed once, with the next outputs at the latest."""
    pending: list[str] = []
    for entry in log:
        if entry["do"] == "abort":
            pending += entry["ids"]
        elif entry["do"] == "send":
            for name in entry["confirmed"]:
                if name not in pending:
                    return Failure(
                        f"the abort of {name} is confirmed twice, or was never received",
                        f"{name} 的中止被确认了两次，或从未收到",
                    )
                pending.remove(name)
            if pending:
                return Failure(
                    f"outputs are sent without confirming the abort of {_names(pending)} (finished_requests)",
                    f"送出输出时没有确认 {_names(pending)} 的中止（finished_requests）",
                )
    return None


def _judge_posts(log: list[dict[str, Any]], right: list[dict[str, Any]]) -> Failure | None:
    one, other = (sum(entry["do"] == "post" for entry in half) for half in (log, right))
    if one == other:
        return None
    return Failure(
        f"post_step is called for {one} of {other} executed steps", f"执行了 {other} 步，post_step 被调用 {one} 次"
    )


class HandlesAllMessagesBeforeAStep(_Loop):
    """All messages received so far are handled before the next step; the loop waits without work, and only then."""

    zh = "已收到的全部消息都先于下一步处理；没有工作时循环等待，有工作时不等待。"
    weights: ClassVar = {"ADD": 4, "ABORT": 2}
    num_batches = 5
    cases = 6


class AnswersAndConfirms(_Loop):
    """Utility calls, refused requests and aborts are answered, each to the client that asked."""

    zh = "工具调用、被拒绝的请求和中止都得到应答，并发给相应的客户端。"
    weights: ClassVar = {"ADD": 3, "ABORT": 3, "UTILITY": 3, "REFUSED": 1}
    clients = 2
    cases = 7


class ErrorsEndTheLoop(_Loop):
    """An error in a step, a failed executor and SIGTERM end the loop with that error."""

    zh = "步中的错误、执行器失败和 SIGTERM 都以相应的错误结束循环。"
    weights: ClassVar = {"ADD": 1}
    num_batches = 2
    cases = 3

    def make(self, random: Random) -> Any:
        """See `Check`. The case has a loop for each kind of end."""
        loops = []
        for kind in ("step", "EXECUTOR_FAILED", "WAKEUP", "START_DP_WAVE"):
            loop = super().make(random)
            loop["batches"][0]["messages"].insert(0, {"type": "ADD", "id": "z", "tokens": 9, "client": 0})
            if kind == "step":
                loop |= {"fails_at": random.randint(1, 4), "error": random.choice(("out of memory", "NaN in layer 2"))}
            else:
                content = {"message": "the input thread broke"} if kind == "EXECUTOR_FAILED" else {}
                loop["batches"][1]["messages"].append({"type": kind} | content)
            loops.append(loop)
        return loops

    def run(self, case: Any) -> Any:
        """Return the log and the end of each loop."""
        return [run_loop(loop) for loop in case]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the kind of each error, and its message where the engine core did not choose it."""
        for one, other in zip(output, expected, strict=True):
            ended = one["ended"]
            if ended in ("SystemExit: ", "SystemExit: None"):  # the same exit status
                ended = "SystemExit: 0"
            if "several engine cores" in other["ended"] and ended.startswith("RuntimeError"):
                ended = other["ended"]
            if failure := _judge_loop(one | {"ended": ended}, other):
                return failure
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep one of the loops, and make it smaller."""
        if len(case) > 1:
            yield from ([loop] for loop in case)
        else:
            yield from ([loop] for loop in super().shrink(case[0]))


# -- the client -------------------------------------------------------------------------------------------------------


class _Client(Check):
    """Operations on a `SyncMPClient`."""

    def run(self, case: Any) -> Any:
        """Return the result of each operation, and the messages sent."""
        return run_client(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare results, then messages."""
        for number, result in enumerate(output["results"]):
            right = expected["results"][number]
            if not _alike(result, right):
                (en, zh), (is_, is_zh), (be, be_zh) = (
                    _operation(case["operations"][number]),
                    _result(result),
                    _result(right),
                )
                return Failure(
                    f"operation {number + 1}, {en}: {is_}; expected: {be}",
                    f"第 {number + 1} 个操作 {zh}：{is_zh}；应为：{be_zh}",
                )
        if output["bystander_answered"]:
            return Failure(
                "the answer to one utility call was given to another thread's call",
                "一个工具调用的应答被给了另一个线程的调用",
            )
        for number, (one, other) in enumerate(zip(output["sent"], expected["sent"], strict=False), start=1):
            if one != other:
                return Failure(
                    f"message {number} is {one}, expected {other}", f"第 {number} 条消息是 {one}，应为 {other}"
                )
        return first_difference(output["sent"], expected["sent"], path="messages")

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out operations; `get` keeps something to get."""
        operations = case["operations"]
        for index in range(len(operations)):
            left = operations[:index] + operations[index + 1 :]
            had = 0
            for operation in left:
                had += {"arrive": 1, "die": 1000, "shutdown": 1000, "get": -1}.get(operation["do"], 0)
                if had < 0:
                    break
            else:
                yield case | {"operations": left}


def _alike(result: Any, right: Any) -> bool:
    """Return whether two results are equal; an error may have further words."""
    if isinstance(right, str) and "Error: " in right and isinstance(result, str):
        kind, _, message = right.partition(": ")
        return result.startswith(f"{kind}: ") and message in result
    return bool(result == right)


def _result(result: Any) -> tuple[str, str]:
    if result == "hangs":
        return "it never returns", "一直不返回"
    if isinstance(result, str) and "Error: " in result:
        return f"it raises {result}", f"引发 {result}"
    return f"it returns {result!r}", f"返回 {result!r}"


def _operation(operation: Mapping[str, Any]) -> tuple[str, str]:
    kind = operation["do"]
    en = {
        "arrive": f"outputs {operation.get('outputs')} arrive, aborts confirmed: {operation.get('confirmed')}",
        "die": "the engine core dies",
        "shutdown": "shutdown()",
        "get": "get_output()",
        "abort": f"abort_requests({operation.get('ids')})",
        "add": f"add_request({operation.get('id')!r})",
        "utility": f"call_utility({operation.get('method')!r}), whose answer is {operation.get('reply')}",
    }
    zh = {
        "arrive": f"输出 {operation.get('outputs')} 到来，确认的中止：{operation.get('confirmed')}",
        "die": "引擎核心死亡",
        "utility": f"call_utility({operation.get('method')!r})，其应答为 {operation.get('reply')}",
    }
    return en[kind], zh.get(kind, en[kind])


class AbortedOutputsAreDropped(_Client):
    """Outputs of an aborted request do not reach the caller; those of a later request with the same id do."""

    zh = "被中止的请求的输出不再到达调用方；之后同名请求的输出可以到达。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        operations: list[dict[str, Any]] = []
        waiting: list[str] = []
        for number in range(random.randint(7, 9)):
            kind = random.choice(("arrive", "arrive", "abort", "confirm"))
            confirmed: list[str] = []
            if kind == "abort":
                ids = random.choice((["a"], ["b"], ["a", "b"], ["b"], []))
                waiting += ids
                operations.append({"do": "abort", "ids": ids})
                continue
            if kind == "confirm":
                count = random.randint(0, len(waiting))
                confirmed, waiting = waiting[:count], waiting[count:]
            outputs = [[name, number] for name in random.sample("abc", random.randint(1, 3))]
            operations += [{"do": "arrive", "outputs": outputs, "confirmed": confirmed}, {"do": "get"}]
        last = [[name, 99] for name in "abc"]
        operations += [{"do": "arrive", "outputs": last, "confirmed": waiting}, {"do": "get"}]
        return {"bystander": False, "operations": operations}


class DeadEnginesRaise(_Client):
    """A dead engine core, or one that was shut down, lets nobody wait: after earlier outputs comes EngineDeadError."""

    zh = "引擎核心死亡或关闭后，任何调用都不再等待：先返回之前到来的输出，然后引发 EngineDeadError。"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`."""
        operations: list[dict[str, Any]] = [{"do": "add", "id": "a"}]
        for number in range(random.randint(0, 2)):
            operations.append({"do": "arrive", "outputs": [["a", number]], "confirmed": []})
        unread = len(operations) - 1
        end: dict[str, Any] = {"do": "shutdown"}
        if random.random() < 0.6:
            cause = random.choice(("was killed by SIGKILL", "ended with exit code 1"))
            end = {"do": "die", "message": f"The engine process EngineCore_0 {cause} while it was needed."}
        operations += [end, *({"do": "get"} for _ in range(unread + 1))]
        after: list[dict[str, Any]] = [
            {"do": "add", "id": "b"},
            {"do": "abort", "ids": ["a"]},
            {"do": "get"},
            {"do": "utility", "method": random.choice(_METHODS), "args": [], "reply": ["returns", 1]},
        ]
        random.shuffle(after)
        return {"bystander": False, "operations": operations + after}


class UtilityCallsGetTheirOwnAnswer(_Client):
    """A utility call returns its own result, or raises its own error, also if the engine core dies meanwhile."""

    zh = "工具调用返回自己的结果或引发自己的错误，引擎核心中途死亡时也是如此。"
    cases = 4

    def make(self, random: Random) -> Any:
        """See `Check`."""
        operations: list[dict[str, Any]] = []
        for _ in range(3):
            reply = random.choice((["returns", random.randint(1, 99)], ["returns", None], ["fails", "Call failed: no"]))
            method, arguments = random.choice(_METHODS), random.choice(([], [3], ["x", 1]))
            operations.append({"do": "utility", "method": method, "args": arguments, "reply": reply})
        if random.random() < 0.5:
            dies = ["dies", "The engine process EngineCore_0 was killed by SIGKILL while it was needed."]
            operations.append({"do": "utility", "method": "reset_prefix_cache", "args": [], "reply": dies})
        return {"bystander": random.random() < 0.8, "operations": operations}


class TheReceiverServesEveryone(Check):
    """The receiving thread sorts outputs and answers; when the engine core dies, everyone who waits gets the cause."""

    zh = "接收线程分发输出与应答；引擎核心死亡时，每个等待者都得到原因。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        end = random.choice(("fails", "killed", "killed", "shutdown"))
        calls = random.sample(range(10, 99), 3)
        messages: list[dict[str, Any]] = []
        for number in range(0 if end == "shutdown" else random.randint(2, 5)):
            if random.random() < 0.6:
                outputs = [[name, number] for name in random.sample("abc", random.randint(1, 2))]
                messages.append({"type": "outputs", "outputs": outputs})
            else:
                call, failure = random.choice((*calls, 7)), random.choice((None, None, "Call failed: no"))
                messages.append({"type": "answer", "call": call, "failure": failure, "result": random.randint(1, 9)})
        causes = {
            "fails": "RuntimeError: the step broke",
            "killed": "The engine process EngineCore_0 was killed by SIGKILL while it was needed.",
        }
        return {"end": end, "message": causes.get(end, ""), "calls": calls, "messages": messages}

    def run(self, case: Any) -> Any:
        """Return what the thread put into the queue, and the answers to utility calls."""
        return run_receiver(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the queue, then the answers."""
        ends = {
            "fails": "the engine core has sent its error",
            "killed": "the engine core was killed",
            "shutdown": "shutdown",
        }
        ends_zh = {"fails": "引擎核心送出了错误", "killed": "引擎核心被杀死", "shutdown": "关闭"}
        en, zh = ends[case["end"]], ends_zh[case["end"]]
        if output["hangs"]:
            return Failure(
                f"after {len(case['messages'])} messages, {en}: the thread does not end; so far the queue has "
                f"{output['got']}",
                f"{len(case['messages'])} 条消息之后，{zh}：线程没有结束；此时队列为 {output['got']}",
            )
        for number, right in enumerate(expected["got"]):
            got = output["got"][number] if number < len(output["got"]) else None
            if not _alike(got, _cause(case, right)):
                return Failure(
                    f"item {number + 1} of the queue is {got}, expected {right} ({en})",
                    f"队列的第 {number + 1} 项是 {got}，应为 {right}（{zh}）",
                )
        for call, right in expected["answers"].items():
            if not _alike(output["answers"][call], _cause(case, right)):
                return Failure(
                    f"utility call {call} got {output['answers'][call]!r}, expected {right!r} ({en})",
                    f"工具调用 {call} 得到 {output['answers'][call]!r}，应为 {right!r}（{zh}）",
                )
        if len(output["got"]) > len(expected["got"]):
            more = output["got"][len(expected["got"]) :]
            return Failure(f"the queue has {more} behind the error ({en})", f"队列在错误之后还有 {more}（{zh}）")
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out messages."""
        messages = case["messages"]
        for index in range(len(messages)):
            yield case | {"messages": messages[:index] + messages[index + 1 :]}


def _cause(case: Mapping[str, Any], right: Any) -> Any:
    """Return the part of an expected error that matters: its kind and the cause of death."""
    return f"EngineDeadError: {case['message']}" if str(right).startswith("EngineDeadError: ") else right


# -- real processes ---------------------------------------------------------------------------------------------------


def _prompt(random: Random) -> list[int]:
    return [random.randint(300, 3000) for _ in range(random.randint(3, 12))]


class RealProcessesGenerate(Check):
    """An engine core in a process of its own gives each request its tokens, also after it had nothing to do."""

    zh = "独立进程中的引擎核心为每个请求给出其 token，空闲之后也是如此。"
    cases = 2
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        rounds = [[[name, _prompt(random), random.randint(2, 8)] for name in names] for names in ("abc", "d", "ae")]
        return {"rounds": rounds}

    def run(self, case: Any) -> Any:
        """Return the tokens of each round."""
        return run_generation(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with the same model in this process."""
        expected = run_generation(case, in_process())
        for number, (one, other) in enumerate(zip(output["rounds"], expected["rounds"], strict=False), start=1):
            if one == "hangs":
                return Failure(
                    f"round {number} of requests ({_names(sorted(other))}) never ends",
                    f"第 {number} 轮请求（{_names(sorted(other))}）一直不结束",
                )
            for name, tokens in other.items():
                if one.get(name) != tokens:
                    return Failure(
                        f"round {number}: request {name} gets the tokens {one.get(name)}; in one process {tokens}",
                        f"第 {number} 轮：请求 {name} 得到的 token 是 {one.get(name)}；单进程时为 {tokens}",
                    )
        return None


class RealAbortsFreeBlocks(Check):
    """After an abort the engine core has no request and all blocks are free; the id can be used again."""

    zh = "中止之后引擎核心没有请求，全部块空闲；该 id 可以再次使用。"
    cases = 2
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        return {"long": ["a", _prompt(random), 100], "again": ["a", _prompt(random), random.randint(3, 6)]}

    def run(self, case: Any) -> Any:
        """Return the number of requests and of free blocks after the abort, and the tokens of the new request."""
        return run_abort(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with the same model in this process."""
        if output["counts"] == "hangs":
            return Failure(
                "a call never ends after abort_requests(['a'])", "abort_requests(['a']) 之后有调用一直不结束"
            )
        if output["counts"] != [0, 0] or output["free"] != NUM_BLOCKS:
            running = sum(output["counts"])
            return Failure(
                f"after the abort of the only request, {running} is unfinished, and {output['free']} of {NUM_BLOCKS} "
                "blocks are free",
                f"中止唯一的请求之后，仍有 {running} 个请求未完成，{NUM_BLOCKS} 个块中有 {output['free']} 个空闲",
            )
        name, prompt, max_tokens = case["again"]
        right = run_generation({"rounds": [[[name, prompt, max_tokens]]]}, in_process())["rounds"][0][name]
        if output["tokens"] != right:
            return Failure(
                f"a new request with the id of the aborted one: {output['tokens']}; expected the tokens {right}",
                f"与被中止的请求同名的新请求：{output['tokens']}；应得到 token {right}",
            )
        return None


class AKilledEngineIsAnError(Check):
    """After kill -9 of the engine core every call raises EngineDeadError with the cause, and none hangs."""

    zh = "用 kill -9 杀死引擎核心后，每个调用都引发说明原因的 EngineDeadError，没有一个挂起。"
    cases = 1
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        return {"long": ["k", _prompt(random), 110], "outputs": random.randint(1, 3)}

    def run(self, case: Any) -> Any:
        """Return what each call does after the kill."""
        return run_kill(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Each call but abort_requests raises."""
        for name in ("get_output", "get_output again", "add_request", "call_utility", "abort_requests"):
            result = output["results"].get(name, "hangs")
            right = result == "None" if name == "abort_requests" else result.startswith("EngineDeadError:")
            if right and (name == "abort_requests" or "SIGKILL" in result):
                continue
            wanted = "does nothing" if name == "abort_requests" else "raises EngineDeadError, which names SIGKILL"
            wanted_zh = "什么都不做" if name == "abort_requests" else "引发 EngineDeadError，并说明 SIGKILL"
            return Failure(
                f"after kill -9 of the engine core, {name}: {result}; expected: it {wanted}",
                f"kill -9 引擎核心之后，{name}：{result}；应为：{wanted_zh}",
            )
        return None


CHECKS: tuple[Check, ...] = (
    ChoosesTheClient(),
    InprocClientStepsOnce(),
    HandlesAllMessagesBeforeAStep(),
    AnswersAndConfirms(),
    ErrorsEndTheLoop(),
    AbortedOutputsAreDropped(),
    UtilityCallsGetTheirOwnAnswer(),
    TheReceiverServesEveryone(),
    DeadEnginesRaise(),
    RealProcessesGenerate(),
    RealAbortsFreeBlocks(),
    AKilledEngineIsAnError(),
)

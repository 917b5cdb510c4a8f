"""Workloads: a scheduler's settings and requests, run without a model; also used by lab 8.

A workload is a dict with the settings of `DEFAULTS` and `requests`, in the order of their arrival. The id of a request
is its index, counted from `first_id`. `add_before_step` and `abort_before_step` are steps, from 0. `aborts` are further
calls of `finish_requests`, each with `ids` (a str, or a list that may hold unknown ids) and `before_step`, or `in_step`
if the call comes between `schedule` and `update_from_output`. The tokens that the model would generate are given as
`outputs`, so that they are the same whatever the scheduler does; or `model` computes them.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

__all__ = ["DEFAULTS", "EOS", "MOST_STEPS", "Workload", "draw_requests", "recorded", "run", "smaller", "true_tokens"]

Workload = dict[str, Any]

EOS = 1
"""End-of-sequence token."""

MOST_STEPS = 120
"""Steps after which a run is given up."""

DEFAULTS: Workload = {
    "block_size": 8,
    "max_model_len": 64,
    "num_gpu_blocks": 64,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "enable_prefix_caching": False,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
    "first_id": 0,
    "aborts": [],
}
"""Settings that a workload need not give."""

_REQUEST: dict[str, Any] = {
    "max_tokens": 4,
    "min_tokens": 0,
    "stop_token_ids": [],
    "ignore_eos": True,
    "outputs": [],
    "priority": 0,
    "add_before_step": 0,
    "abort_before_step": None,
}
"""What a request need not give; `outputs` goes on with other tokens where it ends."""

_ABORT: dict[str, Any] = {"before_step": None, "in_step": None}


@cache
def recorded(folder: Path) -> dict[str, Workload]:
    """Return the workloads recorded from a real vLLM 0.11.1, by name; `steps` are its decisions."""
    lines = (folder / "recorded.jsonl").read_text(encoding="utf-8").splitlines()
    return {case["name"]: case for case in map(json.loads, lines)}


def draw_requests(random: Random, count: int, *, prompt: tuple[int, int] = (1, 30), shared: float = 0.4) -> list[Any]:
    """Draw requests; a part of them begins with one of two shared prefixes."""
    prefixes = [[random.randrange(10, 99) for _ in range(24)] for _ in range(2)]
    requests = []
    for _ in range(count):
        prefix = random.choice(prefixes)[: random.randint(8, 24)] if random.random() < shared else []
        own = [random.randrange(10, 99) for _ in range(random.randint(*prompt))]
        tokens = (prefix + own)[: max(len(prefix) + 1, len(own))]
        add = random.choice([0, 0, random.randint(0, 8)])
        requests.append(
            {
                "prompt": tokens,
                "max_tokens": random.randint(1, 10),
                "outputs": [random.randrange(10, 99) for _ in range(12)],
                "add_before_step": add,
                "abort_before_step": add + random.randint(1, 5) if random.random() < 0.15 else None,
            }
        )
    return sorted(requests, key=lambda one: one["add_before_step"])


def smaller(case: Workload) -> Iterator[Workload]:
    """Yield workloads without one of the requests, then with shorter outputs."""
    requests = case["requests"]
    for index in range(len(requests)):
        if len(requests) > 1:
            yield case | {"requests": requests[:index] + requests[index + 1 :]}
    for index, spec in enumerate(requests):
        if spec.get("max_tokens", 4) > 1:
            shorter = spec | {"max_tokens": spec.get("max_tokens", 4) // 2}
            yield case | {"requests": [*requests[:index], shorter, *requests[index + 1 :]]}


def run(case: Workload, *, model: bool = False) -> list[dict[str, Any]]:
    """Run a workload until all requests have ended, nothing is scheduled any more, or `MOST_STEPS` are made.

    Returns the state of each step. `scheduled` to `finished` are the decisions by vLLM's names, `outputs` is the result
    of `update_from_output`; the rest is for the invariants.

    Args:
        case: the workload.
        model: True if the tokens are computed from the contents of the KV cache, and `outputs` has no meaning.

    Raises:
        ValueError: the workload has a field that does not exist, or no request.
    """
    _refuse_unknown("a workload", case, {"name": "", "requests": [], **DEFAULTS})
    if not case.get("requests"):
        raise ValueError("a workload has at least one request, in its field 'requests'")
    for spec in case["requests"]:
        _refuse_unknown("a request", spec, {"prompt": [], **_REQUEST})
    for abort in case.get("aborts", []):
        _refuse_unknown("an abort", abort, {"ids": [], **_ABORT})
    return list(_Run(case, model).steps())


def _refuse_unknown(what: str, given: dict[str, Any], known: dict[str, Any]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{what} has no field {unknown[0]!r}; its fields are {', '.join(sorted(known))}")


class _Run:
    """One run: the scheduler, the requests, and the worker."""

    def __init__(self, case: Workload, model: bool) -> None:
        self.case = DEFAULTS | case
        first = self.case["first_id"]
        self.specs = {str(first + index): _REQUEST | spec for index, spec in enumerate(self.case["requests"])}
        self.aborts = [_ABORT | abort for abort in self.case["aborts"]]
        self.scheduler = _make_scheduler(self.case)
        self.requests: dict[str, Any] = {}
        self.ended: list[str] = []
        self.aborted: list[str] = []
        self.worker = _Worker(self.case["block_size"], None if model else self._given_token)

    def _given_token(self, request_id: str, number: int) -> int:
        outputs = self.specs[request_id]["outputs"]
        return int(outputs[number]) if number < len(outputs) else 10 + (7 * number + int(request_id)) % 89

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield the state of each step; the last one has the end of a request that is aborted after it."""
        number, idle, state = 0, 0, dict[str, Any]()
        while number < MOST_STEPS:
            self._add_and_abort(number)
            state |= self._after()
            nothing_comes = len(self.requests) == len(self.specs)
            if len(self.ended) == len(self.specs) or (idle > 1 and nothing_comes) or state["left"]:
                return
            state = self._step(number) | self._after()
            yield state
            number, idle = number + 1, 0 if state["scheduled"] else idle + 1  # idle once: the last one preempted itself

    def _after(self) -> dict[str, Any]:
        queues = ("running", self.scheduler.running), ("waiting", self.scheduler.waiting)
        return {
            "free_after": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "ended_after": list(self.ended),
            "left": [[one.request_id, name] for name, queue in queues for one in queue if one.request_id in self.ended],
            "known_after": list(self.scheduler.requests),
            "aborted_after": {name: str(self.requests[name].status) for name in self.aborted},
        }

    def _add_and_abort(self, number: int) -> None:
        """Add the requests of this step, or the next one if no other is left; abort those of this step."""
        for name, spec in self.specs.items():
            nothing_left = len(self.ended) == len(self.requests)
            if name not in self.requests and (spec["add_before_step"] <= number or nothing_left):
                self.requests[name] = request = _make_request(name, spec, self.case)
                self.scheduler.add_request(request)
            if spec["abort_before_step"] == number and name in self.requests and name not in self.ended:
                self._abort(name)
        self._abort_all("before_step", number)

    def _abort_all(self, when: str, number: int) -> None:
        for abort in self.aborts:
            if abort[when] == number:
                self._abort(abort["ids"])

    def _abort(self, ids: str | list[str]) -> None:
        from tracellm.engine.core.request import RequestStatus

        self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
        names = [ids] if isinstance(ids, str) else ids
        ended = [name for name in dict.fromkeys(names) if name in self.requests and name not in self.ended]
        self.aborted += ended
        self.ended += ended

    def _step(self, number: int) -> dict[str, Any]:
        scheduler, manager = self.scheduler, self.scheduler.kv_cache_manager
        output = scheduler.schedule()
        cached = output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        blocks = {new.req_id: list(new.block_ids[0]) for new in output.scheduled_new_reqs}
        blocks |= {
            name: list(ids[0]) for name, ids in zip(cached.req_ids, cached.new_block_ids, strict=True) if ids and ids[0]
        }
        state = {
            "scheduled": dict(output.num_scheduled_tokens),
            "new": [[new.req_id, new.num_computed_tokens] for new in output.scheduled_new_reqs],
            "resumed": [[name, computed[name]] for name in cached.req_ids if name in cached.resumed_req_ids],
            "computed": computed,
            "blocks": blocks,
            "running": [request.request_id for request in scheduler.running],
            "waiting": [request.request_id for request in scheduler.waiting],
            "statuses": {request.request_id: str(request.status) for request in scheduler.running},
            "previous": sorted(scheduler.prev_step_scheduled_req_ids),
            "free": manager.block_pool.get_num_free_blocks(),
            "finished": sorted(output.finished_req_ids),
            "sent": [*(new.req_id for new in output.scheduled_new_reqs), *cached.req_ids],
            "tables": {name: list(manager.get_block_ids(name)[0]) for name in self.requests},
            "references": [block.ref_cnt for block in manager.block_pool.blocks],
            "ended": list(self.ended),
            "totals": {name: [one.num_computed_tokens, one.num_tokens] for name, one in self.requests.items()},
        }
        sampled, state["fault"] = self.worker.execute(output)
        self._abort_all("in_step", number)
        names = list(output.num_scheduled_tokens)
        by_client = scheduler.update_from_output(output, _make_model_output(names, sampled))
        state["outputs"] = sorted(
            [
                one.request_id,
                list(one.new_token_ids),
                None if one.finish_reason is None else str(one.finish_reason),
                one.stop_reason,
                one.num_cached_tokens,
            ]
            for of_client in by_client.values()
            for one in of_client.outputs
        )
        self.ended += [name for name, _, finish, *_ in state["outputs"] if finish and name not in self.ended]
        state["generated"] = {
            name: [list(one.output_token_ids), one.num_prompt_tokens] for name, one in self.requests.items()
        }
        state["sampled"] = {name: [token] for name, token in sampled.items() if name not in self.aborted}
        return state


class _Worker:
    """The workers' part of a step, with a KV cache that shows what was really computed in each slot.

    The content of a slot depends on the token and on the content of the slot before it, as keys and values do. A token
    that is computed too early, or at a wrong place, gives a content that no correct run has.
    """

    def __init__(self, block_size: int, given: Callable[[str, int], int] | None) -> None:
        self.block_size = block_size
        self.given = given
        self.slots: dict[int, int] = {}
        self.writers: dict[int, list[Any]] = {}
        """Request and position that wrote each slot last."""
        self.tokens: dict[str, list[int]] = {}
        self.prompts: dict[str, int] = {}
        self.tables: dict[str, list[int]] = {}

    def execute(self, output: Any) -> tuple[dict[str, int], list[Any] | None]:
        """Compute the scheduled tokens; return the sampled tokens by request, and the first fault."""
        starts, fault = self._update(output)
        order = sorted((start, name) for name, start in starts.items())  # a shared block may be computed in this step
        for start, name in order:
            fault = fault or self._compute(name, start, output.num_scheduled_tokens.get(name, 0))
        sampled = {}
        for start, name in order:
            tokens, end = self.tokens[name], start + output.num_scheduled_tokens.get(name, 0)
            fault = fault or self._read(name, min(end, len(tokens)))
            if end == len(tokens):
                sampled[name] = self._sample(name)
                tokens.append(sampled[name])
        return sampled, fault

    def _update(self, output: Any) -> tuple[dict[str, int], list[Any] | None]:
        """Take over new and changed requests; return the number of computed tokens of each scheduled one."""
        starts, fault = {}, None
        for new in output.scheduled_new_reqs:
            self.tokens[new.req_id] = list(new.prompt_token_ids)
            self.prompts[new.req_id] = len(new.prompt_token_ids)
            self.tables[new.req_id] = list(new.block_ids[0])
            starts[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        sent = cached.all_token_ids
        for name, ids, start in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            if name not in self.tokens:
                fault = fault or ["unknown", name]
                continue
            if name in cached.resumed_req_ids and sent.get(name) != self.tokens[name]:
                right = sum(one == other for one, other in zip(sent.get(name, []), self.tokens[name], strict=False))
                fault = fault or ["tokens", name, right, len(self.tokens[name])]
            added = list(ids[0]) if ids else []
            self.tables[name] = added if name in cached.resumed_req_ids else self.tables[name] + added
            starts[name] = start
        return starts, fault

    def _slot(self, name: str, position: int) -> int | None:
        table, index = self.tables[name], position // self.block_size
        return table[index] * self.block_size + position % self.block_size if index < len(table) else None

    def _compute(self, name: str, start: int, count: int) -> list[Any] | None:
        """Write the slots of `count` tokens."""
        tokens = self.tokens[name]
        if start + count > len(tokens):
            return ["beyond", name, count, max(0, len(tokens) - start)]
        for position in range(start, start + count):
            slot = self._slot(name, position)
            if slot is None:
                return ["no_slot", name, position, len(self.tables[name])]
            before = self._slot(name, position - 1) if position else None
            self.slots[slot] = _mix(0 if before is None else self.slots.get(before, 0), tokens[position])
            self.writers[slot] = [name, position]
        return None

    def _read(self, name: str, end: int) -> list[Any] | None:
        """Return the first slot before token `end` that does not hold the request's token, as attention sees it."""
        right = 0
        for position, token in enumerate(self.tokens[name][:end]):
            right = _mix(right, token)
            slot = self._slot(name, position)
            if slot is None:
                return ["no_slot", name, position, len(self.tables[name])]
            if self.slots.get(slot) != right:
                return ["stale", name, position, slot, slot // self.block_size, self.writers.get(slot)]
        return None

    def _sample(self, name: str) -> int:
        tokens = self.tokens[name]
        if self.given is not None:
            return self.given(name, len(tokens) - self.prompts[name])
        slots = [self._slot(name, position) for position in range(len(tokens))]
        return _token([0 if slot is None else self.slots.get(slot, 0) for slot in slots])


def true_tokens(spec: dict[str, Any], max_model_len: int) -> list[int]:
    """Return the tokens that the model generates for a request alone, whatever the scheduling."""
    tokens, contents = list(spec["prompt"]), list[int]()
    while True:
        for token in tokens[len(contents) :]:
            contents.append(_mix(contents[-1] if contents else 0, token))
        tokens.append(_token(contents))
        generated = len(tokens) - len(spec["prompt"])
        if generated == spec.get("max_tokens", 4) or len(tokens) == max_model_len:
            return tokens[len(spec["prompt"]) :]


def _mix(before: int, token: int) -> int:
    return (before * 31 + token * 1009 + 17) % 1_000_003


def _token(contents: list[int]) -> int:
    return 10 + sum((index + 1) * content for index, content in enumerate(contents)) % 89


def _make_scheduler(case: Workload) -> Any:
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from tracellm.engine.core.sched.scheduler import Scheduler
    from tracellm.engine.core.structured_output.manager import StructuredOutputManager

    names = ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "enable_chunked_prefill", "policy")
    config: Any = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            **{name: case[name] for name in (*names, "long_prefill_token_threshold")}, async_scheduling=False
        ),
        model_config=SimpleNamespace(max_model_len=case["max_model_len"], max_tokens_per_mm_item=0),
        cache_config=SimpleNamespace(enable_prefix_caching=case["enable_prefix_caching"]),
    )
    dtype: Any = SimpleNamespace(itemsize=4)
    groups = [KVCacheGroupSpec(["layer"], FullAttentionSpec(case["block_size"], 1, 1, dtype))]
    return Scheduler(
        config,
        KVCacheConfig(case["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=groups),
        StructuredOutputManager(config),
    )


def _make_request(name: str, spec: dict[str, Any], case: Workload) -> Any:
    from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
    from tracellm.engine.core.request import Request
    from tracellm.engine.sample.sampling_params import SamplingParams

    params = SamplingParams(
        max_tokens=spec["max_tokens"],
        min_tokens=spec["min_tokens"],
        stop_token_ids=spec["stop_token_ids"],
        ignore_eos=spec["ignore_eos"],
    )
    hasher = get_request_block_hasher(case["block_size"]) if case["enable_prefix_caching"] else None
    return Request(
        name,
        list(spec["prompt"]),
        params,
        EOS,
        arrival_time=float(name),
        priority=spec["priority"],
        block_hasher=hasher,
    )


def _make_model_output(names: list[str], sampled: dict[str, int]) -> Any:
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[sampled[name]] if name in sampled else [] for name in names],
        logprobs=None,
        prompt_logprobs_dict={},
        logits_shape=(len(names), 100),
    )

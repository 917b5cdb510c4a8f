"""Tests of requests whose grammar is not compiled yet: the scheduler skips them, and runs others."""

from concurrent.futures import Future

import numpy as np

from tests.engine.sched.harness import make_request, make_scheduler, reasons_by_request, run_step
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.core.structured_output.request import StructuredOutputGrammar
from tracellm.engine.ipc.messages import FinishReason
from tracellm.engine.sample.sampling_params import StructuredOutputsParams


class Grammar(StructuredOutputGrammar):
    """Grammar that accepts and records every token, and allows ids below the number of accepted tokens."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Record the tokens."""
        self.accepted += tokens
        return True

    def fill_bitmask(self, bitmask: np.ndarray, batch_index: int) -> None:
        """Set as many bits as tokens were accepted."""
        bitmask[batch_index] = (1 << len(self.accepted)) - 1

    def is_terminated(self) -> bool:
        """Return whether an 8 was accepted."""
        return 8 in self.accepted


def constrained(request_id: str, prompt: int = 5, **others) -> Request:
    """Make a request whose grammar is being compiled."""
    request = make_request(request_id, prompt, structured_outputs=StructuredOutputsParams(regex="a"), **others)
    assert request.structured_output_request is not None
    request.structured_output_request.compiling = Future()
    return request


def compile_now(request: Request) -> Grammar:
    """Finish the compilation."""
    grammar = Grammar()
    request.structured_output_request.compiling.set_result(grammar)  # type: ignore[union-attr]
    return grammar


def make(requests: list[Request], **settings) -> Scheduler:
    """Make a scheduler with these requests waiting."""
    scheduler = make_scheduler(**settings)
    for request in requests:
        scheduler.add_request(request)
    return scheduler


def waiting(scheduler: Scheduler) -> list[str]:
    """Return the waiting queue."""
    return [request.request_id for request in scheduler.waiting]


def test_only_constrained_requests_wait_for_a_grammar():
    """Only constrained requests have the status of waiting for a grammar, which is not a finished one."""
    assert constrained("a").status is RequestStatus.WAITING_FOR_FSM
    assert make_request("b", 5).status is RequestStatus.WAITING
    assert make_request("c", 5, structured_outputs=StructuredOutputsParams()).status is RequestStatus.WAITING
    assert not RequestStatus.is_finished(RequestStatus.WAITING_FOR_FSM)


def test_it_is_passed_over_and_told_why():
    """Requests behind it begin, and it begins in the first step in which its grammar is compiled."""
    requests = [constrained("a"), make_request("b", 5)]
    scheduler = make(requests)
    output, _ = run_step(scheduler)
    assert list(output.num_scheduled_tokens) == ["b"]
    assert reasons_by_request(scheduler, output) == {"a": "grammar kind=regex"}
    assert waiting(scheduler) == ["a"]
    compile_now(requests[0])
    output, _ = run_step(scheduler)
    assert list(output.num_scheduled_tokens) == ["b", "a"]
    assert [new.req_id for new in output.scheduled_new_reqs] == ["a"]
    assert reasons_by_request(scheduler, output) == {}


def test_those_passed_over_come_back_in_reverse():
    """Skipped requests return in reverse order, as in vLLM, and those not reached stay behind them."""
    scheduler = make([constrained("a"), constrained("b"), make_request("c", 5), make_request("d", 5)], max_num_seqs=1)
    output, _ = run_step(scheduler)
    assert list(output.num_scheduled_tokens) == ["c"]
    assert waiting(scheduler) == ["b", "a", "d"]
    assert reasons_by_request(scheduler, output) == {
        "a": "grammar kind=regex",
        "b": "grammar kind=regex",
        "d": "max_num_seqs limit=1 running=1",
    }


def test_by_priority_it_keeps_its_place():
    """Under the priority policy a skipped request keeps its position."""
    requests = [constrained("a", priority=0), constrained("b", priority=1), make_request("c", 5, priority=2)]
    scheduler = make(requests, policy="priority")
    assert list(run_step(scheduler)[0].num_scheduled_tokens) == ["c"]
    assert waiting(scheduler) == ["a", "b"]


def test_the_budget_is_not_blamed_on_it():
    """When the budget ends behind a skipped request, the reason names the first request without budget."""
    scheduler = make([constrained("a"), *(make_request(name, 8) for name in "bcd")], max_num_batched_tokens=8)
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "a": "grammar kind=regex",
        "c": "token_budget budget=8 left=0 wanted=8 given=0",
        "d": "behind request=c cause=token_budget",
    }


def test_when_it_is_not_reached_its_grammar_is_not_the_reason():
    """A constrained request behind one that lacks blocks has that as its reason, not its grammar."""
    scheduler = make([make_request("a", 16 * 2), make_request("b", 16 * 2), constrained("c")], num_gpu_blocks=4)
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "b": "no_free_blocks needed=2 free=1",
        "c": "behind request=b cause=no_free_blocks",
    }


def test_it_can_be_aborted_meanwhile():
    """An aborted request leaves the queue, and its grammar is dropped."""
    request = constrained("a")
    scheduler = make([request])
    run_step(scheduler)
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    compile_now(request)
    assert not scheduler.has_unfinished_requests()
    assert run_step(scheduler)[0].num_scheduled_tokens == {}


def test_what_went_wrong_in_the_thread_ends_the_request():
    """A failed compilation ends its request with the error, and no other request."""
    request = constrained("a")
    scheduler = make([request, make_request("b", 5, max_tokens=9)])
    request.structured_output_request.compiling.set_exception(ValueError("no grammar"))  # type: ignore[union-attr]
    output, outputs = run_step(scheduler)
    assert list(output.num_scheduled_tokens) == ["b"]
    failed = {one.request_id: one.stop_reason for one in outputs[0].outputs if one.finish_reason is FinishReason.ERROR}
    assert failed == {"a": "Request 'a': no grammar"}


def test_the_bitmask_has_a_row_for_each_constrained_request():
    """The bitmask has a row for each constrained request, in the step's order; after the end all tokens are allowed."""
    requests = [constrained("a", max_tokens=9), make_request("b", 5, max_tokens=9), constrained("c", max_tokens=9)]
    grammars = [compile_now(request) for request in (requests[0], requests[2])]
    scheduler = make(requests)
    scheduler.structured_output_manager.__dict__["_grammar_bitmask"] = np.zeros((8, 2), dtype=np.int32)
    run_step(scheduler)
    run_step(scheduler, lambda request: 8 if request.request_id == "c" else 7)
    output = scheduler.schedule()
    grammar_output = scheduler.get_grammar_bitmask(output)
    assert grammar_output is not None
    assert grammar_output.structured_output_request_ids == ["a", "c"]
    assert [grammar.accepted for grammar in grammars] == [[7, 7], [7, 8]]
    assert grammar_output.grammar_bitmask.tolist() == [[3, 3], [-1, -1]]


def test_without_constrained_requests_there_is_no_bitmask():
    """Without constrained requests there is no bitmask, and the library is not used."""
    scheduler = make([make_request("a", 5), constrained("b")])
    assert scheduler.get_grammar_bitmask(scheduler.schedule()) is None


def test_a_prompt_in_chunks_moves_no_grammar():
    """A chunked prompt has a row in the bitmask, and its grammar accepts only sampled tokens."""
    request = constrained("a", 20)
    grammar = compile_now(request)
    scheduler = make([request], max_num_batched_tokens=12)
    scheduler.structured_output_manager.__dict__["_grammar_bitmask"] = np.zeros((8, 2), dtype=np.int32)
    output = scheduler.schedule()
    grammar_output = scheduler.get_grammar_bitmask(output)
    assert grammar_output is not None
    assert grammar_output.structured_output_request_ids == ["a"]
    run_step(scheduler)
    assert grammar.accepted == [7]


def test_the_last_token_is_accepted_too():
    """The grammar accepts the token that ends its request, as in vLLM."""
    request = constrained("a", max_tokens=1)
    grammar = compile_now(request)
    scheduler = make([request])
    run_step(scheduler)
    assert request.is_finished()
    assert grammar.accepted == [7]


def test_a_preempted_request_keeps_its_grammar():
    """A preempted request resumes with its grammar's state."""
    requests = [make_request("a", 16, max_tokens=40), constrained("b", 16, max_tokens=40)]
    grammar = compile_now(requests[1])
    scheduler = make(requests, num_gpu_blocks=5)
    while requests[1].status is not RequestStatus.PREEMPTED:
        run_step(scheduler)
    accepted = len(grammar.accepted)
    assert accepted > 0
    while requests[1].status is RequestStatus.PREEMPTED:
        output, _ = run_step(scheduler)
    assert output.scheduled_cached_reqs.resumed_req_ids == {"b"}
    assert grammar.accepted == [7] * (accepted + 1) == list(requests[1].output_token_ids)

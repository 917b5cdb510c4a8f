"""Tests of output queues: outputs, and errors of a request or of the engine."""

import asyncio
from typing import Any

import pytest

from tests.engine.core_requests import core_request
from tracellm.engine.config.errors import EngineDeadError, InvalidRequestError
from tracellm.engine.frontend.output_collector import RequestOutputCollector
from tracellm.engine.frontend.output_processor import OutputProcessor
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.ipc.messages import EngineCoreOutput, FinishReason
from tracellm.engine.metrics.stats import IterationStats
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams

DELTA, CUMULATIVE, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY


def output(*token_ids: int, index: int = 0, reason: str | None = None) -> RequestOutput:
    """Make an output of one sequence, whose text has a letter for each token."""
    text = "".join(chr(ord("a") + token) for token in token_ids)
    completion = CompletionOutput(index, text, list(token_ids), finish_reason=reason)
    return RequestOutput("r", None, [1], None, [completion], finished=reason is not None)


def tokens(output: object) -> dict[int, list[int]]:
    """Return the tokens of each sequence, by its index."""
    assert isinstance(output, RequestOutput)
    return {completion.index: list(completion.token_ids) for completion in output.outputs}


def follow(
    processor: OutputProcessor, name: str, n: int = 1, kind: RequestOutputKind = DELTA
) -> RequestOutputCollector:
    """Add a request, with its children, and return the queue of its outputs."""
    queue = RequestOutputCollector(kind)
    params = SamplingParams(n=n, output_kind=kind, max_tokens=9)
    if n == 1:
        processor.add_request(core_request(name, [1, 2], params), None, queue=queue)
        return queue
    parent = ParentRequest(name, params)
    for index, (child, child_params) in enumerate([parent.get_child_info(index) for index in range(n)]):
        processor.add_request(core_request(child, [1, 2], child_params), None, parent, index, queue)
    return queue


def test_a_failed_request_counts_as_failed_and_has_no_first_token():
    """The step's statistics count a failed request as finished by an error, without times of tokens."""
    processor = OutputProcessor(None, log_stats=True)
    follow(processor, "a")
    stats = IterationStats()
    processor.process_outputs([EngineCoreOutput("a", [], finish_reason=FinishReason.ERROR)], 1.0, stats)
    assert [request.finish_reason for request in stats.finished_requests] == [FinishReason.ERROR]
    assert (stats.time_to_first_tokens_iter, stats.num_prompt_tokens) == ([], 0)


@pytest.fixture
def processor() -> OutputProcessor:
    """A processor without tokenizer and statistics."""
    return OutputProcessor(None, log_stats=False)


def test_deltas_add_up_until_they_are_taken():
    """Deltas are merged for each sequence until they are read."""
    queue = RequestOutputCollector(DELTA)
    for part in (output(0), output(5, index=1), output(1, 2), output(3, reason="length")):
        queue.put(part)
    taken = queue.get_nowait()
    assert tokens(taken) == {0: [0, 1, 2, 3], 1: [5]}
    assert taken is not None
    assert (taken.outputs[0].text, taken.outputs[0].finish_reason, taken.finished) == ("abcd", "length", True)
    assert queue.get_nowait() is None
    queue.put(output(4))
    assert tokens(queue.get_nowait()) == {0: [4]}


def test_of_cumulative_outputs_the_latest_counts():
    """The latest cumulative output of each sequence replaces the one before."""
    queue = RequestOutputCollector(CUMULATIVE)
    for part in (output(0), output(0, 1), output(7, index=2), output(0, 1, 2)):
        queue.put(part)
    assert tokens(queue.get_nowait()) == {0: [0, 1, 2], 2: [7]}


def test_an_error_stays_until_it_is_raised():
    """An error replaces the outputs before it, and outputs after it do not replace it."""
    queue = RequestOutputCollector(DELTA)
    queue.put(output(0))
    queue.put(InvalidRequestError("first"))
    queue.put(output(1))
    queue.put(EngineDeadError("second"))
    with pytest.raises(InvalidRequestError, match="first"):
        queue.get_nowait()
    assert queue.get_nowait() is None


def test_a_waiting_reader_is_woken():
    """An output or an error wakes a waiting reader."""

    async def read() -> None:
        queue = RequestOutputCollector(DELTA)
        queue.put(output(0))
        assert tokens(await queue.get()) == {0: [0]}
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.put(output(1))
        assert tokens(await waiting) == {0: [1]}
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put(EngineDeadError("gone"))
        with pytest.raises(EngineDeadError, match="gone"):
            await waiting

    asyncio.run(asyncio.wait_for(read(), 30))


def test_each_output_goes_to_its_own_queue(processor):
    """A request with a queue gets its outputs there, and others are returned."""
    queues = {name: follow(processor, name) for name in "ab"}
    processor.add_request(core_request("c", [1], SamplingParams(max_tokens=3)), None)
    processed = processor.process_outputs([EngineCoreOutput(name, [index]) for index, name in enumerate("abc")])
    assert [tokens(queue.get_nowait()) for queue in queues.values()] == [{0: [0]}, {0: [1]}]
    assert [output.request_id for output in processed.request_outputs] == ["c"]


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
@pytest.mark.parametrize("n", [1, 3])
def test_what_is_aborted_ends_with_an_output(processor, n, kind):
    """An aborted request gets a last output with its reason, for each of its sequences."""
    queue = follow(processor, "r", n, kind)
    names = ["r"] if n == 1 else [f"{index}_r" for index in range(n)]
    processor.process_outputs([EngineCoreOutput(name, [5]) for name in names])
    assert processor.abort_requests(["r", "unknown"]) == names
    last = queue.get_nowait()
    assert tokens(last) == {index: [5] for index in range(n)}
    assert last is not None
    assert last.finished
    assert [completion.finish_reason for completion in last.outputs] == ["abort"] * n
    assert not processor.has_unfinished_requests()
    assert not processor.parent_requests
    assert processor.abort_requests(["r"]) == []


def test_an_error_of_the_engine_core_ends_one_request(processor):
    """An error of the engine core is raised to its reader, the other sequences are aborted, and others continue."""
    alone, several, other = follow(processor, "alone"), follow(processor, "several", 3), follow(processor, "other")
    why: dict[str, Any] = {"finish_reason": FinishReason.ERROR, "stop_reason": "no token is left"}
    failed: list[Any] = [EngineCoreOutput(name, [], **why) for name in ("alone", "1_several")]
    processed = processor.process_outputs([*failed, EngineCoreOutput("2_several", [3]), EngineCoreOutput("other", [4])])
    assert processed.reqs_to_abort == ["0_several", "2_several"]
    for queue in (alone, several):
        with pytest.raises(InvalidRequestError, match="no token is left"):
            queue.get_nowait()
    assert tokens(other.get_nowait()) == {0: [4]}
    assert (list(processor.request_states), processor.parent_requests) == (["other"], {})


def test_a_fault_while_its_output_is_made_ends_one_request(processor):
    """A fault while an output is made is raised to its reader, the request is aborted, and others continue."""
    broken, other = follow(processor, "broken"), follow(processor, "other")
    processor.request_states["broken"].detokenizer = None  # fault
    processed = processor.process_outputs([EngineCoreOutput("broken", [3]), EngineCoreOutput("other", [4])])
    assert processed.reqs_to_abort == ["broken"]
    with pytest.raises(AttributeError):
        broken.get_nowait()
    assert tokens(other.get_nowait()) == {0: [4]}


def test_when_the_engine_dies_everybody_is_told(processor):
    """When the engine dies each reader gets its own error with the same message, and no request is left."""
    queues = [follow(processor, name, n) for name, n in (("a", 1), ("b", 2), ("c", 1))]
    assert processor.propagate_error(EngineDeadError("it was killed")) == ["a", "0_b", "1_b", "c"]
    errors = []
    for queue in queues:
        with pytest.raises(EngineDeadError, match="it was killed") as caught:
            queue.get_nowait()
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 3
    assert not processor.has_unfinished_requests()


def test_whose_request_it_is(processor):
    """A request whose id was reused is identified by its queue."""
    first = follow(processor, "r")
    assert processor.has_queue("r", first)
    processor.abort_requests(["r"])
    second = follow(processor, "r", 2)
    assert not processor.has_queue("r", first)
    assert processor.has_queue("r", second)

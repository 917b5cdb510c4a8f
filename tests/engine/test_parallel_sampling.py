"""Tests of `n > 1`: ids and seeds of the children, their merged outputs, and cleanup."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.watch import is_idle
from tracellm import LLM, RequestOutput, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.frontend.outputs import CompletionOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.metrics.stats import IterationStats
from tracellm.engine.sample.sampling_params import RequestOutputKind

PROMPT: dict[str, Any] = {"prompt_token_ids": [*range(2, 42)]}


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """Shared LLM; each test leaves it idle."""
    return LLM(str(qwen2_checkpoint), dtype="float32", disable_log_stats=False)


def drawn(**arguments: Any) -> SamplingParams:
    """Return parameters for random sampling up to `max_tokens`."""
    return SamplingParams(**{"temperature": 1.5, "max_tokens": 6, "ignore_eos": True} | arguments)


def token_ids(output: RequestOutput) -> list[list[int]]:
    """Return the tokens of each sequence."""
    return [list(completion.token_ids) for completion in output.outputs]


def test_each_output_is_that_of_a_request_with_its_seed(llm):
    """With a seed, the i-th of n outputs is that of a single request with seed + i."""
    together = llm.generate(PROMPT, drawn(n=3, seed=10))[0]
    alone = [token_ids(llm.generate(PROMPT, drawn(seed=10 + index))[0])[0] for index in range(3)]
    assert token_ids(together) == alone
    assert len({tuple(ids) for ids in alone}) == 3
    assert [completion.index for completion in together.outputs] == [0, 1, 2]


def test_without_a_seed_the_outputs_differ(llm):
    """Without a seed the children's outputs differ."""
    outputs = llm.generate([PROMPT, PROMPT], drawn(n=4, max_tokens=10))
    assert len({tuple(ids) for output in outputs for ids in token_ids(output)}) == 8


def test_one_output_for_each_prompt_in_their_order(llm):
    """Prompts with one output and with many can be mixed, and ids count prompts."""
    params = [drawn(n=2), drawn(), drawn(n=3)]
    before = int(llm.generate("x", drawn(max_tokens=1))[0].request_id)
    outputs = llm.generate(["a", PROMPT, "c"], params)
    assert [len(output.outputs) for output in outputs] == [2, 1, 3]
    assert [output.prompt for output in outputs] == ["a", None, "c"]
    assert [int(output.request_id) - before for output in outputs] == [1, 2, 3]
    assert all(output.finished and all(c.finished() for c in output.outputs) for output in outputs)
    assert is_idle(llm)


def test_the_children_share_the_prompts_blocks(llm):
    """The children share the prompt's blocks through the prefix cache."""
    llm.reset_prefix_cache()
    core = llm.llm_engine.engine_core.engine_core
    llm.llm_engine.add_request("p", PROMPT, drawn(n=3))
    blocks = core.scheduler.kv_cache_manager
    llm.llm_engine.step()
    held = [blocks.get_block_ids(f"{index}_p")[0] for index in range(3)]
    assert held[0][:2] == held[1][:2] == held[2][:2]
    assert len({ids[2] for ids in held}) == 3
    llm.llm_engine.abort_request(["p"])
    assert is_idle(llm)


def test_what_the_processor_completes_holds_for_all_children(llm):
    """`max_tokens=None` and bad words hold for all children, unlike in vLLM 0.11.1."""
    prompt = {"prompt_token_ids": [5] * 250}
    assert [len(ids) for ids in token_ids(llm.generate(prompt, drawn(n=2, max_tokens=None))[0])] == [6, 6]
    (letter,) = llm.get_tokenizer().encode("a", add_special_tokens=False)
    favoured = {"n": 2, "logit_bias": {letter: 100.0}}
    assert token_ids(llm.generate(PROMPT, drawn(**favoured))[0]) == [[letter] * 6] * 2
    assert letter not in chain(*token_ids(llm.generate(PROMPT, drawn(**favoured, bad_words=["a"]))[0]))


def test_outputs_that_end_at_different_times(llm):
    """The output comes when the last child has finished, with each child's own finish reason."""
    free = llm.generate(PROMPT, drawn(n=3, seed=20, max_tokens=8))[0]
    stop = token_ids(free)[1][2]
    output = llm.generate(PROMPT, drawn(n=3, seed=20, max_tokens=8, stop_token_ids=[stop]))[0]
    for before, completion in zip(token_ids(free), output.outputs, strict=True):
        ends = before.index(stop) + 1 if stop in before else 8
        assert list(completion.token_ids) == before[:ends]
        assert completion.finish_reason == ("stop" if stop in before else "length")
    assert output.outputs[1].finish_reason == "stop"
    assert is_idle(llm)


@pytest.mark.parametrize("kind", [RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA])
def test_while_they_run(llm, kind):
    """A streamed output is that of one child under the parent's id, and finished when all children are."""
    expected = token_ids(llm.generate(PROMPT, drawn(n=2, seed=5))[0])
    llm.llm_engine.add_request("s", PROMPT, drawn(n=2, seed=5, output_kind=kind))
    seen: list[list[list[int]]] = [[], []]
    finished = []
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            assert output.request_id == "s"
            (completion,) = output.outputs
            seen[completion.index].append(list(completion.token_ids))
            finished.append(output.finished)
    assert [len(steps) for steps in seen] == [6, 6]
    got = [steps[-1] if kind is RequestOutputKind.CUMULATIVE else list(chain(*steps)) for steps in seen]
    assert got == expected
    assert finished == [False] * 11 + [True]
    assert is_idle(llm)


def test_aborting_the_parent_aborts_its_children(llm):
    """Aborting the parent aborts all children, and an aborted child leaves the others running."""
    engine = llm.llm_engine
    engine.add_request("whole", PROMPT, drawn(n=3, output_kind=RequestOutputKind.FINAL_ONLY))
    engine.add_request("part", PROMPT, drawn(n=3, output_kind=RequestOutputKind.FINAL_ONLY))
    engine.step()
    assert engine.get_num_unfinished_requests() == 6
    engine.abort_request(["whole", "1_part"])
    assert engine.get_num_unfinished_requests() == 2
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    (output,) = outputs
    assert (output.request_id, output.finished) == ("part", True)
    assert [completion.index for completion in output.outputs] == [0, 2]
    assert is_idle(llm)


def test_a_request_that_can_never_run_leaves_no_children(qwen2_checkpoint):
    """When the engine core refuses a request for its size, no child is left, and the LLM still works."""
    llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=4)
    with pytest.raises(InvalidRequestError, match="can never run"):
        llm.generate({"prompt_token_ids": [1] * 100}, drawn(n=3))
    assert is_idle(llm)
    assert len(llm.generate("a", drawn(n=3))[0].outputs) == 3


def test_ids_in_use_are_refused(llm):
    """An id of a running parent or child is refused, and the running request continues."""
    engine = llm.llm_engine
    engine.add_request("1_x", PROMPT, drawn())
    for n in (1, 2):
        engine.add_request("y", PROMPT, drawn(n=2)) if n == 1 else None
        with pytest.raises(InvalidRequestError, match="Request id y already running"):
            engine.add_request("y", PROMPT, drawn(n=n))
    with pytest.raises(InvalidRequestError, match="Request id x already running"):
        engine.add_request("x", PROMPT, drawn(n=2))  # its second child would be 1_x
    assert sorted(engine.output_processor.request_states) == ["0_y", "1_x", "1_y"]
    assert sorted(engine.output_processor.parent_requests) == ["y"]
    engine.abort_request(["1_x", "y"])
    assert is_idle(llm)


def test_an_error_in_a_step_drops_all_children(llm, monkeypatch):
    """An error in a step leaves no parent and no child."""

    def fail(*args, **kwargs):
        raise MemoryError("no room")

    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_model_forward", fail)
        with pytest.raises(EngineError, match="no memory for a step"):
            llm.generate([PROMPT, "b"], drawn(n=2))
    assert is_idle(llm)


def test_the_progress_bar_counts_outputs(llm):
    """The progress bar counts outputs."""
    counted = []

    class Bar:
        def __init__(self, **arguments: Any) -> None:
            counted.append(arguments["total"])

        def update(self, n: int) -> None:
            counted.append(n)

        def close(self) -> None:
            pass

    llm.generate(["a", "b"], [drawn(n=3), drawn()], use_tqdm=Bar)
    assert counted[0] == sum(counted[1:]) == 4


def completion(index: int, reason: str | None = None) -> CompletionOutput:
    """Make an output of the child at `index`."""
    return CompletionOutput(
        index=index, text="", token_ids=[], cumulative_logprob=None, logprobs=None, finish_reason=reason
    )


def test_a_finished_child_is_shown_once():
    """The output of a child that finished before is not streamed again."""
    parent = ParentRequest("p", SamplingParams(n=2))
    names = [parent.get_child_info(index)[0] for index in range(2)]
    done = completion(0, "stop")
    assert parent.get_outputs(names[0], done) == ("p", [done], False)
    assert parent.get_outputs(names[0], done) == ("p", [], False)
    last = completion(1, "length")
    assert parent.get_outputs(names[1], last) == ("p", [last], True)


@given(st.permutations(range(4)))
def test_in_whatever_order_they_finish(order):
    """The final output has the children by index, and comes with the last of them in any order."""
    parent = ParentRequest("p", SamplingParams(n=4, output_kind=RequestOutputKind.FINAL_ONLY))
    names = [parent.get_child_info(index)[0] for index in range(4)]
    for index in order[:-1]:
        assert parent.get_outputs(names[index], completion(index, "stop")) == ("p", [], False)
    _, outputs, finished = parent.get_outputs(names[order[-1]], completion(order[-1], "stop"))
    assert finished
    assert [output.index for output in outputs] == [0, 1, 2, 3]


def test_the_statistics_count_requests_not_children():
    """A parent is counted when its last child finishes, with its n and the most tokens of a child."""
    stats = IterationStats()
    parent = ParentRequest("p", SamplingParams(n=2))
    names = [parent.get_child_info(index)[0] for index in range(2)]
    for name, num_tokens in zip(names, (9, 4), strict=True):
        parent.get_outputs(name, completion(names.index(name), "stop"))
        ParentRequest.observe_finished_request(parent, stats, num_tokens)
    ParentRequest.observe_finished_request(None, stats, 3)
    assert (stats.n_params_iter, stats.max_num_generation_tokens_iter) == ([2, 1], [9, 3])

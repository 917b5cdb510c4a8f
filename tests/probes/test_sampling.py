"""Recorded sampling: parameters, processors, tokens left, n outputs, times."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.sample.sampling_params import StructuredOutputsParams
from tracellm.probes.catalog.engine.runner import likeliest, token_ids
from tracellm.probes.catalog.sampling_options import active_processors, changed_parameters, logit_options
from tracellm.probes.recording import Recording
from tracellm.report.facts.requests import request_times, requests
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import Sampled, steps

ASKED = {
    "greedy": SamplingParams(temperature=0, max_tokens=4),
    "random": SamplingParams(temperature=0.7, top_k=3, seed=1, max_tokens=4, logprobs=0, ignore_eos=True),
    "allowed": SamplingParams(temperature=0, allowed_token_ids=[5, 6, 7], max_tokens=4, logprobs=0),
    "biased": SamplingParams(temperature=0, logit_bias={9: 100.0}, presence_penalty=0.5, max_tokens=4, logprobs=0),
    "grammar": SamplingParams(
        temperature=0, structured_outputs=StructuredOutputsParams(choice=["yes", "no"]), max_tokens=4, logprobs=0
    ),
    "two": SamplingParams(n=2, temperature=1.0, top_p=0.5, seed=3, max_tokens=3, logprobs=0, ignore_eos=True),
}


@dataclass
class Sampling:
    """The recording, and the outputs by the names of ASKED."""

    trace: Trace
    outputs: dict[str, RequestOutput]
    stats: dict[str, Any]

    def tokens(self, request_id: str) -> list[Sampled]:
        """Return the tokens of one request."""
        return [one for step in steps(self.trace) for one in step.sampled if one.request_id == request_id]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Sampling:
    """Run all of ASKED in one batch, on an engine made before the recording."""
    folder = tmp_path_factory.mktemp("sampling")
    llm = LLM(max_model_len=64, num_gpu_blocks_override=64, logprobs_mode="processed_logprobs", disable_log_stats=False)
    with Recording(folder) as recording:
        outputs = llm.generate(["The sky is"] * len(ASKED), list(ASKED.values()))
    return Sampling(RunFolder.open(folder).trace, dict(zip(ASKED, outputs, strict=True)), recording.stats)


def test_nothing_went_wrong(run: Sampling):
    """No probe failed or was missing."""
    assert (run.stats["problems"], run.stats["missing"]) == ([], [])


def test_an_engine_made_before_is_known_all_the_same(run: Sampling):
    """Token texts and the model are recorded for an LLM older than the recording."""
    assert [one.text for one in run.tokens("0")] == [" blue", ".", "<|endoftext|>"]
    assert all(one.attributes[names.GEN_AI_MODEL] == "tiny" for one in run.trace.named(names.REQUEST_SPAN))


def test_what_acted_on_the_logits(run: Sampling):
    """Each token names the processors of its own request, or none if nothing changed the logits."""
    acted = {name: {one.processors for one in run.tokens(str(i))} for i, name in enumerate(ASKED)}
    assert acted == {
        "greedy": {()},
        "random": {("temperature", "top_k")},
        "allowed": {("allowed_token_ids",)},
        "biased": {("logit_bias", "presence_penalty")},
        "grammar": {("structured_outputs",)},
        "two": set(),
    }
    assert {one.processors for child in ("0_5", "1_5") for one in run.tokens(child)} == {("top_p",)}


def test_how_many_tokens_were_left(run: Sampling):
    """The number of tokens left follows from each parameter, and the likeliest are recorded."""
    of = {name: run.tokens(str(i)) for i, name in enumerate(ASKED)}
    vocabulary = of["greedy"][0].tokens_left
    assert vocabulary == 4096
    assert all(one.tokens_left is not None and 3 <= one.tokens_left < 10 for one in of["random"])  # more in a tie
    assert [one.tokens_left for one in of["allowed"]] == [3] * 4
    assert all(one.tokens_left == vocabulary for one in of["biased"])
    assert all(one.tokens_left is not None and 0 < one.tokens_left < 20 for one in of["grammar"])
    for one in of["allowed"]:
        assert {token for token, _, probability in one.drawn_candidates if probability} <= {5, 6, 7}


def test_a_grammar_alone_leaves_few_tokens(tmp_path: Path):
    """A batch of greedy requests has the tokens that its grammar allows, also if nothing else changes the logits."""
    llm = LLM(max_model_len=64, num_gpu_blocks_override=64)
    choice = StructuredOutputsParams(choice=["yes", "no"])
    with Recording(tmp_path):
        llm.generate("The sky is", SamplingParams(temperature=0, structured_outputs=choice, max_tokens=4))
    first = next(one for step in steps(RunFolder.open(tmp_path).trace) for one in step.sampled)
    assert first.tokens_left is not None
    assert 0 < first.tokens_left < 20


def test_the_mask_of_a_grammar(run: Sampling):
    """A request with a grammar has the allowed tokens, and the likeliest token of the same prompt without one."""
    [free, *_], [masked, *_] = run.tokens("0"), run.tokens("4")
    mask = masked.grammar
    assert mask is not None
    assert mask.num_allowed == masked.tokens_left == len(mask.allowed) > 1
    assert {piece for _, piece, _ in mask.allowed} <= {"y", "ye", "yes", "n", "no"}
    assert masked.token_id == mask.allowed[0][0]
    assert mask.forbidden == mask.likeliest
    assert mask.forbidden is not None
    assert mask.forbidden[:2] == (free.token_id, free.text)
    assert mask.forbidden[2] == pytest.approx(free.probability, abs=1e-5)
    of_model = masked.candidates[0][2] * mask.share
    assert mask.allowed[0][2] == pytest.approx(of_model, abs=1e-6)
    assert {one.grammar for name in ("0", "1", "2", "3") for one in run.tokens(name)} == {None}
    [call, *_] = run.trace.named("apply_grammar_bitmask")
    assert call.attributes[names.RESULT] == f"{mask.num_allowed} of 4096 tokens allowed"


def test_probabilities_are_those_the_caller_is_told(run: Sampling):
    """The recorded probability matches the log probability in the output."""
    for name, ids in (*((name, [str(i)]) for i, name in enumerate(ASKED) if name != "two"), ("two", ["0_5", "1_5"])):
        for completion, request_id in zip(run.outputs[name].outputs, ids, strict=True):
            if completion.logprobs is None:
                continue
            actual = [one.drawn_probability for one in run.tokens(request_id)]
            reported = [
                math.exp(at[token].logprob) for at, token in zip(completion.logprobs, completion.token_ids, strict=True)
            ]
            assert actual == pytest.approx(reported, abs=2e-6), name


def test_outputs_of_one_request(run: Sampling):
    """With n = 2 there are two request spans, and none for the parent."""
    lives = {one.id: one for one in requests(run.trace.spans)}
    assert {id for id in lives if "_" in id} == {"0_5", "1_5"}
    assert "5" not in lives
    for completion in run.outputs["two"].outputs:
        life = lives[f"{completion.index}_5"]
        assert (life.parent, life.index, life.output, life.output_tokens) == ("5", completion.index, completion.text, 3)
        assert life.finish_reason == completion.finish_reason == "length"
        assert ("n", "2") in life.params


def test_parameters_that_were_chosen(run: Sampling):
    """Only parameters that differ from their defaults are recorded."""
    params = {one.id: dict(one.params) for one in requests(run.trace.spans)}
    assert params["0"] == {"max_tokens": "4", "temperature": "0"}
    assert params["1"] == {
        "max_tokens": "4", "temperature": "0.7", "top_k": "3", "seed": "1", "logprobs": "0", "ignore_eos": "True"
    }  # fmt: skip
    assert params["4"]["structured_outputs"] == "choice=['yes', 'no']"


def test_times_agree_with_the_engines(run: Sampling):
    """Prefill and decode times match the engine's metrics to within a step."""
    times = request_times(run.trace)
    for index, output in enumerate(list(run.outputs.values())[:5]):
        actual, stats = times[str(index)], output.metrics
        assert stats is not None
        spans = [step.span for step in steps(run.trace) if any(one.request_id == str(index) for one in step.requests)]
        longest = max(span.duration_ns for span in spans) / 1e9
        for mine, engines in ((actual.prefill, stats.prefill_time), (actual.decode, stats.decode_time)):
            assert mine is not None
            # the engine reads its clock within the steps, the trace around them
            assert abs(mine - engines) <= longest
        assert actual.queued is not None
        assert actual.prefill is not None
        assert actual.first_token == pytest.approx(actual.queued + actual.prefill)


def test_texts_are_private():
    """Parameters that hold user text are kept apart."""
    params = SamplingParams(
        top_k=4, stop=["secret"], bad_words=["word"], structured_outputs=StructuredOutputsParams(regex="a+"), seed=0
    )
    assert changed_parameters(params) == (
        ["top_k=4", "seed=0"],
        ["stop=['secret']", "bad_words=['word']", "structured_outputs=regex=a+"],
    )
    assert names.REQUEST_TEXT_PARAMS in names.PRIVATE
    assert changed_parameters(SamplingParams(stop_token_ids=[0, 7]), frozenset({0})) == (["stop_token_ids=[7]"], [])


def test_processors_end_when_their_parameter_does():
    """min_tokens is listed until it is reached; greedy rows have no temperature, top_k, top_p or min_p."""
    params = SamplingParams(temperature=0.5, min_tokens=2, min_p=0.1, repetition_penalty=1.5)
    assert active_processors(logit_options(params), 1) == (
        "min_tokens",
        "repetition_penalty",
        "temperature",
        "min_p",
    )
    assert active_processors(logit_options(params), 2) == (
        "repetition_penalty",
        "temperature",
        "min_p",
    )
    greedy = SamplingParams(temperature=0, top_k=3, top_p=0.5, frequency_penalty=1.0)
    assert active_processors(logit_options(greedy), 0) == ("frequency_penalty",)


def test_no_text_leaves_no_candidate(tmp_path: Path):
    """Without text, the number of tokens left is recorded but no texts."""
    llm = LLM(max_model_len=64, num_gpu_blocks_override=32)
    form = StructuredOutputsParams(choice=["Xylophone"])
    with Recording(tmp_path, text=False):
        llm.generate("Hi", SamplingParams(max_tokens=2, structured_outputs=form, seed=1))
    trace = RunFolder.open(tmp_path).trace
    [first, *_] = [one for step in steps(trace) for one in step.sampled]
    assert first.processors == ("structured_outputs",)
    assert first.tokens_left == 1 or first.tokens_left
    assert first.drawn_candidates == []
    assert first.grammar is not None
    assert (first.grammar.num_allowed, first.grammar.likeliest) == (first.tokens_left, None)
    assert b"Xylo" not in b"".join(file.read_bytes() for file in (tmp_path / "trace").iterdir())


@pytest.mark.parametrize("vocabulary", [3, 64, 320, 4096, 8256, 9000, 16_384])
@pytest.mark.parametrize("rows", [0, 1, 7, 520])
def test_the_likeliest_tokens(vocabulary: int, rows: int):
    """The likeliest tokens are those of `topk` for every vocabulary size."""
    import torch

    generator = torch.Generator().manual_seed(vocabulary)
    for probabilities in (
        torch.rand(rows, vocabulary, generator=generator),
        -torch.arange(vocabulary).expand(rows, -1),
    ):
        found = likeliest(probabilities)
        values, ids = probabilities.topk(min(5, vocabulary), dim=-1)
        assert found[0] == values.tolist()
        actual = torch.tensor(token_ids(found), dtype=torch.int64).reshape(ids.shape)
        assert torch.equal(probabilities.gather(1, actual), values)
        assert all(len({*row}) == len(row) for row in token_ids(found))


def test_of_many_values_only_the_first_are_looked_at() -> None:
    """Only the first of a long list of allowed tokens are formatted."""

    class Unread:
        def __repr__(self) -> str:
            raise AssertionError("this value is not formatted")

    actual = "allowed_token_ids=" + str([7] * 300)
    params = SamplingParams()
    params.allowed_token_ids = [*[7] * 300, *[Unread()] * 1000]  # type: ignore[list-item]
    assert changed_parameters(params) == ([actual[:300]], [])
    params = SamplingParams()
    params.logit_bias = {**dict.fromkeys(range(300), 1.0), 300: Unread()}  # type: ignore[dict-item]
    [bias], _ = changed_parameters(params)
    assert bias.startswith("logit_bias={0: 1.0, 1: 1.0, ")

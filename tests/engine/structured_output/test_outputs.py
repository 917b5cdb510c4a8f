"""Tests that outputs satisfy their constraint, for any sampling and in combination with other parameters."""

import json
import math
import re
from typing import Any

import pytest

from tests.engine.structured_output.conftest import core_of
from tests.engine.structured_output.constraints import CASES, Case, is_sum
from tracellm import LLM, SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

PROMPT = "Say 你好 😀:"


def constrained(case: Case, **others) -> SamplingParams:
    """Make parameters that leave room to satisfy every constraint of CASES."""
    return SamplingParams(structured_outputs=case.structured_outputs(), **({"max_tokens": 120} | others))


def completions(llm: LLM, prompts, params) -> list:
    """Return the first completion of each output."""
    return [output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_constraint_is_met(llm, case):
    """Outputs satisfy their constraints greedily and at high temperatures, in one batch."""
    params = [constrained(case, temperature=0)]
    params += [constrained(case, temperature=t, seed=seed) for t in (1.0, 9.0) for seed in range(4)]
    for completion in completions(llm, [PROMPT] * len(params), params):
        assert completion.finish_reason == "stop"
        assert case.holds(completion.text), completion.text


def test_random_draws_reach_all_that_is_allowed(llm):
    """Every allowed choice is drawn at some point."""
    case = Case("", {"choice": ["aa", "bb", "东"]}, bool)
    params = [constrained(case, temperature=9.0, seed=seed) for seed in range(24)]
    assert {completion.text for completion in completions(llm, [PROMPT] * 24, params)} == {"aa", "bb", "东"}


def test_any_json_object(llm):
    """`json_object=True` allows every JSON object, and nothing else."""
    case = Case("", {"json_object": True, "disable_any_whitespace": True}, bool)
    bias = {llm.get_tokenizer().encode("}")[0]: 4.0, llm.get_tokenizer().encode('"')[0]: 4.0}
    params = [constrained(case, temperature=1.0, seed=seed, logit_bias=bias) for seed in range(8)]
    ended = [c.text for c in completions(llm, [PROMPT] * 8, params) if c.finish_reason == "stop"]
    assert len(ended) >= 4
    assert all(isinstance(json.loads(text), dict) for text in ended)


def test_neighbours_are_left_alone(llm):
    """Unconstrained requests get the same tokens as without constrained neighbours, greedy and seeded."""
    free = [SamplingParams(temperature=t, seed=3, max_tokens=20, ignore_eos=True) for t in (0, 1.0, 3.0)]
    prompts = ["one", "another one", "东京"]
    alone = [list(c.token_ids) for c in completions(llm, prompts, free)]
    mixed_prompts, mixed = [], []
    for prompt, params, case in zip(prompts, free, CASES, strict=False):
        mixed_prompts += [PROMPT, prompt, PROMPT]
        mixed += [constrained(case, temperature=1.0, seed=1), params, constrained(case, temperature=0)]
    assert [list(c.token_ids) for c in completions(llm, mixed_prompts, mixed)[1::3]] == alone


def test_several_outputs_of_one_prompt(llm):
    """With n > 1 each output has its own grammar state."""
    params = constrained(Case("", {"regex": "[a-z]{4}"}, bool), n=6, temperature=9.0, seed=0)
    texts = [completion.text for completion in llm.generate(PROMPT, params, use_tqdm=False)[0].outputs]
    assert len(texts) == 6
    assert all(re.fullmatch("[a-z]{4}", text) for text in texts)
    assert len(set(texts)) == 6


def test_cut_short_it_is_a_beginning(llm):
    """With too few tokens the output ends by length, as a prefix of the full output."""
    whole = completions(llm, PROMPT, constrained(CASES[7], temperature=0))[0]
    for max_tokens in (1, 5):
        cut = completions(llm, PROMPT, constrained(CASES[7], temperature=0, max_tokens=max_tokens))[0]
        assert cut.finish_reason == "length"
        assert list(cut.token_ids) == list(whole.token_ids)[:max_tokens]


def test_stop_strings_still_end_it(llm):
    """A stop string ends the output in the middle of the constraint."""
    params = constrained(Case("", {"regex": "abc[a-z]{3,9}"}, bool), temperature=0, stop="c")
    completion = completions(llm, PROMPT, params)[0]
    assert (completion.text, completion.finish_reason, completion.stop_reason) == ("ab", "stop", "c")


def test_min_tokens_puts_off_the_end(llm):
    """`min_tokens` decides when the constraint allows both an end and more tokens."""
    case = Case("", {"regex": "(ab)*"}, bool)
    bias = {llm.get_tokenizer().eos_token_id: 50.0}
    at_once, later = completions(
        llm,
        [PROMPT] * 2,
        [constrained(case, temperature=0, logit_bias=bias, min_tokens=least) for least in (0, 5)],
    )
    assert at_once.text == ""
    assert later.text == "ababab"
    assert later.finish_reason == "stop"


def test_log_probabilities_know_of_the_constraint(llm):
    """Log probabilities are those of the constrained distribution: allowed tokens add up to 1, others have none."""
    case = Case("", {"choice": ["ab", "cd"]}, bool)
    params = constrained(case, temperature=1.0, seed=0, logprobs=4)
    first, second, end = (
        {entry.decoded_token: entry.logprob for entry in position.values() if entry.logprob > -1e9}
        for position in completions(llm, PROMPT, params)[0].logprobs
    )
    assert set(first) == {"a", "c"}
    assert sum(map(math.exp, first.values())) == pytest.approx(1)
    assert list(second.values()) == list(end.values()) == [0]


def test_ignoring_the_end_ends_the_constraint(llm):
    """With `ignore_eos` the EOS token comes when the constraint is satisfied, then any token, as in vLLM."""
    params = constrained(CASES[0], temperature=0, max_tokens=30, ignore_eos=True, skip_special_tokens=False)
    completion = completions(llm, PROMPT, params)[0]
    text, eos, _ = completion.text.partition("<|endoftext|>")
    assert CASES[0].holds(text)
    assert eos
    assert (completion.finish_reason, len(completion.token_ids)) == ("length", 30)


def test_parameters_that_leave_no_token_are_told(llm):
    """If another parameter masks all allowed tokens, the output's error names it, and the next call works."""
    params = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["ab"]), allowed_token_ids=[5])
    (failed,) = completions(llm, PROMPT, params)
    assert failed.finish_reason == "error"
    assert re.search(r"`allowed_token_ids`.*`structured_outputs`", str(failed.stop_reason))
    assert completions(llm, PROMPT, constrained(CASES[0], temperature=0))[0].finish_reason == "stop"


def test_a_grammar_that_cannot_be_followed_is_told(llm):
    """When a grammar has no continuation, the output ends by an error."""
    case = Case("", {"grammar": 'start: B a\nB: /[ab]{40}/\na: "x" a'}, bool)
    completion = completions(llm, PROMPT, constrained(case, temperature=0))[0]
    assert re.fullmatch("[ab]{40}x?", completion.text)
    assert completion.finish_reason == "error"
    assert re.match(
        r"structured_outputs.grammar='start: B a.*cannot be followed any further", str(completion.stop_reason)
    )


def test_structural_tags_constrain_what_they_open(llm):
    """Text is free up to a trigger, then one of the tags follows, with JSON of its schema and its end.

    vLLM allows any JSON there.
    """
    schema = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
    tag = {
        "type": "structural_tag",
        "triggers": ["<f"],
        "structures": [{"begin": f"<f={name}>", "schema": schema, "end": "</f>"} for name in "ab"],
    }
    case = Case(
        "",
        {
            "structural_tag": json.dumps(tag),
            "disable_any_whitespace": True,
            "disable_additional_properties": True,
        },
        bool,
    )
    less, f = (llm.get_tokenizer().encode(text)[0] for text in "<f")
    params = [constrained(case, temperature=1.0, seed=s, logit_bias={less: 9.0, f: 9.0}) for s in range(6)]
    calls = {
        tagged.partition("</f>")[0]
        for completion in completions(llm, [PROMPT] * 6, params)
        for tagged in completion.text.split("<f")[1:]
        if "</f>" in tagged
    }
    assert calls
    assert calls <= {f'={name}>{{"n":{value}}}' for name in "ab" for value in ("true", "false")}


def test_no_constraint_is_none(llm):
    """An empty StructuredOutputsParams changes nothing."""
    free = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    empty = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, structured_outputs=StructuredOutputsParams())
    one, other = completions(llm, [PROMPT] * 2, [free, empty])
    assert list(one.token_ids) == list(other.token_ids)


@pytest.mark.parametrize(
    "settings",
    [{"num_gpu_blocks_override": 16, "block_size": 8}, {"max_num_batched_tokens": 12, "max_num_seqs": 6}],
    ids=["preempted", "prompts in chunks"],
)
def test_scheduling_does_not_show(llm, qwen2_checkpoint, settings, monkeypatch):
    """A request that is preempted, or whose prompt is chunked, keeps its grammar's state."""
    params = [constrained(case, temperature=t, seed=5) for t in (0, 2.0) for case in CASES]
    prompts = [PROMPT + str(i) * i for i in range(len(params))]
    expected = completions(llm, prompts, params)
    narrow = LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=120, **settings)
    scheduler = core_of(narrow).scheduler
    reasons: set[str] = set()
    schedule = scheduler.schedule

    def recorded():
        output = schedule()
        reasons.update(reason.code for reason in (*output.not_scheduled.values(), *output.cut_short.values()))
        return output

    monkeypatch.setattr(scheduler, "schedule", recorded)
    for one, other in zip(completions(narrow, prompts, params), expected, strict=True):
        assert list(one.token_ids) == list(other.token_ids)
    assert ("preempted" if "block_size" in settings else "token_budget") in reasons


def test_the_bundled_model_answers_in_form():
    """The bundled model answers correctly within a schema or a grammar."""
    llm = LLM(max_model_len=256)
    schema = {
        "type": "object",
        "properties": {"capital": {"enum": ["Berlin", "Paris", "Rome"]}},
        "required": ["capital"],
    }
    constraints: list[dict[str, Any]] = [
        {"choice": [" Berlin", " Paris", " Rome"]},
        {"json": schema, "disable_any_whitespace": True, "disable_additional_properties": True},
        {"regex": "^ ?[A-Z][a-z]{2,12}$"},
        {"grammar": 'start: /[0-9]/ ("+" /[0-9]/)~1..4'},
    ]
    params = [
        SamplingParams(temperature=0, max_tokens=40, structured_outputs=StructuredOutputsParams(**constraint))
        for constraint in constraints
    ]
    choice, schema_text, word, total = (c.text for c in completions(llm, ["The capital of France is"] * 4, params))
    assert choice == " Paris"
    assert json.loads(schema_text)["capital"] in ("Berlin", "Paris", "Rome")
    assert word.strip() == "Paris"
    assert is_sum(total)

"""Tests of parameters, prompts and settings against vLLM 0.11.1: accepted, refused, and normalized values.

`params-cases.jsonl` was written by record_params_cases.py in vLLM's environment (tests/fixtures/README.md).
"""

import json
import math
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tracellm import SamplingParams
from tracellm.engine.config import arg_utils
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.config.unsupported_args import UNSUPPORTED_ARGS
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.frontend.processor import Processor
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.sample.sampling_params import RequestOutputKind, StructuredOutputsParams

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODELS = {"tiny-random-qwen2": str(FIXTURES / "tiny-random-qwen2"), "tiny": "tiny"}
NUMBERS = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p")


@cache
def cases(kind: str) -> list[dict[str, Any]]:
    """Return all recorded cases of one kind."""
    with (FIXTURES / "params-cases.jsonl").open(encoding="utf-8") as file:
        return [case for case in map(json.loads, file) if case["kind"] == kind]


def revive(arguments: dict[str, Any]) -> dict[str, Any]:
    """Restore values that JSON cannot hold: enum members, and dicts with numbers as keys."""
    revived = dict(arguments)
    if "output_kind" in revived:
        revived["output_kind"] = RequestOutputKind[revived["output_kind"]]
    if revived.get("logit_bias"):
        revived["logit_bias"] = {int(token): bias for token, bias in revived["logit_bias"].items()}
    return revived


def fields_of(params: SamplingParams, recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded fields in the recording's form."""
    special: dict[str, Any] = {
        "output_kind": params.output_kind.name,
        "logit_bias": params.logit_bias and {str(token): bias for token, bias in params.logit_bias.items()},
        "sampling_type": params.sampling_type.name,
        "all_stop_token_ids": sorted(params.all_stop_token_ids),
        "stop_token_ids": sorted(set(params.stop_token_ids or ())),
    }
    return {name: special[name] if name in special else getattr(params, name) for name in recorded}


def differences(
    kind: str,
    make: Callable[[dict[str, Any]], Any],
    compare: Callable[[dict[str, Any], Any], object],
    stricter: Callable[[dict[str, Any]], bool] = lambda case: False,
) -> list[str]:
    """Return the cases that tracellm does not decide as recorded, or for which `compare` finds a difference.

    `stricter` selects accepted cases that tracellm must refuse.
    """
    found = []
    for case in cases(kind):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = make(case)
            except EngineError as error:
                if "refused" not in case and not stricter(case):
                    found.append(f"{case}: refused with {error}")
                continue
        if "refused" in case or stricter(case):
            found.append(f"{case}: accepted")
        elif difference := compare(case, result):
            found.append(f"{case}: {difference}")
    return found


def compare_params(case: dict[str, Any], params: SamplingParams) -> object:
    """Return what differs from the recorded fields or repr, or from the defaults of other fields, or None."""
    ours = fields_of(params, case["fields"])
    if ours != case["fields"]:
        return ours
    defaults = SamplingParams()
    others = {name for name in SamplingParams.__dataclass_fields__ if name.strip("_") not in case["fields"]}
    if changed := {name for name in others if getattr(params, name) != getattr(defaults, name)}:
        return f"differs from the defaults in {changed}"
    return repr(params) if repr(params) != case.get("repr", repr(params)) else None


def is_refused_on_purpose(case: dict[str, Any]) -> bool:
    """Return whether a value is NaN, or `n` is below 1, which vLLM replaces when `best_of` is 1."""
    arguments = case["arguments"]
    no_number = any(isinstance(arguments.get(name), float) and math.isnan(arguments[name]) for name in NUMBERS)
    return no_number or (arguments.get("n", 1) or 0) < 1


def test_sampling_params():
    """Some 700 combinations are accepted or refused as in vLLM, with the same normalized fields and repr."""
    assert len(cases("params")) > 600
    assert not differences(
        "params", lambda case: SamplingParams(**revive(case["arguments"])), compare_params, is_refused_on_purpose
    )


def test_from_optional():
    """`None` stands for a default, and biases are clamped, as in vLLM."""
    assert not differences(
        "from_optional", lambda case: SamplingParams.from_optional(**case["arguments"]), compare_params
    )


def test_structured_outputs_params():
    """The same constraints are accepted with the same fields, except for the backend, which vLLM stores."""

    def compare(case: dict[str, Any], params: StructuredOutputsParams) -> object:
        got = (repr(params), params.all_constraints_none())
        theirs = case["repr"].replace(", _backend=None, _backend_was_auto=False", "")
        return got if got != (theirs, case["all_constraints_none"]) else None

    def has_unknown_name(case: dict[str, Any]) -> bool:
        """Return whether an argument's name is unknown, which vLLM ignores."""
        return "jsn" in case["arguments"]

    def make(case: dict[str, Any]) -> StructuredOutputsParams:
        return StructuredOutputsParams(**case["arguments"])

    assert not differences("structured_outputs", make, compare, has_unknown_name)


def test_what_model_and_tokenizer_add():
    """EOS tokens become stop tokens, and bad words sequences of tokens, as in vLLM."""

    def make(case: dict[str, Any]) -> SamplingParams:
        params = SamplingParams(**case["arguments"])
        if "model" in case:
            tokenizer = processor_of(case["model"]).tokenizer
            assert tokenizer is not None
            params.update_from_tokenizer(tokenizer)
        else:
            params.update_from_generation_config(case["generation_config"], case["eos_token_id"])
        return params

    assert not differences("completed", make, compare_params)


@cache
def config_of(model: str, **settings: Any) -> VllmConfig:
    """Make the configuration of the recorded requests."""
    return EngineArgs.from_arguments(model=MODELS[model], max_model_len=64, **settings).create_engine_config()


@cache
def processor_of(model: str, **settings: Any) -> Processor:
    """Make a processor with these settings, which needs no model."""
    return Processor(config_of(model, **settings), get_tokenizer(config_of(model).model_config.tokenizer))


def test_requests():
    """The same requests are refused, and the others get the same tokens and parameters."""
    assert len(cases("request")) > 300

    def make(case: dict[str, Any]) -> EngineCoreRequest:
        params = SamplingParams(**revive(case["arguments"]))
        return processor_of(case["model"], **case["settings"]).process_inputs("0", case["prompt"], params)

    def compare(case: dict[str, Any], request: EngineCoreRequest) -> object:
        got = (request.prompt_token_ids, request.eos_token_id)
        if got != (case["prompt_token_ids"], case["eos_token_id"]):
            return got
        assert request.sampling_params is not None
        return compare_params(case, request.sampling_params)

    def has_unknown_token(case: dict[str, Any]) -> bool:
        """Return whether a token is one past the vocabulary, which vLLM accepts."""
        return isinstance(case["prompt"], dict) and 4096 in case["prompt"]["prompt_token_ids"]

    assert not differences("request", make, compare, has_unknown_token)


def test_children():
    """With `n` above 1, each child has vLLM's id and seed."""
    for case in cases("parent"):
        parent = ParentRequest("17", SamplingParams(**revive(case["arguments"])))
        children = [parent.get_child_info(index) for index in range(parent.n)]
        got = [[name, params.n, params.seed, params.output_kind.name] for name, params in children]
        assert got == case["children"]


def test_settings(monkeypatch):
    """Arguments of `LLM` give vLLM's settings and default sampling parameters, or are refused as in vLLM."""
    monkeypatch.setattr(arg_utils, "_device", lambda: torch.device("cpu"))

    def make(case: dict[str, Any]) -> VllmConfig:
        arguments = {"model": MODELS["tiny-random-qwen2"], "max_model_len": 64} | case["arguments"]
        return EngineArgs.from_arguments(**arguments).create_engine_config()

    def compare(case: dict[str, Any], config: VllmConfig) -> object:
        got = {
            "scheduler": {name: getattr(config.scheduler_config, name) for name in case["scheduler"]},
            "enable_prefix_caching": config.cache_config.enable_prefix_caching,
            "vocab_size": config.model_config.get_vocab_size(),
            "logprobs_mode": config.model_config.logprobs_mode,
            "diff_sampling_param": config.model_config.get_diff_sampling_param(),
        }
        return None if case.items() >= got.items() else got

    assert not differences("config", make, compare)


ARGUMENTS = [case for case in cases("argument") if not case["name"].startswith("_")]


@pytest.mark.parametrize("case", ARGUMENTS, ids=lambda case: case["name"])
def test_arguments(case):
    """Every argument of vLLM's `LLM` exists here, and its default is accepted."""
    name = case["name"]
    assert name in EngineArgs.__dataclass_fields__ or name in UNSUPPORTED_ARGS
    if "default" in case and name != "model":  # without defaults that JSON cannot hold
        EngineArgs.from_arguments(**{name: case["default"]})


def test_nothing_is_known_that_vllm_does_not_have():
    """All arguments are vLLM's, one of them a later version's."""
    theirs = {case["name"] for case in cases("argument")}
    assert set(UNSUPPORTED_ARGS) | set(EngineArgs.__dataclass_fields__) <= theirs | {"attention_backend"}

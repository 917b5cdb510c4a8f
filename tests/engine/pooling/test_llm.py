"""Tests of `LLM.embed`, `encode` and `score`: results, refusals in vLLM's words, and the models that pool."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import change_config, reference_model
from tests.engine.pooling.test_against_transformers import as_tokens, check_equal, hidden_states, make_prompts
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError, ModelLoadError
from tracellm.engine.frontend.outputs import PoolingOutput
from tracellm.engine.pool.pooling_params import PoolingParams

TEXTS = ["The capital of France is", "Hello", "The capital of Italy is"]


@pytest.fixture(scope="module")
def llm() -> LLM:
    """A pooling engine with the bundled model; each test leaves it idle."""
    return LLM(runner="pooling", dtype="float32", max_model_len=64, num_gpu_blocks_override=64)


@pytest.fixture(scope="module")
def generating() -> LLM:
    """An engine that generates."""
    return LLM(max_model_len=64, num_gpu_blocks_override=64)


def test_scores_are_cosines(llm: LLM) -> None:
    """`score` pairs one text with several, or pairwise, and returns the cosines of their embeddings."""
    vectors = torch.tensor([output.outputs.embedding for output in llm.embed(TEXTS)])
    cosines = vectors @ vectors.T
    one_to_many = [output.outputs.score for output in llm.score(TEXTS[0], TEXTS)]
    check_equal(one_to_many, cosines[0])
    pairs = llm.score(TEXTS[:2], TEXTS[1:])
    check_equal([output.outputs.score for output in pairs], cosines.diagonal(1))
    tokenizer = llm.get_tokenizer()
    first, second = (tokenizer.encode(text) for text in TEXTS[:2])
    assert pairs[0].prompt_token_ids == [*first, tokenizer.pad_token_id, *second]


def test_the_parameters_of_the_caller_stay(llm: LLM) -> None:
    """The caller's parameters are not changed, and can be used for another task."""
    params = PoolingParams(normalize=False)
    (output,) = llm.encode(TEXTS[0], params, pooling_task="embed")
    assert params == PoolingParams(normalize=False)
    assert output.outputs == PoolingOutput(output.outputs.data.clone())
    assert output.outputs.data.norm() > 1.5


def test_a_text_keeps_its_beginning(llm: LLM) -> None:
    """`truncate_prompt_tokens` keeps the first tokens of a text, as vLLM does for pooling models."""
    (cut,) = llm.embed(TEXTS[0], truncate_prompt_tokens=2)
    assert cut.prompt_token_ids == llm.get_tokenizer().encode(TEXTS[0])[:2]


def test_a_prompt_may_fill_the_model(llm: LLM) -> None:
    """A prompt as long as the model is pooled, and a longer one is refused."""
    (output,) = llm.embed({"prompt_token_ids": [5] * 64})
    assert output.outputs.hidden_size == 256
    with pytest.raises(InvalidRequestError, match=r"length 65\) is longer than the maximum model length of 64"):
        llm.embed({"prompt_token_ids": [5] * 65})


REFUSALS: dict[str, tuple[Callable[[LLM], Any], str]] = {
    "generate": (lambda llm: llm.generate("a"), r"LLM\.generate\(\) is only supported for generative models"),
    "chat": (lambda llm: llm.chat([{"role": "user", "content": "a"}]), r"LLM\.generate\(\) is only supported for"),
    "no task": (lambda llm: llm.encode("a"), "pooling_task required for `LLM.encode`"),
    "unknown task": (lambda llm: llm.encode("a", pooling_task="sing"), r"pooling_task must be one of \('embed',\)"),
    "two tasks": (
        lambda llm: llm.encode("a", PoolingParams(task="token_embed"), pooling_task="embed"),
        "You cannot overwrite self.task='token_embed' with task='embed'!",
    ),
    "sampling": (
        lambda llm: llm.embed("a", pooling_params=SamplingParams()),  # type: ignore[arg-type]
        "Pooling parameters must be a PoolingParams, got a SamplingParams",
    ),
    "dimensions": (lambda llm: llm.embed("a", pooling_params=PoolingParams(dimensions=3)), "matryoshka"),
    "numbers": (lambda llm: llm.score(["a", "b"], ["a", "b", "c"]), "Input lengths must be either 1:1, 1:N or N:N"),
    "no texts": (lambda llm: llm.score([], "a"), "At least one text element must be given"),
    "parameters": (
        lambda llm: llm.embed(["a", "b"], pooling_params=[PoolingParams()]),
        "There are 2 prompts and 1 pooling parameters: give one PoolingParams for all",
    ),
    "no prompts": (lambda llm: llm.embed(5), "encode takes a prompt or a list of prompts"),  # type: ignore[arg-type]
    "no pair": (lambda llm: llm.score(5, "a"), "score takes a prompt or a list of prompts"),  # type: ignore[arg-type]
    "a name": (lambda llm: llm.embed("a", pooling_param=None), "Did you mean `pooling_params`"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusals_of_a_pooling_model(llm: LLM, refusal: str) -> None:
    """A call that a pooling model cannot serve is refused, and the next one is served."""
    call, words = REFUSALS[refusal]
    with pytest.raises(EngineError, match=words):
        call(llm)
    assert len(llm.embed("a")) == 1


def test_refusals_of_a_model_that_generates(generating: LLM) -> None:
    """Each method for pooling is refused in vLLM's words."""
    with pytest.raises(EngineError, match=r"Embedding API is not supported by this model\. Try converting the model"):
        generating.embed("a")
    with pytest.raises(EngineError, match=r"LLM\.encode\(\) is only supported for pooling models. Try passing"):
        generating.encode("a", pooling_task="embed")
    with pytest.raises(EngineError, match=r"LLM\.score\(\) is only supported for pooling models"):
        generating.score("a", "b")


def test_invalid_numbers_fail_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN among the results is an error that names the request, and the engine goes on."""
    client: Any = llm.llm_engine.engine_core
    model = client.engine_core.model_executor.driver_worker.worker.model_runner.model
    with monkeypatch.context() as patch:
        pool = model.pooler.forward
        patch.setattr(model.pooler, "forward", lambda *args: [result * float("nan") for result in pool(*args)])
        with pytest.raises(InvalidRequestError, match=r"Request '\d+': The model computed NaN or infinity"):
            llm.embed(TEXTS)
    assert len(llm.embed(TEXTS)) == 3


# -- models that pool --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen2", "gpt2", "gemma3_text"])
def test_a_checkpoint_without_an_output_layer(
    family: str, family_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """A base model, such as `Qwen2Model`, is a pooling model by itself, and cannot generate."""
    folder = Path(shutil.copytree(family_checkpoint(family), tmp_path / "base"))
    (folder / "model.safetensors").unlink()
    reference_model(family_checkpoint(family)).base_model.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["architectures"][0].endswith("Model")
    llm = LLM(folder, dtype="float32")
    prompts = make_prompts()[:4]
    outputs = llm.embed(as_tokens(prompts), pooling_params=PoolingParams(normalize=False))
    for output, states in zip(outputs, hidden_states(family_checkpoint(family), prompts), strict=True):
        check_equal(output.outputs.embedding, states[-1])
    with pytest.raises(EngineError, match="This model does not support `--runner generate`"):
        LLM(folder, runner="generate")


def write_modules(folder: Path, mode: str, *further: str) -> None:
    """Write the files of sentence-transformers: a Pooling module with this mode, and the further modules."""
    names = ["Transformer", "Pooling", *further]
    modules = [
        {"idx": i, "path": f"{i}_{name}" if i else "", "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, mode: True}
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 64, **modes, "include_prompt": True})
    )


def test_files_of_sentence_transformers(qwen2_checkpoint: Path, tmp_path: Path) -> None:
    """The files beside a model choose pooling, its kind and the normalization; arguments go before them."""
    folder = Path(shutil.copytree(qwen2_checkpoint, tmp_path / "model"))
    write_modules(folder, "pooling_mode_mean_tokens")
    prompts = make_prompts()[:3]
    means = [states.mean(0) for states in hidden_states(qwen2_checkpoint, prompts)]
    for output, mean in zip(LLM(folder, dtype="float32").embed(as_tokens(prompts)), means, strict=True):
        check_equal(output.outputs.embedding, mean)
    llm = LLM(folder, dtype="float32", pooler_config={"normalize": True})
    for output, mean in zip(llm.embed(as_tokens(prompts)), means, strict=True):
        check_equal(output.outputs.embedding, torch.nn.functional.normalize(mean, dim=0))
    write_modules(folder, "pooling_mode_max_tokens")
    with pytest.raises(ModelLoadError, match="asks for the pooling pooling_mode_max_tokens"):
        LLM(folder)
    write_modules(folder, "pooling_mode_lasttoken", "Dense")
    with pytest.raises(ModelLoadError, match="has a Dense module"):
        LLM(folder)


def test_dimensions_of_a_matryoshka_model(qwen2_checkpoint: Path, tmp_path: Path) -> None:
    """A model that lists its dimensions is cut to one of them only."""
    folder = Path(shutil.copytree(qwen2_checkpoint, tmp_path / "model"))
    change_config(folder, matryoshka_dimensions=[8, 16])
    llm = LLM(folder, runner="pooling")
    (output,) = llm.embed("a", pooling_params=PoolingParams(dimensions=8))
    assert output.outputs.hidden_size == 8
    with pytest.raises(InvalidRequestError, match=r"only supports \[8, 16\] matryoshka dimensions"):
        llm.embed("a", pooling_params=PoolingParams(dimensions=12))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"runner": "embed"}, "`runner` must be one of auto, generate, pooling"),
        ({"convert": "classify"}, "`convert` must be one of auto, none, embed"),
        (
            {"runner": "pooling", "convert": "none"},
            "does not support `--runner pooling`. You can pass `--convert embed`",
        ),
        ({"pooler_config": {"normalize": True}}, "`pooler_config` is for pooling models"),
        ({"runner": "generate", "convert": "embed"}, "`convert` is for pooling models"),
        ({"runner": "pooling", "pooler_config": {"pooling_type": "MAX"}}, "must be one of LAST, CLS, MEAN, ALL"),
        ({"runner": "pooling", "pooler_config": {"pooling": "MEAN"}}, "Did you mean `pooling_type`"),
        ({"runner": "pooling", "pooler_config": {"softmax": True}}, "tracellm does not have `softmax`"),
        ({"runner": "pooling", "async_scheduling": True}, "`async_scheduling` is for models that generate"),
        ({"runner": "pooling", "pipeline_parallel_size": 2}, "pooling has no pipeline parallelism"),
    ],
)
def test_arguments_that_contradict_each_other(arguments: dict[str, Any], words: str) -> None:
    """Each wrong argument is named."""
    with pytest.raises(EngineError, match=words):
        LLM(**arguments)


def test_older_names_of_the_arguments() -> None:
    """`task="embed"` and `override_pooler_config` of older scripts make a pooling model."""
    with pytest.warns(UserWarning, match="replace `task` by runner='pooling'"):
        llm = LLM(task="embed", override_pooler_config={"pooling_type": "MEAN", "enable_chunked_processing": None})
    assert llm.supported_tasks == ("token_embed", "embed")
    assert llm.model_config.pooler_config.pooling_type == "MEAN"  # type: ignore[union-attr]
    assert not llm.llm_engine.vllm_config.scheduler_config.enable_chunked_prefill
    assert not llm.llm_engine.vllm_config.cache_config.enable_prefix_caching


def test_tasks_of_one_step() -> None:
    """A vector of a prompt that the prefix cache has, and vectors of another prompt's tokens, come from one step."""
    llm = LLM(runner="pooling", dtype="float32", max_model_len=64, enable_chunked_prefill=False)
    prompt = list(range(5, 45))
    (expected,) = llm.embed({"prompt_token_ids": prompt})
    (tokens,) = llm.encode({"prompt_token_ids": [1, 2, 3]}, pooling_task="token_embed")
    engine = llm.llm_engine
    engine.add_request("embed", {"prompt_token_ids": prompt}, PoolingParams(task="embed"))
    engine.add_request("tokens", {"prompt_token_ids": [1, 2, 3]}, PoolingParams(task="token_embed"))
    outputs: dict[str, Any] = {output.request_id: output for output in engine.step()}
    assert outputs["embed"].num_cached_tokens == 32
    check_equal(outputs["embed"].outputs.data, torch.tensor(expected.outputs.embedding))
    check_equal(outputs["tokens"].outputs.data, tokens.outputs.data)


def test_a_task_that_is_none_of_pooling(generating: LLM, llm: LLM) -> None:
    """Pooling parameters with the task of generation are refused by both kinds of engines."""
    with pytest.raises(InvalidRequestError, match="does not support pooling"):
        generating.llm_engine.add_request("0", TEXTS[0], PoolingParams(task="generate"))
    with pytest.raises(InvalidRequestError, match="Unsupported task: 'generate'"):
        llm.llm_engine.add_request("0", TEXTS[0], PoolingParams(task="generate"))

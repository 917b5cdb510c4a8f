"""`tracellm plan`: its figures are those of real runs, and its output and messages."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import Command
from tracellm import LLM, SamplingParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.plan.gpus import GPUS
from tracellm.plan.ranks import Collective, StepSize, get_bytes_per_block_of_stages, plan_stages
from tracellm.plan.summary import Machine, least_seconds, num_kv_blocks
from tracellm.probes.recording import Recording
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {"dtype": "float32", "skip_tokenizer_init": True, "max_model_len": 64}
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("family", ["qwen2", "gemma2", "opt"])
def test_figures_are_those_of_a_run(family: str, family_checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    """Weights, KV cache and every collective operation of each rank are as counted in a run of 2 x 2 workers."""
    folder = family_checkpoint(family)
    division: dict[str, Any] = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    with Recording(tmp_path, script="script.py"):
        llm = LLM(folder, num_gpu_blocks_override=32, **SETTINGS, **division)
        llm.generate({"prompt_token_ids": [5, 6, 7]}, SamplingParams(temperature=0, max_tokens=2), use_tqdm=False)
        client: Any = llm.llm_engine.engine_core
        kv_cache_bytes = sum(tensor.size for tensor in client.engine_core.kv_cache_config.kv_cache_tensors)
        llm.llm_engine.engine_core.shutdown()
    trace = RunFolder.open(tmp_path).trace
    config = EngineArgs(model=str(folder), **SETTINGS, **division).create_engine_config()
    plans = plan_stages(config, [StepSize(3, 1), StepSize(1, 1)])
    assert kv_cache_bytes == 32 * get_bytes_per_block_of_stages(config, plans)[0]
    for stage, plan in enumerate(plans):
        for rank in plan.ranks:
            name = f"Worker_PP{stage}_TP{rank % 2}"
            spans = [span for span in trace.spans if span.process and span.process.name == name]
            loads = [span.attributes for span in spans if names.LOAD_PARAMETERS in span.attributes]
            (parameters,) = {attributes[names.LOAD_PARAMETERS] for attributes in loads}
            assert parameters * 4 == plan.weight_bytes
            steps = [span for span in spans if span.name == "Worker.execute_model"]
            counted = [found for step in steps if (found := _collectives(spans, step))]
            assert counted == [Counter({one[:2]: one.num_calls for one in step}) for step in plan.collectives]


def _collectives(spans: list[Span], step: Span) -> Counter[tuple[str, int]]:
    """Return the operations of a worker in a step, by name and bytes; a step without tokens has none."""
    found: Counter[tuple[str, int]] = Counter()
    for span in spans:
        name = span.name.removeprefix("GroupCoordinator.").removesuffix("_tensor_dict")
        if step.start_ns <= span.start_ns < step.end_ns and name in ("all_reduce", "all_gather", "send"):
            size = span.attributes.get(names.COLLECTIVE_BYTES) or span.attributes[names.MESSAGE_BYTES]
            found[name, size] += 1
    return found


def test_least_times() -> None:
    """Least times follow from the ring algorithm: each of n ranks sends 2 (n - 1) / n tensors, or n - 1 parts."""
    assert least_seconds(Collective("all_reduce", 800, 3), 8, 100) == 3 * 2 * 7 / 8 * 8
    assert least_seconds(Collective("all_gather", 800, 1), 8, 100) == 7 * 8
    assert least_seconds(Collective("send", 800, 1), 8, 100) == 8


@pytest.fixture
def llama_70b(tmp_path: Path) -> str:
    """A directory with the config of a large model, and no weights."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    return str(tmp_path)


def test_a_large_model(llama_70b: str) -> None:
    """Eight GPUs share 70.6 billion parameters of two bytes, and the KV cache has what is left of their memory."""
    config = EngineArgs(model=llama_70b, skip_tokenizer_init=True, tensor_parallel_size=8).create_engine_config()
    (plan,) = plan_stages(config, [StepSize(1, 1)])
    assert 8 * plan.weight_bytes == pytest.approx(70.55e9 * 2, rel=1e-3)
    machine = Machine("h100", GPUS["h100"], 8, 50e9, usable=0.9, reserved_bytes=0)
    per_block = 16 * 80 * 2 * 128 * 2  # tokens, layers, keys and values of one head, two bytes
    assert num_kv_blocks(config, [plan], machine) == (int(80 * 2**30 * 0.9) - plan.weight_bytes) // per_block


def test_the_output(llama_70b: str, command: Command) -> None:
    """Memory, blocks and operations are printed in both languages; between machines the network's speed counts."""
    said = command("plan", llama_70b, "--tp", "8", "--pp", "2", "--gpu", "h100", "--lang", "en")
    assert (said.status, said.err) == (0, "")
    assert "LlamaForCausalLM in bfloat16 on 16 GPUs (h100): 2 stages of 8 workers" in said.out
    assert [line.split() for line in said.out.splitlines() if line.split()[:2] in (["0", "0-7"], ["1", "8-15"])] == [
        ["0", "0-7", "0-39", "8.8", "GB", "66.5", "GB", "328", "kB"],
        ["1", "8-15", "40-79", "8.8", "GB", "66.5", "GB", "328", "kB"],
    ]
    sends = [line.split() for line in said.out.splitlines() if "send to the next stage" in line]
    assert [row[-5:] for row in sends] == [["1", "8.4", "MB", "0.17", "ms"], ["1", "268", "MB", "5.37", "ms"]]
    assert "最长" not in said.out
    zh = command("plan", llama_70b, "--tp", "8", "--pp", "2", "--gpu", "h100", "--lang", "zh")
    assert "2 个 stage，各 8 个 worker" in zh.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "abacus"], "no figures for the GPU abacus; GPUs: a100, "),
        (["--tp", "3"], "heads (64) must be divisible by tensor parallel size (3)"),
        (["--reserve", "nan"], "--reserve and --network must be numbers"),
        (["--network", "inf"], "--reserve and --network must be numbers"),
        (["--pp", "81"], "needs a layer for each stage, and the model has 80"),
    ],
)
def test_what_cannot_be_planned(options: list[str], message: str, llama_70b: str, command: Command) -> None:
    """An unknown GPU and an uneven division are refused in one line."""
    said = command("plan", llama_70b, *options, "--lang", "en")
    assert said.status == 2
    assert message in said.err
    assert said.err.count("\n") == 1


def test_the_gpus_need_not_be_here(llama_70b: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The division that the command asks for is not refused on a machine with one GPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    args = EngineArgs(model=llama_70b, skip_tokenizer_init=True, tensor_parallel_size=8)
    model_config = args.create_model_config()
    with pytest.raises(EngineError, match="needs 8 GPUs, and there are 1"):
        args.create_parallel_config(model_config, torch.device("cuda"))
    planned = replace(args, distributed_executor_backend="ray")
    assert planned.create_parallel_config(model_config, torch.device("cuda")).world_size == 8


def test_groups_of_layers_share_the_blocks(family_checkpoint: Callable[[str], Path], command: Command) -> None:
    """A request takes blocks of three groups, if a model has one layer of full attention and two windowed ones."""
    said = command("plan", str(family_checkpoint("gemma2")), "--max-model-len", "64", "--lang", "en").out
    line = " ".join(said.partition("KV cache: ")[2].split("\n\n")[0].split())
    num_blocks, tokens = (
        int(part.replace(",", "")) for part in (line.split()[0], line.partition("rank: ")[2].split()[0])
    )
    assert tokens == num_blocks * 16 // 3


def test_a_model_that_does_not_fit(llama_70b: str, command: Command) -> None:
    """Weights that are larger than the memory are reported with both sizes."""
    said = command("plan", llama_70b, "--gpu", "h100", "--lang", "en")
    assert said.status == 0
    assert "The model does not fit: rank 0 has weights of 141 GB, and 75.3 GB are available." in said.out


@pytest.mark.parametrize(("lang", "page"), [("en", "docs/plan.md"), ("zh", "docs/zh/plan.md")])
def test_the_page_shows_the_output(
    lang: str, page: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's example is what the command prints for the config on the page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (tmp_path / "big-model").mkdir()
    config = text.partition("```json\n")[2].partition("```")[0]
    (tmp_path / "big-model" / "config.json").write_text(config, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    line, _, shown = text.partition("```console\n$ tracellm ")[2].partition("\n```")[0].partition("\n")
    assert command(*line.split(), *([] if "--lang" in line else ["--lang", lang])).out.rstrip() == shown

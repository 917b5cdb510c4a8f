"""Tests of an engine in each process of a launcher: torchrun starts the processes."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine.executor.test_multiproc_executor import SETTINGS
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError

PROMPTS = [{"prompt_token_ids": [5, 6, 7, number]} for number in range(3)]
SCRIPT = r"""
import json, os, sys
from tracellm import LLM, SamplingParams
settings = json.loads(sys.argv[2])
if os.environ["RANK"] == "1":
    settings["kv_cache_memory_bytes"] //= 2
llm = LLM(sys.argv[1], distributed_executor_backend="external_launcher", **settings)
outputs = []
for temperature in 0, 1:
    params = SamplingParams(temperature=temperature, max_tokens=8, ignore_eos=True)
    found = llm.generate(json.loads(sys.argv[3]), params, use_tqdm=False)
    outputs.append([list(output.outputs[0].token_ids) for output in found])
config = llm.llm_engine.engine_core.engine_core.kv_cache_config
sys.stdout.write(json.dumps([outputs, config.num_blocks]) + "\n")  # in one piece: torchrun runs it unbuffered
llm.llm_engine.engine_core.shutdown()
"""


def launch(num_processes: int, arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run the script in processes of torchrun."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    return subprocess.run([*launcher, *arguments], capture_output=True, encoding="utf-8", check=False)


def test_each_process_has_the_tokens_of_one_worker(qwen2_checkpoint: Path, tmp_path: Path) -> None:
    """Both processes have the tokens of one worker, drawn ones too, and the blocks of the worker with less memory."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    settings = {name: value for name, value in SETTINGS.items() if name != "num_gpu_blocks_override"}
    settings |= {"kv_cache_memory_bytes": 1 << 20, "tensor_parallel_size": 2}
    done = launch(2, [script, qwen2_checkpoint, json.dumps(settings), json.dumps(PROMPTS)])
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first == second
    llm = LLM(qwen2_checkpoint, **SETTINGS | {"num_gpu_blocks_override": first[1]})
    for temperature, found in zip((0, 1), first[0], strict=True):
        params = SamplingParams(temperature=temperature, max_tokens=8, ignore_eos=True)
        outputs = llm.generate(PROMPTS, params, use_tqdm=False)
        assert found == [list(output.outputs[0].token_ids) for output in outputs]
    # Half the memory holds as many blocks of half the heads.
    llm = LLM(qwen2_checkpoint, **SETTINGS | {"num_gpu_blocks_override": None, "kv_cache_memory_bytes": 1 << 20})
    assert first[1] == llm.llm_engine.engine_core.engine_core.kv_cache_config.num_blocks  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("environment", "settings", "message"),
    [
        ({}, {}, "needs a launcher that sets RANK, LOCAL_RANK and WORLD_SIZE: torchrun --nproc-per-node 2 "),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3"}, {}, "needs 2 processes, and the launcher started 3"),
        (
            {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"},
            {"multiprocess_mode": True},
            "needs the engine core in the script's process: VLLM_ENABLE_V1_MULTIPROCESSING=0",
        ),
        ({}, {"pipeline_parallel_size": 2}, "has no pipeline parallelism"),
    ],
    ids=["alone", "three", "multiprocess_mode", "pipeline"],
)
def test_what_it_needs(
    environment: dict[str, str],
    settings: dict[str, bool | int],
    message: str,
    qwen2_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a launcher, with too many processes, or with an engine core process, the error says what to do."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineError, match=message):
        LLM(
            qwen2_checkpoint,
            **SETTINGS | {"tensor_parallel_size": 2, "distributed_executor_backend": "external_launcher"} | settings,
        )

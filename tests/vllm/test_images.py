"""A real vLLM with images, for which 0.32 needs torchvision: `scripts/install-vllm.sh` puts it into a folder."""

import json
import os
from pathlib import Path

import pytest

from tests.fixtures.record_picture_tokens import PROMPTS, make_vllms_checkpoint
from tests.real_vllm import in_vllm, require_vllm
from tracellm.report.facts.items.item import read_items
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

_TESTS = Path(__file__).parents[1]
_SCRIPT = """
from vllm import LLM, SamplingParams
from tests.fixtures.record_picture_tokens import prompts

llm = LLM({model!r}, dtype="float32", max_model_len=256, enforce_eager=True, limit_mm_per_prompt={{"image": 3}})
for output in llm.generate(prompts(), SamplingParams(temperature=0, max_tokens=8)):
    print("tokens", output.prompt_token_ids, output.outputs[0].token_ids)
"""


def test_a_run_of_vllm_with_images_is_explained(tmp_path: Path) -> None:
    """vLLM 0.32 gives the tokens that 0.11.1 gave; its log has encoder budget and cache, and its report the images."""
    torchvision = require_vllm().parents[1] / "torchvision"
    if not torchvision.exists():
        pytest.skip(f"there is no torchvision at {torchvision}: scripts/install-vllm.sh puts it there, for vLLM 0.32.0")
    make_vllms_checkpoint(tmp_path / "model")
    (tmp_path / "script.py").write_text(_SCRIPT.format(model=str(tmp_path / "model")), encoding="utf-8")
    done = in_vllm(
        ["-m", "tracellm", "run", "--explain", "--out", "run", "script.py"],
        tmp_path,
        PYTHONPATH=os.pathsep.join(map(str, (_TESTS.parent, _TESTS / "vllm" / "torchvision_schemas", torchvision))),
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = json.loads((_TESTS / "fixtures" / "picture-tokens.json").read_text(encoding="utf-8"))
    wanted = [f"tokens {one['prompt_token_ids']} {one['token_ids']}" for one in recorded]
    printed = done.stdout + done.stderr
    assert [line for line in printed.splitlines() if line.startswith("tokens ")] == wanted
    words = " ".join(printed.split())
    assert "encoded mm_features[0] of request" in words
    assert "129 of 4,096 tokens of the encoder's budget" in words
    assert "encoder cache: 3,967 of 4,096 tokens free" in words
    requests = [span for span in RunFolder.open(tmp_path / "run").trace.spans if span.name == names.REQUEST_SPAN]
    items = [[(item.size, item.grid, bool(item.picture)) for item in read_items(request)] for request in requests]
    assert [[size for size, *_ in row] for row in items] == [[one[1:] for one in row] for _, row in PROMPTS]
    assert all(grid and picture for row in items for _, grid, picture in row)

"""The training command: a checkpoint that loads, the same each time."""

import json
import subprocess
import sys
from pathlib import Path

from tracellm import LLM, SamplingParams
from training.pictures.evaluate import held_out

ROOT = Path(__file__).parents[2]
OPTIONS = ["--encoder-steps", "2", "--steps", "2", "--pictures", "4", "--questions", "2"]
SCRIPT = """
import json, sys
from training.pictures.train import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    main()
"""


def test_training_depends_on_the_seed_only(tmp_path: Path) -> None:
    """Equal runs of the command give equal weights, which an engine loads; another seed gives others."""
    changes: dict[str, list[str]] = {"a": [], "b": [], "seed": ["--seed", "1"]}
    runs = [["--out", str(tmp_path / name), *OPTIONS, *more] for name, more in changes.items()]
    subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(runs)], cwd=ROOT, check=True, capture_output=True)
    first, second, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in changes)
    assert first == second
    assert first != other
    facts = json.loads((tmp_path / "a" / "training.json").read_text())
    assert (facts["pictures"], facts["questions"], facts["processes"]) == (16, 16, 2)
    sample = next(iter(held_out(1)))
    content = [{"type": "image_pil", "image_pil": sample.picture}, {"type": "text", "text": "Count the things."}]
    llm = LLM(tmp_path / "a", dtype="float32", max_model_len=128)
    (output,) = llm.chat([{"role": "user", "content": content}], SamplingParams(max_tokens=4), use_tqdm=False)
    assert len(output.outputs[0].token_ids) > 0

"""Recorded runs of labs' scripts that do not end."""

from pathlib import Path

from tracellm.cli.folders import read_run
from tracellm.lab.recording import record

_ENDLESS = """
from tracellm import LLM, SamplingParams

llm = LLM(max_model_len=64)
while True:
    llm.generate(["Count from one to ten."] * 8, SamplingParams(max_tokens=32, ignore_eos=True), use_tqdm=False)
"""


def test_an_endless_loop_ends_by_the_size_of_its_records(tmp_path: Path) -> None:
    """A script that records without end is stopped, with the reason, and its run folder can be read."""
    script = tmp_path / "explain.py"
    script.write_text(_ENDLESS)
    recorded = record(script, tmp_path / "run", "en")
    assert recorded.status == -1
    assert recorded.error == "stopped when its records reached 5 MB: an endless loop?"
    assert len(read_run(str(recorded.path), "en").trace.spans) > 1000

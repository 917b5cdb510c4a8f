"""The explanations of the console log, shown once to each user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracellm.cli.explanations_seen import explanations_seen, remember_explanations

RUNS = """
import tracellm
for index in range(2):
    with tracellm.explain(f"run-{index}", quiet=False):
        tracellm.LLM(max_model_len=64, num_gpu_blocks_override=16)
"""


def test_a_user_sees_the_explanations_once(tmp_path: Path) -> None:
    """The second run of a user leaves out the explanations, and has the inputs and the rule."""
    done = subprocess.run(
        [sys.executable, "-c", RUNS],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr.count("== Client: InprocClient ==") == 2
    assert [done.stderr.count(f"\n  {head} ") for head in ("Purpose", "To switch", "Inputs", "Rule")] == [1, 1, 2, 2]
    assert (tmp_path / "state" / "tracellm" / "explanations-seen").exists()


def test_the_mark_is_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is below XDG_STATE_HOME, or below ~/.local/state without an absolute path there."""
    assert not explanations_seen({"XDG_STATE_HOME": str(tmp_path)})
    remember_explanations({"XDG_STATE_HOME": str(tmp_path)})
    assert explanations_seen({"XDG_STATE_HOME": str(tmp_path)})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for environ in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert not explanations_seen(environ)
    remember_explanations({})
    assert (tmp_path / "home" / ".local" / "state" / "tracellm" / "explanations-seen").exists()
    assert explanations_seen({"XDG_STATE_HOME": "relative"})


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run shows the explanations if the mark cannot be written, and none fails."""
    (tmp_path / "file").touch()
    for state in (os.devnull, str(tmp_path / "file"), str(tmp_path / ("x" * 300))):
        remember_explanations({"XDG_STATE_HOME": state})
        assert not explanations_seen({"XDG_STATE_HOME": state})
    monkeypatch.setenv("HOME", os.devnull)
    remember_explanations({})
    assert not explanations_seen({})

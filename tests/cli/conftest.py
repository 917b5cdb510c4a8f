"""Fixtures of the command's tests: the command in this process, and an explained run of the real engine."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tracellm.cli import main

SCRIPT = """\
import sys
from tracellm import LLM, SamplingParams

llm = LLM(max_num_seqs=2, max_model_len=64, num_gpu_blocks_override=32)
for output in llm.generate(["Hello", "你好", "The <b>secret</b> word;"], SamplingParams(max_tokens=4, ignore_eos=True)):
    print(repr(output.outputs[0].text))
"""
"""Three requests with room for two, so that one waits."""


@dataclass(frozen=True)
class Said:
    """Output and exit status of a command."""

    status: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function to run the command in this process, `command("show", "tree")`; not for `run`."""

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["tracellm", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Said(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """Run `tracellm run --explain script.py` once; return its folder, with `tracellm-runs/`, and its output."""
    folder = tmp_path_factory.mktemp("explained")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tracellm", "run", "--explain", "script.py"],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
    )
    return folder, Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run_folder(explained: tuple[Path, Said]) -> Path:
    """The run folder of that run; do not change it."""
    (folder,) = (explained[0] / "tracellm-runs").iterdir()
    return folder

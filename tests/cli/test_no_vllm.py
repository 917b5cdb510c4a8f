"""Messages for scripts and commands of vLLM without an installed vLLM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str, folder: Path, lang: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracellm", "run", *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "TRACELLM_LANG": lang, "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize(("lang", "said"), [("en", "vLLM is not installed for this Python"), ("zh", "没有安装 vLLM")])
def test_the_command_vllm_is_asked_for(lang: str, said: str, tmp_path: Path) -> None:
    """`vllm serve` without vLLM is refused in one line that names `--engine tracellm`."""
    done = _run("vllm", "serve", "tiny", folder=tmp_path, lang=lang)
    [line] = done.stderr.splitlines()
    assert done.returncode == 2
    assert said in line
    assert sys.executable in line
    assert "tracellm run --engine tracellm" in line


def test_a_script_asks_for_it(tmp_path: Path) -> None:
    """A script that imports vLLM gets python's traceback with that advice below; other modules do not."""
    (tmp_path / "script.py").write_text("import vllm\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("import vllm_not_this\n", encoding="utf-8")
    done = _run("script.py", folder=tmp_path, lang="en")
    assert done.returncode == 1
    assert "\nModuleNotFoundError: No module named 'vllm'\ntracellm: vLLM is not installed for" in done.stderr
    assert "tracellm: " not in _run("other.py", folder=tmp_path, lang="en").stderr

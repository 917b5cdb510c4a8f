"""`tracellm run --explain --live`: the view at the foot of a terminal, its end, and runs without a terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

SCRIPT = """\
from pathlib import Path
from tracellm import LLM, SamplingParams

llm = LLM(max_num_seqs=2, max_model_len=128, num_gpu_blocks_override=32)
print("begins", flush=True)
for _ in range(10_000):
    llm.generate(["Hello", "你好", "The word;"], SamplingParams(max_tokens=8, ignore_eos=True), use_tqdm=False)
    if Path("drawn").exists():
        END
print("ends")
"""

RESET = "\x1b[r"
"""Gives the whole terminal to the text again."""


def run_live(
    folder: Path, end: str, *options: str, columns: int = 80, lines: int = 30, interrupt: bool = False
) -> tuple[int, str]:
    """Run a script with --live on a terminal; return the exit status and what the terminal got.

    The script generates until the view was drawn, then runs `end`, or is interrupted.
    """
    (folder / "script.py").write_text(SCRIPT.replace("END", end), encoding="utf-8")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tracellm", "run", "--explain", "--detail=step", *options, "--out=run", "script.py"],
        cwd=folder,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    output, drawn = b"", False
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            read = os.read(ours, 65536)
        except OSError:  # the terminal has no writer any more
            break
        if not read:
            break
        output += read
        if not drawn and b"\x1b7\x1b[22;1H" in output:
            drawn = True
            if interrupt:
                process.send_signal(signal.SIGINT)
            else:
                (folder / "drawn").touch()
    os.close(ours)
    return process.wait(timeout=60), output.decode()


def last_view(output: str) -> list[str]:
    """Return the lines of the view as last drawn, without styles."""
    drawn = re.findall(r"\x1b7((?:\x1b\[\d+;1H[^\x1b]*(?:\x1b\[[\d;]*m[^\x1b]*)*\x1b\[K)+)\x1b8", output)
    lines = re.split(r"\x1b\[\d+;1H", drawn[-1])[1:]
    return [re.sub(r"\x1b\[[\d;]*[mK]", "", line).rstrip() for line in lines]


@pytest.mark.parametrize(("lang", "columns"), [("en", 80), ("zh", 140)])
def test_the_view_is_shown_and_ends(lang: str, columns: int, tmp_path: Path) -> None:
    """The view shows queues, budget, KV cache, rates and changes; at its end the whole terminal scrolls again."""
    status, output = run_live(tmp_path, "break", "--live", f"--lang={lang}", columns=columns)
    assert status == 0
    view = last_view(output)
    heads = {
        "en": ["step ", "Queues ", "Token budget ", "KV cache ", "Tokens per second "],
        "zh": ["第 ", "队列 ", "token 预算 ", "KV 缓存 ", "每秒 token 数 "],
    }[lang]
    assert len(view) == 9
    assert all(line.startswith(head) for line, head in zip(view, heads, strict=False))
    assert view[5].startswith(("Step", "第"))
    before, after = output.split(RESET, 1)
    assert "\x1b[1;21r" in before
    assert RESET not in after
    assert "begins" in before
    assert "ends" in before
    assert "run/report.html" in after
    assert ("Output 0" if lang == "en" else "输出 0") in after


@pytest.mark.parametrize(
    ("end", "status"), [("raise ValueError('no')", 1), ("import os; os._exit(3)", 3), ("break", 130)]
)
def test_the_terminal_is_whole_after_any_end(end: str, status: int, tmp_path: Path) -> None:
    """After an exception, `os._exit` and Ctrl-C, the view is gone and the outcome is printed."""
    interrupt = status == 130
    ended, output = run_live(tmp_path, end, "--live", interrupt=interrupt)
    assert ended == (-signal.SIGINT if interrupt else status)
    assert output.count("\x1b[1;21r") == output.count(RESET) == 1
    assert "tracellm: run " in output.split(RESET)[1]


@pytest.mark.parametrize("lines", [10, None])
def test_without_a_fitting_terminal_the_log_is_shown(lines: int | None, tmp_path: Path) -> None:
    """In a pipe, or on a terminal with few lines, one sentence comes before the usual log."""
    sentence = (
        "tracellm: --live needs a terminal on stderr of at least 60 columns and 16 lines; the log is shown instead"
    )
    if lines is not None:
        (tmp_path / "drawn").touch()  # it never is
        _, output = run_live(tmp_path, "break", "--live", columns=140, lines=lines)
        assert "Client: InprocClient" in output
    else:
        (tmp_path / "script.py").write_text("print('plain')\n")
        done = subprocess.run(
            [sys.executable, "-m", "tracellm", "run", "--explain", "--live", "script.py"],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
        )
        assert (done.returncode, done.stdout) == (0, "plain\n")
        output = done.stderr
    assert output.splitlines()[0] == sentence
    assert "\x1b7" not in output

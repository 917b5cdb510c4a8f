"""The example of the asynchronous engine: three concurrent callers get the outputs of a batch of three."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_it_says_what_hello_says():
    """Its outputs are those of `hello.py`, in the order of the prompts."""
    command = [sys.executable, str(EXAMPLES / "async_generate.py")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in (EXAMPLES.parent / "docs" / "first-run.md").read_text(encoding="utf-8")
    assert done.stdout.count("Prompt: ") == 3

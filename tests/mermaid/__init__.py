"""Real Mermaid for the tests: `parse_mermaid(text)` reads a diagram as GitHub or a browser would.

One Node process (`parse.mjs`) serves a whole test session. It needs Node 18 or later, and Mermaid itself:

    npm ci --prefix tests/mermaid
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

ParseMermaid = Callable[[str], dict[str, Any]]
"""A diagram's source to what Mermaid understood; see `parse.mjs` for the keys. Fails the test on a syntax error."""


class MermaidError(AssertionError):
    """Mermaid refused a diagram."""


class RealMermaid:
    """The Node process that parses."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", "parse.mjs"], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
        )

    def parse(self, source: str) -> dict[str, Any]:
        """What Mermaid makes of `source`.

        Raises:
            MermaidError: it is not valid Mermaid.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(source) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"tests/mermaid/parse.mjs ended with status {self._process.wait()}: see its output above"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MermaidError(f"{answer['error']}\n--- the diagram:\n{source}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def lacking() -> str:
    """What is not there that real Mermaid needs, and how to get it; empty when all is there."""
    if shutil.which("node") is None:
        return "node is not installed: install Node.js 18 or later, then run `npm ci --prefix tests/mermaid`"
    if not (HERE / "node_modules" / "mermaid").is_dir():
        return "Mermaid is not installed: run `npm ci --prefix tests/mermaid`"
    return ""


@pytest.fixture(scope="session")
def real_mermaid() -> Iterator[RealMermaid]:
    """The running process; without Node or Mermaid the test is skipped, and fails where CI is set."""
    if problem := lacking():
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    mermaid = RealMermaid()
    yield mermaid
    mermaid.close()


@pytest.fixture(scope="session")
def parse_mermaid(real_mermaid: RealMermaid) -> ParseMermaid:
    """The diagram as real Mermaid understands it."""
    return real_mermaid.parse

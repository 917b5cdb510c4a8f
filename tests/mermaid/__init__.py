"""Real Mermaid for the tests: `parse_mermaid(text)` parses a diagram as GitHub or a browser does.

One Node process (`parse.mjs`) serves a whole test session. It needs Node 18 or later, and Mermaid itself:

    npm ci --prefix tests/mermaid
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node import require_node

HERE = Path(__file__).parent

ParseMermaid = Callable[[str], dict[str, Any]]
"""Function from a diagram's source to the parsed diagram (keys in `parse.mjs`). Fails the test on a syntax error."""


class MermaidError(AssertionError):
    """Mermaid found a syntax error in a diagram."""


class RealMermaid:
    """Node process that parses diagrams."""

    def __init__(self, node: str) -> None:
        self._process = subprocess.Popen(
            [node, "parse.mjs"], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
        )

    def parse(self, source: str) -> dict[str, Any]:
        """Return the diagram as Mermaid parsed it.

        Raises:
            MermaidError: `source` is not valid Mermaid.
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


@pytest.fixture(scope="session")
def real_mermaid() -> Iterator[RealMermaid]:
    """The running process; without Node or Mermaid the test is skipped, which fails in CI."""
    node = require_node()
    if not (HERE / "node_modules" / "mermaid").is_dir():
        pytest.skip("Mermaid is not installed: run `npm ci --prefix tests/mermaid`")
    mermaid = RealMermaid(node)
    yield mermaid
    mermaid.close()


@pytest.fixture(scope="session")
def parse_mermaid(real_mermaid: RealMermaid) -> ParseMermaid:
    """The function that parses a diagram with real Mermaid."""
    return real_mermaid.parse

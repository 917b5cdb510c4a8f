"""Node.js, which runs the page's script and real Mermaid in tests."""

import shutil

import pytest

__all__ = ["require_node"]


def require_node() -> str:
    """Return the path of Node.js; without it the test is skipped, which fails in CI."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: install Node.js 20 or later")
    return node

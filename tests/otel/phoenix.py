"""Arize Phoenix, a real backend for recordings, in an environment made by `scripts/install-phoenix.sh`."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

__all__ = ["Phoenix", "phoenix"]

_USUAL = Path(__file__).parents[2] / ".venv-phoenix" / "bin" / "python"

_SERVE = """
import runpy, sys
from grpc.aio._server import Server
bind = Server.add_insecure_port
Server.add_insecure_port = lambda self, address: bind(self, address.replace("[::]", "127.0.0.1"))  # not all networks
sys.argv = ["phoenix", "serve"]
runpy.run_module("phoenix.server.main", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Phoenix:
    """A running server with its ports."""

    http: int
    grpc: int

    def spans(self, project: str) -> list[dict[str, Any]]:
        """Return all spans of a project from its REST API; none while the project does not exist."""
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next_cursor": ""}
        while page["next_cursor"] is not None:
            more = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
            query = urlencode({"limit": 1000, **more})
            try:
                with urlopen(f"http://127.0.0.1:{self.http}/v1/projects/{project}/spans?{query}") as answer:
                    page = json.load(answer)
            except OSError:  # 404
                return []
            found += page["data"]
        return found


@contextmanager
def phoenix(folder: Path) -> Iterator[Phoenix]:
    """Run Phoenix on this machine alone, with its database in `folder`, while the block runs.

    Without Phoenix the test is skipped; where CI is set, tests/conftest.py makes that a failure.
    """
    python = Path(os.environ.get("TRACELLM_PHOENIX_PYTHON", _USUAL))
    if not python.exists():
        pytest.skip(f"there is no Arize Phoenix at {python}: scripts/install-phoenix.sh makes one")
    http, grpc = _free_ports()
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_", "OMP_"))}
    environment = {
        **usual,
        "HOME": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        "PHOENIX_ENABLE_MCP_SERVER": "false",
        "PYTHONUNBUFFERED": "1",
    }
    log = folder / "phoenix.log"  # no pipe: Phoenix logs every request, and would block without a reader
    with log.open("wb") as output:
        server = subprocess.Popen([python, "-c", _SERVE], env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        while b"Uvicorn running" not in log.read_bytes():
            if server.poll() is not None:
                pytest.fail("Phoenix did not start:\n" + log.read_text(errors="replace")[-3000:])
            time.sleep(0.1)
        yield Phoenix(http, grpc)
    finally:
        server.terminate()
        server.wait()


def _free_ports() -> list[int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [one.getsockname()[1], other.getsockname()[1]]

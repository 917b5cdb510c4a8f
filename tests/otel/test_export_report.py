"""The report of a failed export: one line at the end of a run, in the reader's language."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tracellm.probes.export import sender_process
from tracellm.probes.export.metrics import HISTOGRAMS
from tracellm.report.facts.coverage import cost
from tracellm.report.wording.problems import recording_problems

ROOT = Path(__file__).parents[2]


def test_a_run_says_in_one_line_that_its_collector_is_down(tmp_path: Path):
    """`tracellm run` has the script's exit status, and one line for an absent collector, also in the report."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    (tmp_path / "script.py").write_text("import tracellm\ntracellm.probe(print)('hello')\n")
    command = [sys.executable, "-m", "tracellm", "run", "--explain", "--quiet", "--out", "run", "script.py"]
    wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **wanted}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    actual = f"2 spans did not reach http://127.0.0.1:{port}/v1/traces: Connection refused. They are in the run folder"
    assert done.stderr == f"tracellm: problem in the recording: {actual}\n"
    assert actual in (tmp_path / "run" / "report.html").read_text()


def export(**actual: Any) -> dict[str, Any]:
    """Return a manifest with this export."""
    return {"probes": {"export": {"endpoint": "http://there", "sent": 5, "lost": 0, "errors": [], **actual}}}


@pytest.mark.parametrize(
    ("manifest", "en", "zh"),
    [
        ({"probes": {}}, [], []),
        (export(), [], []),
        (
            export(lost=1, errors=["it answered 401 Unauthorized", "no"]),
            ["1 span did not reach http://there: it answered 401 Unauthorized; no. They are in the run folder"],
            ["1 个 span 没有到达 http://there：it answered 401 Unauthorized；no。运行目录中有这些 span"],
        ),
        (
            export(sent=None, lost=None, errors=["gone"]),
            ["the number of spans that reached http://there is unknown: gone. The run folder has all spans"],
            ["到达 http://there 的 span 数未知：gone。运行目录中有全部 span"],
        ),
        (
            export(errors=["metrics: no"]),
            ["sending to http://there: metrics: no"],
            ["发送到 http://there：metrics: no"],
        ),
        (
            export(endpoint=None, errors=["no address"]),
            ["no spans are sent to a collector: no address"],
            ["没有向 collector 发送 span：no address"],
        ),
        ({"probes": {"export": "damaged"}}, [], []),
    ],
)
def test_what_did_not_arrive_is_told(manifest: dict[str, Any], en: list[str], zh: list[str]):
    """The report has the number, address and reason of lost spans; a malformed manifest gives none."""
    assert recording_problems(manifest, "en") == en
    assert recording_problems(manifest, "zh") == zh


def test_what_arrived_is_told():
    """The report has the number of spans sent, and their address."""
    assert cost(export(), "en") == ["Sent to http://there: 5 spans."]
    assert cost(export(sent=0), "en") == []


@pytest.mark.parametrize("page", ["docs/opentelemetry.md", "docs/zh/opentelemetry.md"])
def test_the_page_knows_every_metric_and_variable(page: str):
    """docs/opentelemetry.md lists each histogram with its unit, and each variable that is read."""
    actual = (ROOT / page).read_text()
    for name, (unit, _, _) in HISTOGRAMS.items():
        assert f"| `{name}` | {unit} |" in actual
    source = Path(str(sender_process.__file__)).read_text()
    variables = set(re.findall(r"OTEL_[A-Z_]+[A-Z]", source))
    assert len(variables) > 5
    assert [name for name in variables if f"`{name}`" not in actual and f"`{name}_" not in actual] == []

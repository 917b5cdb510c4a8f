"""`tracellm doctor`: its findings, its advice and its exit status."""

import json
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tracellm.cli.commands import doctor
from tracellm.report.texts import LANGUAGES


def checks_of(command: Command, status: int) -> dict[str, dict[str, Any]]:
    """Return the findings of `doctor --json` by name, after a line on stderr that the check of vLLM takes time."""
    said = command("doctor", "--json")
    assert said.status == status
    assert re.fullmatch(r"  probes for vLLM: importing .* seconds \.\.\.\n", said.err)
    return {one["name"]: one for one in json.loads(said.out)}


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that looks like an installed vLLM."""
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '0.99.0'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_without_vllm(command: Command, lang: str) -> None:
    """A missing vLLM is not an error, and the advice mentions --engine tracellm."""
    said = command("doctor", "--lang", lang)
    assert (said.status, said.err) == (0, "")
    lines = said.out.splitlines()
    assert [line.split(":")[0] for line in lines if line[0] != " "][:3] == ["✓ Python", "✓ tracellm", "✓ torch"]
    assert any(line.startswith("- vLLM") for line in lines)
    assert "--engine tracellm" in said.out


@pytest.mark.usefixtures("vllm")
def test_a_vllm_that_has_nothing(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every probe without a target is listed, with advice; the exit status is 1."""
    monkeypatch.setattr(doctor, "entry_points", lambda group: [EntryPoint("tracellm", "a:b", group)])
    found = checks_of(command, 1)
    assert found["vLLM"]["status"] == found["vLLM plugin"]["status"] == "good"
    probes = found["probes for vLLM"]
    assert (probes["status"], probes["advice"] != "") == ("bad", True)
    assert "vllm.v1.core.sched.scheduler:Scheduler.schedule" in probes["details"]
    assert probes["found"].endswith("found their target in vLLM 0.99.0")


@pytest.mark.usefixtures("vllm")
def test_a_plugin_that_is_not_there(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that is not installed, or that VLLM_PLUGINS excludes, is a bad finding."""
    probes = {"version": "0.99", "probes": 3, "missing": [], "unreadable": {}}
    monkeypatch.setattr(doctor, "_check_probes", lambda: probes)
    monkeypatch.setattr(doctor, "entry_points", lambda group: [])
    assert "reinstall tracellm" in checks_of(command, 1)["vLLM plugin"]["advice"]
    monkeypatch.setattr(doctor, "entry_points", lambda group: [EntryPoint("tracellm", "a:b", group)])
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    assert checks_of(command, 1)["vLLM plugin"]["found"].startswith("VLLM_PLUGINS is 'other'")
    monkeypatch.setenv("VLLM_PLUGINS", "other,tracellm")
    found = checks_of(command, 0)
    assert found["probes for vLLM"] == {
        "name": "probes for vLLM",
        "status": "good",
        "found": "3 of 3 probes found their target in vLLM 0.99",
        "advice": "",
        "details": [],
    }


@pytest.mark.usefixtures("vllm")
def test_a_vllm_that_cannot_be_imported(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If vLLM ends the process that checks it, one line reports that."""
    monkeypatch.setattr(doctor, "entry_points", lambda group: [EntryPoint("tracellm", "a:b", group)])
    (tmp_path / "vllm" / "__init__.py").write_text("import os\nos._exit(132)\n")
    assert checks_of(command, 1)["probes for vLLM"]["found"] == "vLLM could not be checked (exit status 132)"

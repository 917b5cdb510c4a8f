"""`tracellm doctor`: checks the installation, and whether a real vLLM can be recorded."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import click

from tracellm import __version__
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out
from tracellm.probes.catalog.coverage import vllm_version
from tracellm.report.texts import Language, text
from tracellm.report.wording.safe_text import visible

__all__ = ["doctor"]

_OLDEST_PYTHON = (3, 11)
_CHECK_TIMEOUT_SECONDS = 300.0
_PLUGINS, _PLUGIN = "vllm.general_plugins", "tracellm"
_ALLOWED = "VLLM_PLUGINS"
"""vLLM's environment variable with the allowed plugins."""

Status = Literal["good", "note", "bad"]
_MARKS: dict[str, str] = {"good": "✓", "note": "-", "bad": "✗"}


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what to do. The status `note` is for what is missing but optional."""

    name: str
    status: Status
    found: str
    advice: str = ""
    details: tuple[str, ...] = ()


@click.command(cls=Command, usage=[], help="cli.help.doctor")
@option("--json", "as_json", is_flag=True, help="cli.help.doctor.json")
@language_option
def doctor(as_json: bool, lang: Language) -> int:
    """Print the findings, as text or JSON. Returns 1 if one is bad, else 0."""
    findings = []
    for finding in _findings(lang):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        print_out(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
    return 1 if any(finding.status == "bad" for finding in findings) else 0


def _print(finding: Finding) -> None:
    print_out(f"{_MARKS[finding.status]} {finding.name}: {visible(finding.found)}")
    for line in (*finding.details, *([finding.advice] if finding.advice else [])):
        print_out(f"    {visible(line)}")


def _findings(lang: Language) -> Iterator[Finding]:
    def say(key: str, **values: Any) -> str:
        return text(lang, f"doctor.{key}", **values)

    old = sys.version_info < _OLDEST_PYTHON
    found = f"{platform.python_version()}, {sys.executable}"
    yield Finding("Python", "bad" if old else "good", found, say("python_old") if old else "")
    yield Finding("tracellm", "good", f"{__version__}, {Path(__file__).parents[2]}")
    yield from _torch(say)
    spec = find_spec("vllm")
    if spec is None:
        yield Finding("vLLM", "note", say("vllm_none"), say("vllm_none_advice"))
        return
    places = list(spec.submodule_search_locations or ())
    yield Finding("vLLM", "good", ", ".join([vllm_version() or "?", *places[:1]]))
    yield from _plugin(say)
    yield _probes(say)


def _torch(say: Any) -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("torch", "bad", say("torch_none", error=error), say("torch_none_advice"))
        return
    yield Finding("torch", "good", str(torch.__version__))
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [torch.cuda.get_device_name(index) for index in range(count)]
    yield Finding("GPU", "good" if devices else "note", ", ".join(devices) or say("gpu_none"))


def _plugin(say: Any) -> Iterator[Finding]:
    """Check the plugin, through which vLLM's processes join a recording."""
    name = say("plugin")
    known = [entry for entry in entry_points(group=_PLUGINS) if entry.name == _PLUGIN]
    allowed = os.environ.get(_ALLOWED)
    if not known:
        yield Finding(name, "bad", say("plugin_none", group=_PLUGINS), say("plugin_none_advice"))
    elif allowed is not None and _PLUGIN not in allowed.split(","):
        yield Finding(name, "bad", say("plugin_barred", variable=_ALLOWED, value=allowed), say("plugin_barred_advice"))
    else:
        yield Finding(name, "good", f"{_PLUGINS}: {known[0].value}")


def _probes(say: Any) -> Finding:
    name = say("probes")
    print(f"  {name}: {say('probes_looking')}", file=sys.stderr, flush=True)  # stderr: stdout may be JSON
    probes = _check_probes()
    if isinstance(probes, str):
        return Finding(name, "bad", say("probes_unknown", error=probes), say("probes_unknown_advice"))
    lost = [target for target in probes["missing"] if target.partition(":")[0] not in probes["unreadable"]]
    unread = [f"{module}: {reason}" for module, reason in probes["unreadable"].items()]
    found = say("probes_found", n=probes["probes"] - len(lost), probes=probes["probes"], version=probes["version"])
    if lost:
        return Finding(name, "bad", found, say("probes_missing_advice"), (*lost, *unread))
    return Finding(name, "note" if unread else "good", found, say("probes_unread") if unread else "", tuple(unread))


def _check_probes() -> dict[str, Any] | str:
    """Return the output of probes/install/catalog_check.py, run as a process, or the reason why it failed."""
    command = [sys.executable, "-m", "tracellm.probes.install.catalog_check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{_CHECK_TIMEOUT_SECONDS:.0f} s"
    try:
        probes: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return probes
    except (IndexError, ValueError):
        errors = done.stderr.strip().splitlines()
        return errors[-1] if errors else f"exit status {done.returncode}"

"""`run.json`: what was run, by what, where, with which options, how it ended, and what recording it cost."""

import os
import platform
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tracellm import __version__
from tracellm.probes.found import vllm_version
from tracellm.trace.run_folder import SCHEMA

__all__ = ["new_manifest"]

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")


def new_manifest(*, script: str, argv: Sequence[str], options: dict[str, Any], text: bool) -> dict[str, Any]:
    """The manifest of a run that starts now. Without `text` the script's arguments, which may hold prompts, are masked.

    `docs/run-folder.md` describes every entry.
    """
    return {
        "schema": SCHEMA,
        "tracellm": __version__,
        "status": "running",
        "script": script,
        "argv": [argv[0], *(argv[1:] if text else ["***"] * len(argv[1:]))] if argv else [],
        "cwd": os.getcwd(),
        "started_at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "duration_s": None,
        "exit_status": None,
        "error": None,
        "versions": {"python": platform.python_version(), **_versions()},
        "host": {
            "name": platform.node(),
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "memory_bytes": _memory(),
            "gpus": [],
        },
        "options": {"text": text, **options},
        "probes": None,
        "processes": [{"pid": os.getpid(), "name": "main"}],
    }


def gpus() -> list[str]:
    """The CUDA devices, by name, when the script has imported torch and used them."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, **({"vllm": known} if (known := vllm_version()) else {})}


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None

"""Generated parts of docs/as-vllm.md: the tables of names and of moved files, and the messages for missing names.

`make_docs.py` calls it. The messages come from runs of `tracellm run --engine tracellm`, none of which loads a model.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tracellm.as_vllm.table import HOMES
from tracellm.report.facts.counterparts import VLLM_VERSIONS, counterparts

__all__ = ["blocks"]

ROOT = Path(__file__).parents[1]
_ASKED = (
    "from vllm import ClassificationRequestOutput",
    "from vllm.lora.request import LoRARequest",
    "from vllm.v1.engine.core_client import DPAsyncMPClient",
    "from vllm import LLM; LLM(model='tiny', enable_lora=True)",
)
_HEADS = {"en": "| module of vLLM | names | here |", "zh": "| vLLM 的模块 | 名字 | 在这里 |"}


def blocks(lang: str) -> dict[str, str]:
    """Return the generated parts by the names of their marks."""
    return {"as-vllm-names": _names(lang), "as-vllm-moved": _moved(lang), "as-vllm-refused": _refused()}


def _names(lang: str) -> str:
    """Return the table of vLLM's modules, their names, and the modules of tracellm with them."""
    above = ".." if lang == "en" else "../.."
    rows = [_HEADS[lang], "|---|---|---|"]
    for module, names in HOMES.items():
        homes = dict.fromkeys(home for home, _ in names.values())
        links = ", ".join(f"[`{home.removeprefix('tracellm.')}`]({above}/{_file(home)})" for home in homes)
        if names:
            rows.append(f"| `{module}` | {', '.join(f'`{name}`' for name in names)} | {links} |")
    return "\n".join([*rows, ""])


def _moved(lang: str) -> str:
    """Return the table of functions that the later vLLM has in another file or class; a class if it has all of them."""
    homes: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, row in counterparts().items():
        if name.startswith("tracellm.") and VLLM_VERSIONS[0] in row and "helper" not in row:
            *_, owner, function = name.split(".")
            found = [row.get(version) for version in VLLM_VERSIONS]
            places = tuple(_place(one) if one else "–" for one in found)
            homes.setdefault(owner if owner[0].isupper() else function, {}).setdefault(places, []).append(function)
    lines = [f"| {'here' if lang == 'en' else '这里'} | {' | '.join(f'vLLM {version}' for version in VLLM_VERSIONS)} |"]
    lines.append("|---|---|---|")
    for owner, groups in homes.items():
        for places, functions in groups.items():
            if len(set(places)) > 1:
                names = [owner] if len(groups) == 1 else [f"{owner}.{function}" for function in functions]
                lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(places)} |")
    return "\n".join([*lines, ""])


def _place(found: dict[str, Any]) -> str:
    """Return the file of a function in vLLM, and its class or its own name."""
    return f"`{found['file']}` `{found['name'].partition('.')[0]}`"


def _file(module: str) -> str:
    path = Path(*module.split("."))
    return str(path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py"))


def _refused() -> str:
    """Return a script for each missing thing, with its message."""
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for line in _ASKED:
            Path(folder, "script.py").write_text(f"{line}\n", encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "tracellm", "run", "--engine", "tracellm", "script.py"],
                cwd=folder,
                capture_output=True,
                encoding="utf-8",
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            said.append(done.stderr.strip())
    return "```text\n" + "\n\n".join(said) + "\n```\n"

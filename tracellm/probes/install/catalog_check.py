"""Check which probes find their targets in the installed vLLM, by importing its modules without starting an engine.

`tracellm doctor` runs this as `python -m tracellm.probes.install.catalog_check`.
"""

import importlib
import json
import sys
from typing import Any

from tracellm.probes.catalog.coverage import is_known_to_lack, vllm_version
from tracellm.probes.catalog.vllm import CATALOG, PACKAGE
from tracellm.probes.install.installation import Installation
from tracellm.probes.install.selection import Selection

__all__ = ["examine"]


def examine() -> dict[str, Any]:
    """Import the catalog's modules, and look for its targets.

    Returns:
        vLLM's `version`; `probes`, the number of probes for it; `missing` targets; `unreadable` modules, which cannot
        be imported here, with the reasons.
    """
    unreadable = {}
    for name in dict.fromkeys(target.partition(":")[0] for entry in CATALOG for target in entry.targets):
        if "*" not in name:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not name.startswith(error.name):  # it exists, but needs another library
                    unreadable[name] = str(error)
            except Exception as error:  # such as on a machine without a GPU
                unreadable[name] = f"{type(error).__name__}: {error}"
    installation = Installation(CATALOG, Selection(), [])
    installation.findings.add_module(PACKAGE)
    installation.start()
    installation.stop()
    missing = installation.findings.missing
    version = vllm_version()
    # Counted as in reports.
    targets = [entry.target for entry in CATALOG if entry.target.partition(".")[0] == PACKAGE]
    probes = sum(not is_known_to_lack(version, target) for target in targets)
    return {"version": version, "probes": probes, "missing": missing, "unreadable": unreadable}


if __name__ == "__main__":
    found = examine()
    sys.stdout.flush()
    print(json.dumps(found))  # noqa: T201  # the last line; vLLM logs to stdout, too

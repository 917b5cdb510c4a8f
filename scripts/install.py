"""Installs packages into this Python's environment with uv, in a tenth of pip's time.

    python scripts/install.py ARGUMENT...      arguments of `pip install`

uv looks where pip is configured to look. If pip has a setting that is not translated here, if uv can't be installed, or
if it fails, pip does the work.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""Variables of uv by pip's setting."""
LISTS = ("extra-index-url", "find-links", "constraint", "trusted-host")
"""Settings with several values, separated by spaces."""
PLACES = ("extra-index-url", "find-links")
"""Lists that may name folders; pip skips folders that do not exist."""
IGNORED = {
    "cache-dir", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input", "no-warn-script-location",
    "progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action", "use-feature", "verbose",
}  # fmt: skip
"""Settings that do not change what is installed."""


def translated(listed: str) -> tuple[dict[str, str], list[str]]:
    """Return the output of `pip config list` as variables of uv, and the settings that uv does not have.

    As in pip, a command's section counts more than the global one, and environment variables count most. Folders that
    pip would skip are left out.
    """
    variables, others = {}, []
    for section in ("global", "install", ":env:"):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if not name.startswith(f"{section}."):
                continue
            setting, value = name.removeprefix(f"{section}."), ast.literal_eval(value)
            if setting in VARIABLES:
                variables[VARIABLES[setting]] = _value(setting, value)
            elif setting not in IGNORED:
                others.append(setting)
    return variables, others


def _value(setting: str, value: str) -> str:
    if setting not in LISTS:
        return value
    values = [place for place in value.split() if setting not in PLACES or _exists(place)]
    return ("," if setting == "find-links" else " ").join(values)


def _exists(place: str) -> bool:
    if "://" in place and not place.startswith("file://"):
        return True
    return Path(unquote(place.removeprefix("file://"))).expanduser().exists()


def install(arguments: list[str]) -> int:
    """Install what the arguments of `pip install` name; return the exit status."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, encoding="utf-8", check=True).stdout
    variables, others = translated(listed)
    if others:
        print(
            f"pip is configured with {', '.join(others)}, which this script does not translate for uv; pip installs",
            file=sys.stderr,
        )
    else:
        # As pip: the newest version in any index, and bytecode, which PYTHONDONTWRITEBYTECODE forbids at import. Files
        # of constraints are arguments, because `-c` replaces the variable.
        environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "1", **variables, **os.environ}
        constraints = [part for file in environment.pop("UV_CONSTRAINT", "").split() for part in ("-c", file)]
        uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", sys.executable]
        try:
            subprocess.run([*PIP, "install", "--quiet", "--only-binary", ":all:", "uv"], check=True)
            subprocess.run([*uv, *constraints, *arguments], env=environment, check=True)
        except subprocess.CalledProcessError:
            print("uv cannot be used; pip installs", file=sys.stderr)
        else:
            return 0
    return subprocess.run([*PIP, "install", "--quiet", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))

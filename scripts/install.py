"""Installs packages into this Python's environment with uv, in a tenth of pip's time.

    python scripts/install.py ARGUMENT...      arguments of `pip install`

uv looks where pip is configured to look. If uv can't be installed, or fails, pip does the work.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
"""Variables of uv by pip's setting."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def settings() -> dict[str, str]:
    """Return pip's configuration as variables of uv, apart from folders that do not exist."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, encoding="utf-8", check=True).stdout
    # As pip: the newest version in any index, and bytecode, which PYTHONDONTWRITEBYTECODE forbids at import.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "1"}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):  # pip's variables come last
        name, _, value = line.partition("=")
        section, _, setting = name.rpartition(".")
        variable = SETTINGS.get(setting)
        if variable is not None and section in ("global", "install", ":env:"):
            places = [place for place in ast.literal_eval(value).split() if _exists(place)]
            found[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(places)
    return found


def _exists(place: str) -> bool:
    path = place.removeprefix("file://")
    return not path.startswith("/") or Path(path).exists()


def main() -> None:
    """Install what the arguments name."""
    arguments = sys.argv[1:]
    try:
        subprocess.run([*PIP, "install", "--quiet", "uv"], check=True)
        uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", sys.executable]
        subprocess.run([*uv, *arguments], env={**settings(), **os.environ}, check=True)
    except subprocess.CalledProcessError:
        print("uv failed; trying pip", file=sys.stderr)
        sys.exit(subprocess.run([*PIP, "install", "--quiet", *arguments], check=False).returncode)


if __name__ == "__main__":
    main()

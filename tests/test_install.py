"""Installation of packages (scripts/install.py): uv looks where pip is configured to look."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.install import install, translated


def test_pips_settings_become_variables_of_uv(tmp_path: Path) -> None:
    """Indexes, folders, constraints, certificates and the timeout carry over; a folder that does not exist does not."""
    folder = tmp_path / "my wheels"
    folder.mkdir()
    listed = f"""
:env:.default-timeout='180'
global.cert='/etc/my certificates.pem'
global.constraint='one.txt /no/such.txt'
global.extra-index-url='https://one.example/simple {folder.as_uri()} file:///no/such'
global.find-links='/no/such {tmp_path} https://two.example/wheels'
global.index-url='https://mirror.example/simple'
install.trusted-host='mirror.example'
list.format='columns'
"""
    assert translated(listed) == (
        {
            "UV_HTTP_TIMEOUT": "180",
            "SSL_CERT_FILE": "/etc/my certificates.pem",
            "UV_CONSTRAINT": "one.txt /no/such.txt",
            "UV_INDEX": f"https://one.example/simple {folder.as_uri()}",
            "UV_FIND_LINKS": f"{tmp_path},https://two.example/wheels",
            "UV_DEFAULT_INDEX": "https://mirror.example/simple",
            "UV_INSECURE_HOST": "mirror.example",
        },
        [],
    )


@pytest.mark.parametrize("order", [1, -1])
def test_the_most_special_setting_counts(order: int) -> None:
    """An environment variable counts more than the command's section, and that more than the global one."""
    lines = ["global.index-url='a'", "global.timeout='1'", "install.index-url='b'", ":env:.index-url='c'"][::order]
    assert translated("\n".join(lines))[0] == {"UV_DEFAULT_INDEX": "c", "UV_HTTP_TIMEOUT": "1"}
    assert translated("\n".join(line for line in lines if ":env:" not in line))[0]["UV_DEFAULT_INDEX"] == "b"


def test_pip_keeps_settings_that_uv_lacks() -> None:
    """A setting that changes what is installed and has no variable is named; one about output is ignored."""
    assert translated("global.proxy='http://proxy:1'\n:env:.no-index='1'\nglobal.quiet='1'") == (
        {},
        ["proxy", "no-index"],
    )


@pytest.mark.parametrize(
    ("settings", "broken", "tools"),
    [
        ("global.constraint='one.txt two.txt'", (), ["config", "uv", "-c one.txt -c two.txt -r r.txt"]),
        ("global.no-index='1'", (), ["config", "pip"]),
        ("", ("--only-binary",), ["config", "uv", "pip"]),
        ("", ("--python",), ["config", "uv", "-r r.txt", "pip"]),
    ],
)
def test_pip_installs_where_uv_cannot(
    monkeypatch: pytest.MonkeyPatch, settings: str, broken: tuple[str, ...], tools: list[str]
) -> None:
    """uv gets pip's constraints as arguments; pip installs if uv cannot be installed, fails, or lacks a setting."""
    used = []

    def run(command: list[str], **options: Any) -> Any:
        arguments = " ".join(command[1:])
        if "config list" in arguments:
            used.append("config")
        elif "--only-binary :all: uv" in arguments:
            used.append("uv")
        elif "-m uv" in arguments:
            used.append(arguments.partition(f"--python {command[0]} ")[2])
        else:
            assert arguments.endswith("install --quiet -r r.txt")
            used.append("pip")
        if any(option in command for option in broken):
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, stdout=settings)

    monkeypatch.delenv("UV_CONSTRAINT", raising=False)
    monkeypatch.setattr(subprocess, "run", run)
    assert install(["-r", "r.txt"]) == 0
    assert used == tools

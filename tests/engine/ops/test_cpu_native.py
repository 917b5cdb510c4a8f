"""Tests of the CPU kernels' compilation and cache, and of the reasons when it fails."""

import logging
import shutil
import stat
import sys
from pathlib import Path

import pytest
import torch

from tracellm.engine.model_executor.ops.cpu import native

pytestmark = pytest.mark.usefixtures("fresh")


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The compiler's error is reported as the reason, and no file is left in the cache folder."""
    compiler = _script(tmp_path / "c++", "echo 'linear.cpp:1: error: no such thing' >&2; exit 1")
    monkeypatch.setenv(native.COMPILER, str(compiler))
    monkeypatch.setenv(native.CACHE, str(tmp_path / "kept"))
    kernels = native.load()
    assert kernels.library is None
    assert kernels.reason == f"{compiler} cannot compile the kernels: linear.cpp:1: error: no such thing"
    assert not list((tmp_path / "kept").iterdir())


def test_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernels are compiled once, until an input of the library changes."""
    loaded = native.load().library
    if loaded is None:
        pytest.skip("needs a C++ compiler")
    # Compiler that records its calls, and returns what the real one has compiled before.
    shutil.copy(str(loaded._name), tmp_path / "made.so")
    compiler = _script(
        tmp_path / "c++",
        f'echo called >> {tmp_path}/calls; while [ "$1" != -o ]; do shift; done; cp {tmp_path}/made.so "$2"',
    )
    monkeypatch.setenv(native.COMPILER, str(compiler))
    monkeypatch.setenv(native.CACHE, str(tmp_path / "kept"))

    def calls() -> int:
        native.load.cache_clear()
        assert native.load().library is not None
        return len((tmp_path / "calls").read_text().splitlines())

    assert calls() == 1
    assert native.load().compile_seconds > 0
    assert calls() == 1
    assert native.load().compile_seconds == 0
    monkeypatch.setattr(native, "_FLAGS", (*native._FLAGS, "-g"))
    assert calls() == 2
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An unwritable cache folder is reported as the reason for PyTorch's operations."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(native.CACHE, str(tmp_path / "file" / "folder"))
    assert native.load().reason.startswith("the kernels cannot be kept or loaded: ")


@pytest.mark.parametrize(("terminal", "level"), [(True, logging.WARNING), (False, logging.INFO)])
def test_who_waits_for_the_compiler_is_told(
    terminal: bool, level: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Compilation is announced by a warning on a terminal, and at INFO elsewhere."""
    monkeypatch.setenv(native.COMPILER, str(_script(tmp_path / "c++", "exit 1")))
    monkeypatch.setenv(native.CACHE, str(tmp_path / "kept"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with caplog.at_level(logging.INFO):
        native.load()
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().endswith(f"They are kept in {tmp_path / 'kept'}")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home directory is reported as the reason for PyTorch's operations."""
    monkeypatch.setenv(native.COMPILER, "sh")
    monkeypatch.setenv(native.CACHE, "~nobody-has-this-name/kernels")
    assert native.load().reason.startswith("the kernels cannot be kept or loaded: ")


def test_a_folder_that_others_may_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No library is loaded from a folder that others may write to."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv(native.COMPILER, str(_script(tmp_path / "c++", "exit 1")))
    monkeypatch.setenv(native.CACHE, str(tmp_path / "shared"))
    assert f"others may write to {tmp_path}" in native.load().reason


def test_a_compiler_that_does_not_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler that hangs is killed, and no file is left in the cache folder."""
    compiler = _script(tmp_path / "c++", "exec sleep 20")
    monkeypatch.setenv(native.COMPILER, str(compiler))
    monkeypatch.setenv(native.CACHE, str(tmp_path / "kept"))
    monkeypatch.setattr(native, "_TIMEOUT", 0.1)
    assert native.load().reason == f"{compiler} did not compile the kernels within 0.1 s"
    assert not list((tmp_path / "kept").iterdir())


def test_the_library_that_torch_has_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library loaded by torch is found in a folder with spaces, and not confused with another name."""
    maps = tmp_path / "maps"
    maps.write_text(
        "7f0000-7f1000 r-xp 00000000 fe:01 12   /usr/lib/libompi_dbg.so\n"
        "7f0000-7f1000 r-xp 00000000 fe:01 13   /home/a b/torch/lib/libgomp-a34b3233.so.1\n"
        "7f0000-7f1000 rw-p 00000000 00:00 0\n"
    )
    monkeypatch.setattr(native, "_MAPS", maps)
    assert native._openmp_library() == "/home/a b/torch/lib/libgomp-a34b3233.so.1"
    own = f"{Path(torch.__file__).parent}/lib/libgomp-a34b3233.so.1"
    maps.write_text(f"{maps.read_text()}7f0000-7f1000 r-xp 00000000 fe:01 13   {own}\n")
    assert native._openmp_library() == own, "and not that of another package, which was loaded before it"


def test_every_file_is_compiled_and_in_the_name() -> None:
    """Every source is compiled, and a change of any file, headers included, gives another library."""
    files = Path(native.__file__).parent.iterdir()
    assert {file.name for file in files if file.suffix in (".cpp", ".h")} == {*native._SOURCES, *native._HEADERS}


def _script(path: Path, commands: str) -> Path:
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path

"""Open files of a recording, whose numbers the program may take for files of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracellm.probes.descriptor import Descriptor


def opened(path: Path) -> int:
    """The number of an open file."""
    return os.open(path, os.O_WRONLY | os.O_CREAT)


@pytest.fixture
def number(tmp_path: Path) -> Iterator[int]:
    """That of an open file which has no name any more, as a file of records that is being read."""
    made = opened(tmp_path / "records")
    (tmp_path / "records").unlink()
    yield made
    os.close(made)


def test_a_file_is_known_again(number: int, tmp_path: Path) -> None:
    """As long as nobody closes it, also when it has lost its name, and when its folder is renamed."""
    descriptor = Descriptor(number)
    assert descriptor.number == number
    tmp_path.rename(tmp_path.with_name("moved"))
    assert descriptor.number == number
    tmp_path.with_name("moved").rename(tmp_path)


def test_another_file_with_its_number(number: int, tmp_path: Path) -> None:
    """It is neither used nor closed."""
    descriptor = Descriptor(number)
    others = opened(tmp_path / "others")
    os.dup2(others, number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        _ = descriptor.number
    descriptor.close()
    os.write(number, b"still open")
    os.close(others)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only the name tells these files apart: needs /proc")
def test_another_file_with_its_number_and_inode(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that has got the inode of the first, which was given up: its name tells."""
    inode = os.fstat(number)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda number: inode)
        test_another_file_with_its_number(number, tmp_path)

"""The record file: appended frames can be read back after any interruption of the writing."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracellm.probes.record import record_file
from tracellm.probes.record.record_file import (
    END,
    HEADER,
    RECORDS,
    Frame,
    Header,
    RecordFile,
    RecordFileError,
    RecordReader,
    check_version,
    encode,
    facts_of,
    record_files,
    segments_of,
)

HEAD = Header({"process.pid": 1}, (5, 3), 1, [(1, 1)], "a" * 32, "b" * 16)


def record(number: int, facts: Any = None) -> tuple[Any, ...]:
    """Return a record of a call with this number."""
    return 0, number, 0, 1, 10, 20, facts, None


def written(path: Path, frames: int, calls: int = 3) -> RecordFile:
    """Write a file of so many frames with so many records each."""
    file = RecordFile(path)
    file.append(encode(HEADER, HEAD))
    for frame in range(frames):
        first = frame * calls
        file.append(encode(RECORDS, first, [record(first + one, ("x", one)) for one in range(calls)]))
    return file


def read(path: Path) -> list[Frame]:
    """Return all readable frames."""
    reader = RecordReader(path)
    try:
        return list(reader.frames())
    finally:
        reader.close()


def calls(frames: list[Frame]) -> list[int]:
    """Return the numbers of the calls in these frames."""
    return [one[1] for frame in frames if frame.kind == RECORDS for one in frame.content.records]


def test_what_is_appended_is_read(tmp_path: Path):
    """Records, their facts and the end are read back unchanged, except that tuples become lists."""
    file = written(tmp_path / "main.records", 2)
    file.append(encode(RECORDS, 6, [record(6, {"a": (1, None, 2.5), "b": b"\x00"})]), encode(END, 99))
    file.close()
    frames = read(file.path)
    assert calls(frames) == list(range(7))
    assert facts_of(frames[-2].content.records[0][6]) == {"a": [1, None, 2.5], "b": b"\x00"}
    assert frames[-1] == Frame(END, [99])


def test_only_the_owner_may_read(tmp_path: Path):
    """The file holds texts, so its mode is 0600."""
    file = written(tmp_path / "main.records", 1)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@given(st.integers(0, 5), st.data())
def test_a_file_that_was_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, frames: int, data: st.DataObject):
    """A file cut at any byte yields every frame before the cut, without the torn one."""
    path = tmp_path_factory.mktemp("cut") / "main.records"
    file = written(path, frames)
    file.close()
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    found = calls(read(path))
    assert found == list(range(len(found)))
    assert len(found) % 3 == 0
    if path.read_bytes() == content:
        assert len(found) == 3 * frames


@given(st.integers(20, 400), st.binary(min_size=1, max_size=9))
def test_a_file_that_is_damaged_anywhere(tmp_path_factory: pytest.TempPathFactory, at: int, damage: bytes):
    """Damage at any byte only ends the reading or changes values."""
    path = tmp_path_factory.mktemp("damaged") / "main.records"
    written(path, 4).close()
    content = bytearray(path.read_bytes())
    content[at : at + len(damage)] = damage
    path.write_bytes(content)
    read(path)


def test_a_frame_without_content(tmp_path: Path):
    """A frame of no bytes or one byte is damage; the frames before it are read."""
    for size in (0, 1):
        file = written(tmp_path / "main.records", 1)
        file._write(size.to_bytes(4, "little") + b"\x93"[:size])
        file.close()
        assert calls(read(file.path)) == [0, 1, 2]


def test_a_file_that_grows(tmp_path: Path):
    """A reader returns the frames added since its last call; an incomplete frame waits."""
    file = written(tmp_path / "main.records", 1)
    reader = RecordReader(file.path)
    assert calls(list(reader.frames())) == [0, 1, 2]
    assert list(reader.frames()) == []
    whole = file.path.read_bytes()
    file.append(encode(RECORDS, 3, [record(3)]))
    more = file.path.read_bytes()
    file.path.write_bytes(more[: len(whole) + 6])
    assert list(reader.frames()) == []
    file.path.write_bytes(more)
    assert calls(list(reader.frames())) == [3]
    reader.close()


@pytest.mark.parametrize("version", [1, 3, 12345])
def test_another_version_is_refused(tmp_path: Path, version: int):
    """The error for a file of another version names the file, both versions and the way out."""
    path = tmp_path / "main.records"
    path.write_bytes(b"TRACELLM-RECORDS %d\n\x05" % version)
    message = rf"main\.records has version {version} .* reads version 2\. Record the run again, or open"
    with pytest.raises(RecordFileError, match=message):
        read(path)
    with pytest.raises(RecordFileError, match=message):
        check_version(path)


def test_another_file_is_refused(tmp_path: Path):
    """The error for a file of another kind names the file."""
    path = tmp_path / "main.records"
    path.write_bytes(b"something else")
    check_version(path)
    with pytest.raises(RecordFileError, match=r"main\.records is not a record file"):
        read(path)


def test_what_could_be_written_in_part_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A frame cut by a full disk is overwritten by the next one."""
    file = written(tmp_path / "main.records", 1)
    pwrite = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        if len(content) < 30:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, content[:30], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            file.append(encode(RECORDS, 3, [record(number) for number in range(3, 20)]))
    file.append(encode(RECORDS, 3, [record(3)]))
    file.close()
    assert calls(read(file.path)) == [0, 1, 2, 3]


def test_a_program_that_closes_all_files(tmp_path: Path):
    """If the program closes all files, ours is opened again, and a file with the reused number is left alone."""
    file = written(tmp_path / "main.records", 1)
    number = file._descriptor
    os.close(number)
    assert os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT) == number
    file.append(encode(RECORDS, 3, [record(3)]))
    assert calls(read(file.path)) == [0, 1, 2, 3]
    file.close()
    os.write(number, b"mine")
    assert (tmp_path / "other").read_bytes() == b"mine"
    os.close(number)


def test_segments_are_found_in_their_order(tmp_path: Path):
    """The segments of a ring are found in the order of writing."""
    path = tmp_path / "main-1.records"
    written(path, 1).set_aside(is_setup=True)
    written(path, 1).set_aside()
    written(path, 1).close()
    written(tmp_path / "other-2.records", 1).close()
    assert record_files(tmp_path) == {
        path: segments_of(path),
        tmp_path / "other-2.records": [tmp_path / "other-2.records"],
    }


def test_objects_without_a_form_of_their_own():
    """Subclasses of plain types, NumPy's numbers and torch's dtypes are encoded as their plain values."""
    import numpy
    import torch

    class Text(str):
        __slots__ = ()

    content = encode(RECORDS, Text("a"), numpy.int64(5), torch.float32, object())
    assert record_file._decode_any(content) == [RECORDS, "a", 5, "torch.float32", "<object>"]

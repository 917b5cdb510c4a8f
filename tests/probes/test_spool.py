"""Messages through files come whole and in order, whoever is faster, and leave nothing behind."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm.probes import spool
from tracellm.probes.spool import SpoolReader, SpoolWriter


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.binary(min_size=1, max_size=50), max_size=5), max_size=8), st.integers(0, 120))
def test_messages_come_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[bytes]], size: int
):
    """Whenever one looks, all is there that was written until then, of however many files; no file is left."""
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_LARGEST", size)
        writer = SpoolWriter(folder, "main-1")
        reader = SpoolReader(folder, "main-1")
        for messages in rounds:
            for message in messages:
                writer.write(message)
            assert [reader.read() for _ in messages] == messages
            assert reader.read() is None
    writer.close()
    reader.close()
    assert list(folder.iterdir()) == []


def test_half_a_message_is_none(tmp_path: Path):
    """A message that is being written is read when it is whole."""
    writer = SpoolWriter(tmp_path, "one")
    [file] = tmp_path.iterdir()
    stream = file.open("ab", buffering=0)
    reader = SpoolReader(tmp_path, "one")
    stream.write(b"\x05\x00")
    assert reader.read() is None
    stream.write(b"\x00\x00hal")
    assert reader.read() is None
    stream.write(b"ve")
    assert (reader.read(), reader.read()) == (b"halve", None)
    for one in (stream, reader, writer):
        one.close()
    assert not file.exists()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), max_size=12), st.integers(0, 20))
def test_a_disk_that_is_full_for_a_while(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[int, int]], size: int
):
    """Wherever it ends, all that is read is whole and was sent, and nothing is missing of what did not fail."""
    folder = tmp_path_factory.mktemp("spool")
    left = 0

    def write(descriptor: int, content: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = os.write(descriptor, content[:left])
        left -= done
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_LARGEST", size)
        patch.setattr(spool, "os", SimpleNamespace(**{**vars(os), "write": write}))
        writer, reader = SpoolWriter(folder, "one"), SpoolReader(folder, "one")
        sent: list[bytes] = []
        whole: list[bytes] = []
        come: list[bytes] = []
        for number, (length, room) in enumerate([*messages, (1, 1000)]):
            left = room
            sent.append(bytes([number]) * length)
            with suppress(OSError):
                writer.write(sent[-1])
                whole.append(sent[-1])
            come += iter(reader.read, None)
    writer.close()
    reader.close()
    assert [one for one in sent if one in come] == come
    assert set(whole) <= set(come)
    assert list(folder.iterdir()) == []


def test_files_that_cannot_be_opened_are_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """While there may be no other file the one grows; afterwards it goes on in the next."""
    monkeypatch.setattr(spool, "_LARGEST", 0)
    writer, reader = SpoolWriter(tmp_path, "one"), SpoolReader(tmp_path, "one")

    def refuse(*args: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(spool, "os", SimpleNamespace(**{**vars(os), "open": refuse}))
        writer.write(b"a")
        writer.write(b"b")
        assert [reader.read(), reader.read(), reader.read()] == [b"a", b"b", None]
    writer.write(b"c")
    assert [reader.read(), reader.read()] == [b"c", None]
    reader.close()
    writer.close()


def test_what_nobody_reads_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Records hold texts: of what is not read, no file stays."""
    monkeypatch.setattr(spool, "_LARGEST", 0)
    writer = SpoolWriter(tmp_path, "one")
    for message in (b"a", b"b", b"c"):
        writer.write(message)
    assert len(list(tmp_path.iterdir())) == 3
    writer.remove()
    assert list(tmp_path.iterdir()) == []

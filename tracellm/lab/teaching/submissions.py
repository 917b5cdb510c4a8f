"""Submissions: zip files of `tracellm lab submit`, or folders. Nothing in them is trusted.

Only files with the names of the lab's files are read, each up to a limit; nothing is unpacked. A lab's folder is then
made of them, with a `lab.json` of the grader's own.
"""

import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tracellm.lab.exposing import EXPOSED_FILE
from tracellm.lab.folder import LabFolder
from tracellm.lab.lab import Lab
from tracellm.lab.loader import LAB_FILE

__all__ = [
    "Staged",
    "Submission",
    "SubmissionError",
    "claimed_lab",
    "find_submissions",
    "read_state",
    "stage",
]

_LARGEST_FILE = 1 << 20
_SEED = re.compile(r"[0-9a-f]{8}")
_MOST_ANSWERS, _LONGEST_ANSWER = 100, 200


class SubmissionError(Exception):
    """A file of a submission that is not read; `key` is the key of a text under `lab.submission.`."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key, self.values = key, values


@dataclass(frozen=True)
class Submission:
    """A student's zip file or folder."""

    path: Path
    name: str
    """Name of the student's page and row; unique, and safe as a file name."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if it is not there.

        Raises:
            SubmissionError: it is too large, a link, or cannot be read.
        """
        try:
            return self._read_folder(name) if self.path.is_dir() else self._read_zip(name)
        except (
            OSError,
            zipfile.BadZipFile,
            zlib.error,
            RuntimeError,
            NotImplementedError,
            ValueError,
            EOFError,
        ) as error:
            raise SubmissionError("unreadable", name=name, error=error) from None

    def _read_folder(self, name: str) -> bytes | None:
        places = [self.path / name, *sorted(self.path.glob(f"*/{name}"))]
        place = next((place for place in places if os.path.lexists(place)), None)
        if place is None:
            return None
        inside = place.parent.resolve().is_relative_to(self.path.resolve())
        if not inside or not stat.S_ISREG(place.lstat().st_mode):
            raise SubmissionError("no_file", name=name)
        with place.open("rb") as file:
            return _limited(name, file.read(_LARGEST_FILE + 1))

    def _read_zip(self, name: str) -> bytes | None:
        with zipfile.ZipFile(self.path) as archive:
            found = [one for one in archive.infolist() if _is_at_top(one.filename, name)]
            if not found:
                return None
            entry = min(found, key=lambda one: len(one.filename))
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise SubmissionError("no_file", name=name)
            with archive.open(entry) as file:
                return _limited(name, file.read(_LARGEST_FILE + 1))


def _is_at_top(filename: str, name: str) -> bool:
    """Return whether an entry is this file, or this file in one folder, and not in `..`."""
    parts = PurePosixPath(filename.replace("\\", "/")).parts
    return parts[-1:] == (name,) and len(parts) <= 2 and ".." not in parts and "/" not in parts


def _limited(name: str, content: bytes) -> bytes:
    if len(content) > _LARGEST_FILE:
        raise SubmissionError("too_large", name=name, most=_LARGEST_FILE)
    return content


def find_submissions(folder: Path) -> list[Submission]:
    """Return the submissions of a directory: its zip files and folders, by name.

    Raises:
        OSError: the directory cannot be read.
    """
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    chosen = [path for path in paths if not path.is_symlink() and (path.is_dir() or path.suffix.lower() == ".zip")]
    return [Submission(path, name) for path, name in zip(chosen, _names(chosen), strict=True)]


def _names(paths: list[Path]) -> Iterator[str]:
    seen: set[str] = set()
    for path in paths:
        stem = path.name if path.is_dir() else path.stem
        name = re.sub(r"[^\w.@+-]", "_", stem).lstrip(".-+=@") or "_"
        name = "index_" if name.lower() == "index" else name[:100]
        unique, number = name, 2
        while unique.lower() in seen:
            unique, number = f"{name}-{number}", number + 1
        seen.add(unique.lower())
        yield unique


def read_state(submission: Submission) -> dict[str, Any]:
    """Return what `lab.json` claims; an empty dict if it is missing or damaged."""
    try:
        state = json.loads(submission.read(LAB_FILE) or b"{}")
    except (SubmissionError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def claimed_lab(submission: Submission) -> int | None:
    """Return the number of the lab that a submission claims to be of."""
    number = read_state(submission).get("lab")
    return number if type(number) is int else None


@dataclass(frozen=True)
class Staged:
    """A lab's folder made of a submission, and what was left out of it."""

    folder: LabFolder
    problems: list[SubmissionError] = field(default_factory=list)


def stage(submission: Submission, lab: Lab, path: Path) -> Staged:
    """Make the folder that is graded: the lab's files of the submission, and `lab.json` made anew.

    Of the student's `lab.json` only the seed of the predictions and the answers are kept, if they have the form that
    the command gives them.
    """
    path.mkdir(parents=True)
    problems = []
    required = [*(file.name for file in lab.files), *lab.sheets]
    for name in (*required, EXPOSED_FILE):
        try:
            content = submission.read(name)
        except SubmissionError as error:
            problems.append(error)
            continue
        if content is not None:
            (path / name).write_bytes(content)
        elif name in required:
            problems.append(SubmissionError("missing", name=name))
    state = read_state(submission)
    seed, answers = state.get("seed"), state.get("answers")
    kept = {
        name: answer
        for name, answer in list(answers.items() if isinstance(answers, dict) else ())[:_MOST_ANSWERS]
        if type(answer) in (str, int) and len(str(answer)) <= _LONGEST_ANSWER
    }
    if not (isinstance(seed, str) and _SEED.fullmatch(seed)):
        if kept:
            problems.append(SubmissionError("seed"))
        seed, kept = "0", {}
    if (claimed := state.get("lab")) != lab.number:
        problems.append(SubmissionError("other_lab", claimed=str(claimed)[:20], number=lab.number))
    folder = LabFolder(path, lab, seed, answers=kept)
    folder.save()
    return Staged(folder, problems)

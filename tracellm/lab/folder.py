"""The student's folder of a lab: starter files, answer sheets, README, `explain.py`, and `lab.json` with the state."""

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracellm.lab.lab import Lab, find_lab
from tracellm.lab.loader import LAB_FILE, LoadError, read_files

__all__ = ["LabFolder", "make_folder", "open_folder"]


@dataclass
class LabFolder:
    """A lab's folder and its state."""

    path: Path
    lab: Lab
    seed: str
    """Seed of the student's own cases and predictions."""
    hints: int = 0
    """Number of hints that were shown."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Predictions by name, given before the first explained run."""
    explained: bool = False
    score: dict[str, int] = field(default_factory=dict)
    """Points of the last check."""

    def save(self) -> None:
        """Write `lab.json`."""
        state = {
            "lab": self.lab.number,
            "seed": self.seed,
            "files": {file.module: file.name for file in self.lab.files},
            "hints": self.hints,
            "answers": self.answers,
            "explained": self.explained,
            "score": self.score,
        }
        partial = self.path / f".{LAB_FILE}"
        partial.write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(self.path / LAB_FILE)


def make_folder(lab: Lab, path: Path, lang: str, *, seed: str | None = None) -> LabFolder:
    """Create a lab's folder with its starter files, and its answer sheets.

    Raises:
        FileExistsError: the folder exists and is not empty.
    """
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(path)
    path.mkdir(parents=True, exist_ok=True)
    for file in lab.files:
        (path / file.name).write_text(file.starter(), encoding="utf-8")
    (path / "README.md").write_text(lab.readme(lang), encoding="utf-8")
    script = lab.folder / "explain.py"
    if script.is_file():
        (path / "explain.py").write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    made = LabFolder(path, lab, seed or secrets.token_hex(4))
    for name, text in lab.make_sheets(made.seed, lang).items():
        (path / name).write_text(text, encoding="utf-8")
    made.save()
    return made


def open_folder(path: Path) -> LabFolder:
    """Open a lab's folder.

    Raises:
        LoadError: it is none, or a file is missing or damaged.
    """
    read_files(path)
    try:
        state = json.loads((path / LAB_FILE).read_text(encoding="utf-8"))
        lab = find_lab(int(state["lab"]))
        if lab is None:
            raise LoadError(f"{path} is the folder of lab {state['lab']}, which this version of tracellm does not have")
        return LabFolder(
            path,
            lab,
            str(state["seed"]),
            int(state.get("hints", 0)),
            dict(state.get("answers", {})),
            bool(state.get("explained", False)),
            dict(state.get("score", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{path / LAB_FILE} is damaged: {error}") from None

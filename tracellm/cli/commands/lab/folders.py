"""The labs and folders that a command's arguments name."""

from pathlib import Path

from tracellm.cli.errors import CommandError
from tracellm.lab.folder import LabFolder, open_folder
from tracellm.lab.lab import Lab, find_lab, load_labs
from tracellm.lab.loader import LAB_FILE, LoadError

__all__ = ["default_folder", "folder_of", "lab_of"]


def lab_of(number: int) -> Lab:
    """Return the lab of this number.

    Raises:
        CommandError: there is none.
    """
    lab = find_lab(number)
    if lab is None:
        raise CommandError("lab_unknown", number=number, known=", ".join(str(one.number) for one in load_labs()))
    return lab


def default_folder(lab: Lab) -> Path:
    """Return the folder of a lab in the current directory."""
    return Path(f"lab-{lab.number:02}-{lab.slug}")


def folder_of(lab: Lab, chosen: Path | None) -> LabFolder:
    """Return the student's folder of a lab: the chosen one, the current directory, or its default place.

    Raises:
        CommandError: there is none, or it is another lab's or damaged.
    """
    path = chosen or (Path.cwd() if Path(LAB_FILE).is_file() else default_folder(lab))
    if not (path / LAB_FILE).is_file():
        raise CommandError("lab_not_started", number=lab.number, path=path)
    try:
        folder = open_folder(path)
    except LoadError as error:
        raise CommandError("lab_damaged", error=error) from None
    if folder.lab.number != lab.number:
        raise CommandError("lab_other", path=path, found=folder.lab.number, number=lab.number)
    return folder

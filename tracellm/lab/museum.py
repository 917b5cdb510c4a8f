"""The museum: broken engines with a recorded run each. Students find the fault in the trace, and prove it by a case."""

import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tracellm.lab.exposing import mutant_folder
from tracellm.lab.lab import Lab, Mutant, load_labs
from tracellm.lab.recording import Recorded, compare, record

__all__ = ["Exhibit", "exhibits", "record_exhibit"]


@dataclass(frozen=True)
class Exhibit:
    """A broken engine."""

    lab: Lab
    mutant: Mutant


def exhibits() -> list[Exhibit]:
    """Return the exhibits in the order of their numbers: by lab, and in a lab so that nothing follows from it."""
    found = [Exhibit(lab, mutant) for lab in load_labs() for mutant in lab.mutants if mutant.exhibit]
    return sorted(found, key=lambda one: (one.lab.number, sha256(one.mutant.name.encode()).digest()))


def record_exhibit(
    exhibit: Exhibit, out: Path, lang: str, reference: Recorded | None = None
) -> tuple[Recorded, Path | None]:
    """Record the lab's script on the broken engine; return the run and its comparison with one of the real engine.

    That is `reference`, or else recorded too.
    """
    script = exhibit.lab.folder / "explain.py"
    with tempfile.TemporaryDirectory() as place:
        folder = mutant_folder(exhibit.lab, exhibit.mutant, Path(place, "engine"))
        broken = record(script, out / "broken", lang, folder=folder)
    return broken, compare(broken, reference or record(script, out / "engine", lang), lang)

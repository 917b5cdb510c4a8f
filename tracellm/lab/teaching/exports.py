"""Graders for services: Gradescope, otter-grader, GitHub Actions. Each runs this package on one submission or several.

The teacher's seed is in Gradescope's zip file, which students do not get, and in a secret of a teacher's repository on
GitHub. Otter runs its tests in the process of the student's notebook, so a notebook can read the seed there.
"""

import json
import shutil
import zipfile
from pathlib import Path

from tracellm import __version__
from tracellm.lab.lab import Lab

__all__ = ["SERVICES", "export"]

SERVICES = ("gradescope", "otter", "github")

_INSTALL = (
    'python3 -c "import tracellm" 2>/dev/null || '
    f'python3 -m pip install "${{TRACELLM_PACKAGE:-tracellm=={__version__}}}"'
)

_SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, when the autograder is built. The seed and the twist are for root's eyes only.
set -euo pipefail
autograder="${{AUTOGRADER:-/autograder}}"
{install}
chmod -R go-rwx "$autograder/source"
"""

_RUN = """\
#!/usr/bin/env bash
# Gradescope runs this for each submission.
autograder="${{AUTOGRADER:-/autograder}}"
results="$autograder/results/results.json"
mkdir -p "$autograder/results"
echo '{{"score": 0, "output": "The grader was ended. Ask your teacher.", "stdout_visibility": "hidden"}}' > "$results"
cd "$autograder/source"
python3 -m tracellm.lab.teaching.results "$autograder/submission" --lab {number} \\
  --seed-file seed.txt {twist}--lang {lang} --out "$results.new" && mv "$results.new" "$results"
"""

_OTTER_TEST = '''\
"""{says}"""

import os
import subprocess
import sys

from otter.test_files import test_case

OK_FORMAT = False

name = "{name}"
points = {points}


@test_case(points={points}, hidden={hidden})
def test_{identifier}(env):
    """Run the check in a process of its own: what the notebook has changed does not matter there."""
    python = os.environ.get("TRACELLM_PYTHON", sys.executable)
    command = [python, "-m", "tracellm.lab.teaching.results", ".", "--lab", "{number}", "--check", "{check}"]
    done = subprocess.run([*command, *{arguments!r}], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout or done.stderr
'''

_CHECK_WORKFLOW = """\
# For the students' repositories: checks the public cases at each push. It has no secret.
name: check
on: [push]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    timeout-minutes: 15
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install tracellm
        run: {install}
      - name: Check the public cases
        run: python3 -m tracellm lab check {number} --dir . --lang {lang}
"""

_GRADE_WORKFLOW = """\
# For a private repository of the teacher's, with the submissions in `submissions/`. The seed is its secret
# TRACELLM_LAB_SEED. Never put it into a repository to which students can push: a changed workflow could print it.
name: grade
on: [workflow_dispatch]
permissions:
  contents: read
jobs:
  grade:
    runs-on: ubuntu-latest
    timeout-minutes: 120
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install tracellm
        run: {install}
      - name: Grade
        env:
          TRACELLM_LAB_SEED: ${{{{ secrets.TRACELLM_LAB_SEED }}}}
        run: python3 -m tracellm lab grade submissions --lab {number} {twist}--out grades/grades.csv --lang {lang}
      - uses: actions/upload-artifact@v4
        with:
          name: grades
          path: grades
"""


def export(service: str, lab: Lab, out: Path, seed: str, lang: str, twist: Path | None = None) -> list[Path]:
    """Write the grader of a lab for a service; return the files.

    Args:
        service: one of `SERVICES`.
        lab: the lab, a twisted one with `twist`.
        out: folder for the files.
        seed: the teacher's seed.
        lang: language of what students see.
        twist: a teacher's folder of a twist.
    """
    out.mkdir(parents=True, exist_ok=True)
    return {"gradescope": _gradescope, "otter": _otter, "github": _github}[service](lab, out, seed, lang, twist)


def _gradescope(lab: Lab, out: Path, seed: str, lang: str, twist: Path | None) -> list[Path]:
    target = out / f"gradescope-lab-{lab.number:02}.zip"
    argument = "--twist twist " if twist else ""
    scripts = {
        "setup.sh": _SETUP.format(install=_INSTALL),
        "run_autograder": _RUN.format(number=lab.number, twist=argument, lang=lang),
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (scripts | {"seed.txt": f"{seed}\n"}).items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name in scripts else 0o600) << 16
            archive.writestr(entry, text)
        _add_folder(archive, twist, "twist")
    return [target]


def _add_folder(archive: zipfile.ZipFile, folder: Path | None, name: str) -> None:
    for path in sorted(folder.rglob("*")) if folder else ():
        if path.is_file() and "__pycache__" not in path.parts:
            archive.write(path, f"{name}/{path.relative_to(folder or path)}")


def _otter(lab: Lab, out: Path, seed: str, lang: str, twist: Path | None) -> list[Path]:
    target = out / f"otter-lab-{lab.number:02}.zip"
    total = sum(check.cases for check in lab.checks)
    variant = ["--twist", "twist"] if twist else []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, check in enumerate(lab.checks, start=1):
            for hidden, points in ((False, 50), (True, 20)):
                label = "hidden" if hidden else "public"
                test = _OTTER_TEST.format(
                    says=check.en,
                    name=f"{label} {check.name}",
                    points=round(points * check.cases / total, 2),
                    hidden=hidden,
                    identifier=f"{label}_{check.name}".replace("-", "_"),
                    number=lab.number,
                    check=check.name,
                    arguments=["--lang", lang, *variant, *(["--seed-file", "seed.txt"] if hidden else [])],
                )
                archive.writestr(f"tests/{number:02}_{label}_{check.name.replace('-', '_')}.py", test)
        archive.writestr("files/seed.txt", f"{seed}\n")
        archive.writestr("otter_config.json", json.dumps({"lang": "python", "show_hidden": False}))
        archive.writestr("requirements.txt", f"tracellm=={__version__}\n")
        _add_folder(archive, twist, "files/twist")
    return [target]


def _github(lab: Lab, out: Path, seed: str, lang: str, twist: Path | None) -> list[Path]:
    written = []
    for place, workflow in (("students", _CHECK_WORKFLOW), ("teacher", _GRADE_WORKFLOW)):
        path = out / place / ".github" / "workflows" / ("check.yml" if place == "students" else "grade.yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        argument = "--twist twist " if twist else ""
        path.write_text(
            workflow.format(install=_INSTALL, number=lab.number, twist=argument, lang=lang), encoding="utf-8"
        )
        written.append(path)
    if twist:
        shutil.copytree(twist, out / "teacher" / "twist", dirs_exist_ok=True)
    return written

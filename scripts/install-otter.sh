#!/usr/bin/env bash
# Installs otter-grader into its own environment, for the test that lets it grade a submission of a lab.
#
#   scripts/install-otter.sh [FOLDER]      default: .venv-otter in this checkout
#
# Takes about a minute and 0.6 GB. The tests use the interpreter in TRACELLM_OTTER_PYTHON.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$here/.venv-otter}

if [ -x "$folder/bin/python" ] && "$folder/bin/python" -c 'import otter' 2>/dev/null; then
    echo "$folder has otter-grader already"
    exit 0
fi
"$("$here/scripts/python.sh")" -m venv --clear "$folder"
"$folder/bin/python" "$here/scripts/install.py" otter-grader==7.0.0 ipykernel==7.4.0
"$folder/bin/python" -c 'from importlib.metadata import version; print("otter-grader", version("otter-grader"))'

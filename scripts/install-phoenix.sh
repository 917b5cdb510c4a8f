#!/usr/bin/env bash
# Installs Arize Phoenix, an OpenTelemetry backend, into its own environment, for the test that sends it a recording.
#
#   scripts/install-phoenix.sh [FOLDER]      default: .venv-phoenix in this checkout
#
# Takes half a minute and 0.9 GB. The tests use .venv-phoenix/bin/python, or the interpreter in
# TRACELLM_PHOENIX_PYTHON.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$here/.venv-phoenix}

if [ -x "$folder/bin/python" ] && "$folder/bin/python" -c 'import phoenix.version' 2>/dev/null; then
    echo "$folder has a Phoenix already"
    exit 0
fi
"$("$here/scripts/python.sh")" -m venv --clear "$folder"
"$folder/bin/python" "$here/scripts/install.py" arize-phoenix==20.26.1
"$folder/bin/python" -c 'from importlib.metadata import version; print("Arize Phoenix", version("arize-phoenix"))'

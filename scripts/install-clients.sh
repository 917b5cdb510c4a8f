#!/usr/bin/env bash
# Installs clients of OpenAI's API into their own environment, for the tests in which they use a served model.
#
#   scripts/install-clients.sh [FOLDER]      default: .venv-clients in this checkout
#
# Takes half a minute and 1.2 GB. The tests use .venv-clients/bin/python, or the interpreter in TRACELLM_CLIENTS_PYTHON.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$here/.venv-clients}
pinned=$here/tests/clients/requirements.txt

if [ -x "$folder/bin/python" ] && cmp --silent "$pinned" "$folder/installed.txt"; then
    echo "$folder has the clients already"
    exit 0
fi
"$("$here/scripts/python.sh")" -m venv --clear "$folder"
"$folder/bin/python" "$here/scripts/install.py" --no-deps -r "$pinned"
"$folder/bin/python" -m pip --disable-pip-version-check check
cp "$pinned" "$folder/installed.txt"

#!/usr/bin/env bash
# Prints the first Python 3.11 or later that it finds; $PYTHON, when set, must be one.
set -euo pipefail
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || { echo "PYTHON=$PYTHON is not a Python 3.11 or later" >&2; exit 1; }
    command -v "$PYTHON"
    exit
fi
for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if fits "$candidate"; then
        command -v "$candidate"
        exit
    fi
done
echo "No Python 3.11 or later found. Install one, or say where it is: make demo PYTHON=/path/to/python3.12" >&2
exit 1

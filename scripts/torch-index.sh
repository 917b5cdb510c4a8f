#!/usr/bin/env bash
# Prints a requirements line that adds PyTorch's index of CPU builds, so that pip does not install 3 GB of CUDA.
#
#   scripts/torch-index.sh PYTHON
#
# Prints nothing on systems other than Linux, if TORCH_INDEX is empty (for the CUDA build), or if the index cannot be
# reached; then pip uses its own configuration.
set -euo pipefail
python=$1
index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}

[ "$(uname -s)" = Linux ] && [ -n "$index" ] || exit 0
reach='import sys, urllib.request as u; u.urlopen(sys.argv[1] + "/torch/", timeout=10).close()'
if "$python" -c "$reach" "$index" 2>/dev/null; then
    echo "--extra-index-url $index"
else
    echo "($index cannot be reached; torch comes from where pip is configured to look)" >&2
fi

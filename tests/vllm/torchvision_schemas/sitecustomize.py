"""Schemas of torchvision's C++ operators, for a torchvision from PyPI beside a CPU build of PyTorch.

Its C++ library is linked to CUDA and does not load there, and without the schemas its import ends with "operator
torchvision::nms does not exist". vLLM resizes images with its Python code, which needs none of these operators.

Python imports a module of this name at its start; this one waits until torchvision is imported.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

_DIFFERENTIABLE = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
_OPERATORS = ("nms", "qnms", *_DIFFERENTIABLE, *(f"_{name}_backward" for name in _DIFFERENTIABLE))


class _Finder(MetaPathFinder):
    """Finds no module, but defines the operators before torchvision is looked for."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Return None."""
        if name == "torchvision":
            import torch

            sys.meta_path.remove(self)
            for operator in _OPERATORS:
                torch.library.define(f"torchvision::{operator}", "(Tensor x) -> Tensor")
        return None


sys.meta_path.insert(0, _Finder())

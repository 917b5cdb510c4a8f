"""Python's import system is told where `vllm` is: here, whatever is installed.

The finder stands before all others in `sys.meta_path`. Two modules can be run as well as imported, as
`python -m vllm.entrypoints.openai.api_server` is; what then runs is `tracellm serve`.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from tracellm.as_vllm.errors import missing_module
from tracellm.as_vllm.stand_in import StandIn, source_file
from tracellm.as_vllm.table import HOMES, PACKAGES

__all__ = ["install"]

_RUNS = {
    "vllm.entrypoints.openai.api_server": "from tracellm.cli.commands.serve import api_server; api_server()",
    "vllm.entrypoints.cli.main": "from tracellm.cli.commands.serve import vllm; vllm()",
}
"""What `python -m` runs."""


def install() -> None:
    """From here on `import vllm` gives tracellm's stand-ins. A second call changes nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Knows every module whose name begins with `vllm`, and refuses those that are not here."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where a module of vLLM comes from; None for any other module.

        Raises:
            MissingModuleError: it is not here.
        """
        if name.partition(".")[0] != "vllm":
            return None
        if name not in HOMES and name not in PACKAGES:
            raise missing_module(name)
        return ModuleSpec(name, _Loader(), origin=source_file(name), is_package=name in PACKAGES)


class _Loader(Loader):
    """Makes the stand-ins."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A stand-in needs no executing."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """All is there."""

    def get_code(self, name: str) -> CodeType | None:
        """What `python -m name` runs; None where there is nothing to run."""
        source = _RUNS.get(name)
        return None if source is None else compile(source, source_file(name), "exec")

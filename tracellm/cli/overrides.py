"""Overrides of what a script names: another engine (`--engine`), other models (`--model NAME=PATH`).

Both hold for the processes too that the script starts.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracellm.cli.errors import CommandError
from tracellm.cli.script import Script

__all__ = ["Overrides", "overrides_of"]

_EMBEDDED = "tiny"  # BUNDLED_MODEL of the engine, which need not be imported for it
_ENGINE = "tracellm"


@dataclass(frozen=True)
class Overrides:
    """The options `--engine` and `--model`, checked.

    Attributes:
        engine: what `import vllm` gives: `tracellm`, or, if None, what is installed.
        models: names of models, each with the directory that is taken for it.
    """

    engine: str | None
    models: dict[str, str]

    def script(self, script: Script) -> Script:
        """The program to run: the command `vllm` is one of the engine's own."""
        if self.engine is None or script.is_module or script.target != "vllm" or Path("vllm").exists():
            return script
        return Script("vllm.entrypoints.cli.main", True, script.args)

    def take_effect(self) -> None:
        """From here on, in this process and in those that it starts."""
        if self.models:
            from tracellm.engine.config.envs import MODELS
            from tracellm.probes.install.model_overrides import replace_models

            os.environ[MODELS] = json.dumps(self.models)
            replace_models()
        if self.engine is not None:
            from tracellm.as_vllm import activate

            activate()

    def as_manifest(self) -> dict[str, str | dict[str, str] | None]:
        """The entries among the options in run.json."""
        return {"engine": self.engine, "models": self.models}


def overrides_of(engine: str | None, models: Sequence[str]) -> Overrides:
    """The options as they were typed.

    Raises:
        CommandError: there is no such engine, a model is not given as NAME=PATH, or its directory is not there.
    """
    if engine not in (None, _ENGINE):
        raise CommandError("engine", value=engine)
    chosen: dict[str, str] = {}
    for value in models:
        name, _, path = value.partition("=")
        if not name or not path:
            raise CommandError("model_form", value=value)
        if name in chosen:
            raise CommandError("model_twice", name=name)
        chosen[name] = _directory(name, path)
    return Overrides(engine, chosen)


def _directory(name: str, path: str) -> str:
    if path == _EMBEDDED:
        return str(Path(__file__).parents[1] / _EMBEDDED)
    directory = Path(path).expanduser().absolute()  # a shell leaves the ~ of NAME=~ alone, and a script may os.chdir
    if not directory.is_dir():
        raise CommandError("model_missing", name=name, path=path)
    if not (directory / "config.json").is_file():
        raise CommandError("model_no_config", name=name, path=path)
    return str(directory)

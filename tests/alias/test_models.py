"""`--engine` and `--model NAME=PATH`: refusals before a script starts, and replaced models."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.alias.scripts import run
from tests.real_vllm import InOneProcess, require_vllm
from tracellm.cli.commands.run import _BUNDLED, overrides_of
from tracellm.cli.errors import CommandError
from tracellm.cli.script import Script
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.hf_config import BUNDLED_MODELS
from tracellm.probes.join import replace_models
from tracellm.tiny import MODEL_DIR

REFUSED = {
    "another engine": ("vllm", (), "no engine 'vllm': --engine takes only tracellm"),
    "a path alone": (None, ("models/opt",), "--model 'models/opt' is not NAME=PATH"),
    "no name": (None, ("=tiny",), "--model '=tiny' is not NAME=PATH"),
    "no path": (None, ("a=",), "--model 'a=' is not NAME=PATH"),
    "a name twice": (None, ("a=tiny", "a=tiny"), "--model names a twice"),
    "no such folder": (None, ("a=nowhere",), "--model a: there is no folder nowhere"),
    "a file": (None, ("a=file",), "--model a: there is no folder file"),
    "a folder of something else": (None, ("a=.",), "--model a: the folder . has no config.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_the_script_starts(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong value is refused in one line with the option, the problem and the remedy."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    engine, models, message = REFUSED[case]
    with pytest.raises(CommandError) as refused:
        overrides_of(engine, models)
    assert str(refused.value).startswith(message)
    assert refused.value.message("zh") != str(refused.value)


def test_the_command_refuses(tmp_path: Path) -> None:
    """After a refusal the script does not start; the exit status is 2."""
    done = run(tmp_path, "print('started')\n", "--model", "a=nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tracellm: --model a: there is no folder nowhere\n"


def test_the_command_has_the_bundled_models() -> None:
    """The command's list of bundled models, made without the engine, is the engine's."""
    chosen = overrides_of(None, [f"model/{name}={name}" for name in BUNDLED_MODELS])
    assert chosen.models == {f"model/{name}": str(folder) for name, folder in BUNDLED_MODELS.items()}
    assert tuple(BUNDLED_MODELS) == _BUNDLED


def test_paths_are_settled_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tiny` is the bundled model, `~` the home, and paths do not depend on the script's directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    chosen = overrides_of(None, ["a/b=tiny", "c=model", "d=~/model", "e=./model"])
    monkeypatch.chdir("/")
    model = str(tmp_path / "model")
    assert chosen.models == {"a/b": str(MODEL_DIR), "c": model, "d": model, "e": model}


def test_the_command_vllm_is_a_module_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`vllm serve` runs tracellm's command, unless there is a file of that name, or no --engine."""
    monkeypatch.chdir(tmp_path)
    typed = Script("vllm", False, ("serve", "tiny"))
    ours = overrides_of("tracellm", [])
    assert ours.script(typed) == Script("vllm.entrypoints.cli.main", True, ("serve", "tiny"))
    assert overrides_of(None, []).script(typed) is typed
    assert ours.script(Script("other.py", False, ())).target == "other.py"
    Path("vllm").touch()
    assert ours.script(typed) is typed


def test_our_engine_finds_the_other_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, tokenizer and generation settings come from the folder; the name stays."""
    monkeypatch.setenv("TRACELLM_MODELS", json.dumps({"some/model": str(MODEL_DIR)}))
    config = EngineArgs(model="some/model", generation_config="some/model").create_model_config()
    assert (config.model, config.tokenizer, config.served_model_name) == (str(MODEL_DIR), str(MODEL_DIR), "some/model")
    assert EngineArgs(model="tiny", tokenizer="some/model").create_model_config().tokenizer == str(MODEL_DIR)


@pytest.mark.parametrize("value", ["", "[]", "{", '{"a": 1}', '{"a": ""}'])
def test_a_damaged_variable_is_told(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACELLM_MODELS must hold names and folders."""
    monkeypatch.setenv("TRACELLM_MODELS", value)
    with pytest.raises(EngineError, match="TRACELLM_MODELS must be a JSON object"):
        EngineArgs(model="tiny").create_model_config()


LIKE_VLLM = """
from dataclasses import dataclass

@dataclass
class EngineArgs:
    model: str
    tokenizer: str | None = None
    served_model_name: str | list[str] | None = None

    def __post_init__(self):
        self.looked_for = self.model, self.tokenizer

    def create_engine_config(self, usage_context=None):
        return self.model, self.served_model_name, usage_context

@dataclass
class AsyncEngineArgs(EngineArgs):
    pass
"""


@pytest.mark.parametrize("kind", ["EngineArgs", "AsyncEngineArgs"])
def test_a_real_vllm_is_given_the_folder(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's arguments get the folder before vLLM looks up the model, and the name as the served one."""
    package = tmp_path / "vllm" / "engine"
    package.mkdir(parents=True)
    (package / "arg_utils.py").write_text(LIKE_VLLM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("TRACELLM_MODELS", '{"some/model": "/folder"}')
    replace_models.cache_clear()
    replace_models()
    made = getattr(importlib.import_module("vllm.engine.arg_utils"), kind)
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    args = made("some/model", tokenizer="some/model")
    assert args.looked_for == ("/folder", "/folder")
    assert args.create_engine_config("use") == ("/folder", "some/model", "use")
    assert made("some/model", served_model_name="mine").served_model_name == "mine"
    other = made("other/model")
    assert (other.model, other.served_model_name) == ("other/model", None)
    other.model = "some/model"  # as in a process that vLLM's plugin reaches late
    assert other.create_engine_config() == ("/folder", "some/model", None)


def test_a_real_vllm_finds_the_other_model(in_one_process: InOneProcess) -> None:
    """A real vLLM loads the bundled model for a name, without the hub; the name stays."""
    model_arguments = in_one_process.results["replaced"]
    assert model_arguments["model"] == model_arguments["tokenizer"]
    assert (Path(model_arguments["model"]).parts[-2:], model_arguments["name"]) == (
        MODEL_DIR.parts[-2:],
        "Qwen/Qwen2.5-1.5B-Instruct",
    )


def test_beside_a_real_vllm(tmp_path: Path) -> None:
    """Under `--engine tracellm` an installed vLLM is not imported."""
    script = "import vllm; print(vllm.__version__)"
    done = run(tmp_path, script, "--engine", "tracellm", python=require_vllm(), PYTHONPATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.11.1+tracellm\n", "")

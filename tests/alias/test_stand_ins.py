"""`import vllm` under `--engine tracellm`: its modules, names and errors."""

import inspect
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tracellm.as_vllm.modules import MissingModuleError
from tracellm.as_vllm.table import HOMES, PACKAGES
from tracellm.engine.config.errors import EngineError
from tracellm.engine.ipc import core_client
from tracellm.engine.sample import sampling_params
from tracellm.probes.install.patcher import ImportHook

pytestmark = pytest.mark.usefixtures("vllm_is_tracellm")


def run(code: str) -> dict[str, Any]:
    """Return the names that `code` defines; mypy would resolve an import here to the real vLLM."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("module", sorted(HOMES.keys() | PACKAGES))
def test_every_module_can_be_imported(module: str) -> None:
    """Each module of the table exists, by name and as an attribute, with all its names."""
    imported = import_module(module)
    above, _, name = module.rpartition(".")
    assert imported.__name__ == module
    assert not above or getattr(import_module(above), name) is imported
    assert find_spec(module) is not None
    for name, (home, ours) in HOMES.get(module, {}).items():
        assert getattr(imported, name) is getattr(import_module(home), ours)
        assert name in dir(imported)


def test_every_form_of_import() -> None:
    """Every form of import gives tracellm's own class."""
    imported = run(
        "import vllm\n"
        "import vllm.v1.engine.core_client as client\n"
        "from vllm import SamplingParams\n"
        "from vllm.v1.engine import core\n"
        "attribute = vllm.v1.engine.core_client.InprocClient\n"
    )
    assert imported["client"].InprocClient is imported["attribute"] is core_client.InprocClient
    assert imported["SamplingParams"] is sampling_params.SamplingParams
    assert imported["core"].EngineCore.__module__ == "tracellm.engine.core.core"
    assert {"LLM", "AsyncLLMEngine", "EngineArgs"} <= run("from vllm import *").keys()


def test_its_version_says_whose_it_is() -> None:
    """The version is that of the names, marked as tracellm's."""
    vllm = import_module("vllm")
    assert vllm.__version__ == import_module("vllm.version").__version__ == "0.11.1+tracellm"
    assert vllm.__version_tuple__[:3] == (0, 11, 1)


def test_its_source_is_the_counterpart() -> None:
    """A stand-in's source file is tracellm's."""
    assert inspect.getsource(import_module("vllm.v1.engine.core_client")) == inspect.getsource(core_client)


def test_settings_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """`vllm.envs` has the current values of the environment."""
    envs = import_module("vllm.envs")
    assert envs.VLLM_ENABLE_V1_MULTIPROCESSING is False
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    assert envs.VLLM_ENABLE_V1_MULTIPROCESSING is True


def test_to_replace_a_name_is_meant_in_earnest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting a name sets it in tracellm's module; deleting it restores the original."""
    with monkeypatch.context() as patch:
        patch.setattr(import_module("vllm.v1.engine.core_client"), "InprocClient", "mine")
        assert vars(core_client)["InprocClient"] == "mine"
    assert inspect.isclass(core_client.InprocClient)


REFUSED = {
    "from vllm import ClassificationRequestOutput": "`vllm` has no `ClassificationRequestOutput` here: .* no class",
    "from vllm.lora.request import LoRARequest": "There is no `vllm.lora` here: .* no LoRA adapters",
    "import vllm.platforms": "There is no `vllm.platforms` here",
    "from vllm import lora": "There is no `vllm.lora` here",
    "from vllm import Samplingparams": "Did you mean `SamplingParams`",
    "from vllm.v1.engine.core_client import DPAsyncMPClient": "It has: EngineCoreClient, InprocClient, MPClient, ",
    "from vllm.engine.arg_utils import LLM": "`LLM` is in `vllm`",
    "from vllm.v1.engine import core_clients": "There is no `vllm.v1.engine.core_clients` here.* mean `core_client`",
    "import vllm.v1.engine.processor.inside": "`vllm.v1.engine.processor` has no `inside`",
    "import vllm; vllm.ClassificationRequestOutput": "`vllm` has no `ClassificationRequestOutput` here",
    "import vllm; del vllm.nothing": "nothing",
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_is_not_here_is_refused_by_name(code: str) -> None:
    """The message names what is missing, what there is instead, and the remedy."""
    with pytest.raises((ImportError, AttributeError), match=REFUSED[code]) as refused:
        run(code)
    if "del" not in code:
        assert isinstance(refused.value, EngineError)
        assert "without --engine tracellm" in str(refused.value)


def test_a_script_can_do_without() -> None:
    """`try: import`, `hasattr` and lookups of dunder names work as with any library."""
    imported = run(
        "import vllm\n"
        "try:\n    from vllm.lora.request import LoRARequest\n"
        "except ModuleNotFoundError:\n    LoRARequest = None\n"
        "answers = [hasattr(vllm, 'ClassificationRequestOutput'), hasattr(vllm, '__wrapped__'), hasattr(vllm, 'LLM')]\n"
    )
    assert imported["LoRARequest"] is None
    assert imported["answers"] == [False, False, True]


def test_other_packages_are_left_alone() -> None:
    """Modules whose names only begin with `vllm` are not affected."""
    with pytest.raises(ModuleNotFoundError) as missing:
        import_module("vllm_of_somebody")
    assert not isinstance(missing.value, MissingModuleError)


def test_probes_are_not_put_on_stand_ins() -> None:
    """A recording installs probes in tracellm's modules, and not again in the stand-ins."""
    import_module("vllm.v1.engine.core")
    handled: list[str] = []
    hook = ImportHook(lambda name: name.startswith("vllm"), lambda module: handled.append(module.__name__))
    hook.start()
    import_module("vllm.v1.engine.core_client")
    hook.stop()
    assert handled == []


def test_arguments_of_vllm() -> None:
    """`EngineArgs` takes the model by position, accepts vLLM's arguments that change nothing, and refuses others."""
    imported = run("from vllm import AsyncEngineArgs, EngineArgs, TokensPrompt")
    args = imported["EngineArgs"]("some/model", tensor_parallel_size=1, max_num_seqs=2)
    assert (args.model, args.max_num_seqs, args.disable_log_stats) == ("some/model", 2, False)
    assert imported["AsyncEngineArgs"](model="tiny", enable_log_requests=True).enable_log_requests is True
    with pytest.raises(EngineError, match="does not have `decode_context_parallel_size`, which vLLM has"):
        imported["EngineArgs"]("tiny", decode_context_parallel_size=2)
    with pytest.raises(EngineError, match=r"no argument `max_seqs`\. Did you mean"):
        imported["AsyncEngineArgs"]("tiny", max_seqs=2)
    assert imported["TokensPrompt"](prompt_token_ids=[1]) == {"prompt_token_ids": [1]}


def test_importing_vllm_is_quick() -> None:
    """`import vllm` imports neither torch nor transformers."""
    path = Path(import_module("tracellm.as_vllm").__file__ or "").parent / "path"
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import vllm\nfrom vllm import SamplingParams\nimport vllm.v1.engine.core_client\n"
        "print(vllm.__version__, sorted({'torch', 'transformers', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "0.11.1+tracellm []\n", done.stderr

"""Tests of the options of `vllm serve` that `tracellm serve` does not have."""

import click
import pytest

from tests.real_vllm import ask_vllm
from tracellm.cli.app import parse
from tracellm.cli.commands.serve import serve
from tracellm.cli.errors import CommandError
from tracellm.cli.vllm_options import VLLM_OPTIONS, is_vllm_option

LIST_OPTIONS = """
import sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
actions = make_arg_parser(FlexibleArgumentParser())._actions
with open(sys.argv[1], "w") as file:
    file.write("\\n".join(name for action in actions for name in action.option_strings if name.startswith("--")))
"""


def own_options() -> set[str]:
    """Return all options of `tracellm serve`."""
    params = serve.get_params(click.Context(serve, obj="en"))
    return {name for param in params for name in (*param.opts, *param.secondary_opts)} | {"--model"}


@pytest.mark.parametrize(
    "option", ["--uds", "--enable-log-outputs", "--no-enable-log-deltas", "--api_server_count=2", "--kernel-config.x"]
)
def test_an_option_of_vllm_is_named_as_one(option: str) -> None:
    """An option that only vLLM has is refused with this fact, in either spelling."""
    with pytest.raises(CommandError) as refused:
        parse(["serve", option], "en")
    name = option.partition("=")[0].replace("_", "-")
    assert refused.value.message("en") == f"tracellm does not have {name}, which vLLM has: leave it out"
    assert name in refused.value.message("zh")


def test_an_option_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """An option that vLLM does not have either is a misspelling."""
    with pytest.raises(SystemExit):
        parse(["serve", "--frobnicate"], "en")
    assert "No such option" in capsys.readouterr().err


def test_no_option_is_in_both() -> None:
    """An option that is added here is no longer listed as missing."""
    assert not {f"--{name}" for name in VLLM_OPTIONS} & own_options()


def test_all_options_of_a_real_vllm_are_known(tmp_path) -> None:
    """Each option of the installed vLLM is accepted, refused by value, or named as missing."""
    ask_vllm(LIST_OPTIONS, tmp_path / "options", cwd=tmp_path)
    theirs = set((tmp_path / "options").read_text().split())
    assert len(theirs) > 200
    known = own_options()
    already_off = {name for name in theirs if name.startswith("--no-") and f"--{name[5:]}" in known}
    assert [name for name in sorted(theirs - known - already_off) if not is_vllm_option(name)] == []


def test_a_flag_may_be_switched_off() -> None:
    """--no-FLAG is accepted for each flag, as in vLLM, and changes nothing."""
    job = parse(["serve", "--no-enable-log-requests", "--disable-log-requests", "--no_enable_request_id_headers"], "en")
    assert callable(job)

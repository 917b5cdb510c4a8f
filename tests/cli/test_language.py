"""The choice of the language."""

import pytest

from tests.cli.conftest import Command
from tracellm.cli.options import choose_language


@pytest.mark.parametrize(
    ("option", "environ", "language"),
    [
        ("zh", {"TRACELLM_LANG": "en", "LANG": "en_US.UTF-8"}, "zh"),
        ("EN", {"TRACELLM_LANG": "zh"}, "en"),
        (None, {"TRACELLM_LANG": "zh", "LANG": "en_US.UTF-8"}, "zh"),
        (None, {"TRACELLM_LANG": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "C"}, "zh"),
        (None, {"LANG": "de_DE"}, "en"),
        (None, {}, "en"),
    ],
)
def test_the_option_comes_before_the_variable_and_the_locale(
    option: str | None, environ: dict[str, str], language: str
) -> None:
    """The language is --lang, TRACELLM_LANG, or that of LC_ALL, LC_MESSAGES, LANG in POSIX's order; else English."""
    assert choose_language(option, environ) == language


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["show", "-h"], ["report", "-h"]])
def test_help_speaks_both_languages_and_gives_examples(
    arguments: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help is in the user's language, with the same options in both and with examples."""
    english = command(*arguments)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    chinese = command(*arguments)
    assert english.status == chinese.status == 0
    assert english.out.isascii()
    assert not chinese.out.isascii()
    if "run" in arguments:
        assert "tracellm run --explain examples/hello.py" in english.out
        assert "tracellm run --explain examples/hello.py" in chinese.out


def test_lang_zh_among_the_arguments_is_enough(command: Command) -> None:
    """`--lang zh` applies to help and refusals, too."""
    assert not command("run", "--lang", "zh", "--help").out.isascii()
    assert command("run", "--lang=zh", "nope.py").err == "tracellm：没有脚本 nope.py\n"

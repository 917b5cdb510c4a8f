"""Generated parts of docs/cli.md and docs/settings.md: the commands' help, and tables of settings.

`python -m scripts.reference_docs` writes the pages in both languages; `make_docs.py` writes them too. The help texts
are those of `tracellm ... --help`, the names and defaults those of `EngineArgs` and `SamplingParams`.
"""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import click

from scripts.server_tables import ENGINE, table
from tracellm.cli.app import cli
from tracellm.cli.options import EngineCommand
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.report.texts import LANGUAGES, Language, text

__all__ = ["PAGES", "blocks"]

ROOT = Path(__file__).parents[1]
PAGES: dict[Language, tuple[str, ...]] = {
    "en": ("docs/cli.md", "docs/settings.md"),
    "zh": ("docs/zh/cli.md", "docs/zh/settings.md"),
}
_WIDTH = 100
_HEADS = {"en": ("name", "default", "meaning"), "zh": ("名称", "默认值", "含义")}
_SETTINGS = {
    "model": ("directory, hub id, or `tiny`, the bundled model", "目录、hub 名字，或内置模型 `tiny`"),
    "served_model_name": ("name of the model in recordings and responses", "记录和响应里的模型名"),
    **ENGINE,
}
_NOT_SHOWN = ("best_of", "logits_processors", "guided_decoding", "extra_args", "output_text_buffer_length")
"""Sampling parameters that are rejected, deprecated, ignored or internal."""

_SAMPLING = {
    "n": "一个 prompt 独立生成几个输出。",
    "presence_penalty": "从已生成过的 token 的 logit 中减去。范围 [-2, 2]；负值鼓励重复。",
    "frequency_penalty": "token 每生成过一次，就从它的 logit 中减去一次。范围 [-2, 2]。",
    "repetition_penalty": "降低 prompt 和输出里出现过的 token 的 logit。大于 0；小于 1 鼓励重复。",
    "temperature": "0 表示贪心；越大越随机。不小于 0；0 到 0.01 之间的值取 0.01。",
    "top_p": "只从累计概率达到该值的最可能的 token 中采样。范围 (0, 1]；1 表示全部。",
    "top_k": "只从最可能的这么多个 token 中采样；0 或 -1 表示全部。",
    "min_p": "只从概率不低于最可能 token 的这个比例的 token 中采样。范围 [0, 1]。",
    "seed": "请求自己的随机数生成器的种子；None（或 -1）使用引擎的生成器。",
    "stop": "结束生成的字符串；不包含在文本里。",
    "stop_token_ids": "结束生成的 token。",
    "bad_words": "不会生成的词：会拼出该词的最后一个 token 被屏蔽。",
    "include_stop_str_in_output": "在文本末尾保留停止字符串。",
    "ignore_eos": "遇到结束 token 后继续生成。",
    "max_tokens": "最多生成的 token 数；None 表示直到模型的最大长度。",
    "min_tokens": "生成这么多 token 之后才允许结束 token 或停止 token。",
    "logprobs": "每个生成的 token 给出最可能的几个 token 的对数概率，另加生成的那个。"
    "-1 表示整个词表，None 表示不要对数概率。",
    "prompt_logprobs": "同上，针对提示词的每个 token。",
    "detokenize": "把生成的 token 转成文本。",
    "skip_special_tokens": "文本里不包含特殊 token。",
    "spaces_between_special_tokens": "`skip_special_tokens` 关闭时，保留分词器在附加 token 之间的空格。",
    "truncate_prompt_tokens": "文本提示词只保留最后这么多 token；-1 表示模型的最大长度，None 表示全部保留。",
    "output_kind": "每个输出的内容：到目前为止的全部、新增部分，或只在最后给出全部。",
    "structured_outputs": "对输出形式的约束。",
    "logit_bias": "加到这些 token 的 logit 上。",
    "allowed_token_ids": "只允许生成这些 token。",
    "skip_reading_prefix_cache": "不使用前缀缓存，计算整个提示词；None 表示有 `prompt_logprobs` 时为 True。",
}


def blocks(lang: Language) -> dict[str, str]:
    """Return the generated parts by the names of their marks."""
    zh = lang == "zh"
    engine = [
        (f"`{field.name}`", _default(field), _SETTINGS[field.name][zh]) for field in dataclasses.fields(EngineArgs)
    ]
    english = _docstrings(SamplingParams)
    english["output_kind"] = "What each output holds: everything so far, what is new, or everything in one last output."
    sampling = [
        (f"`{field.name}`", _default(field), _SAMPLING[field.name] if zh else english[field.name])
        for field in dataclasses.fields(SamplingParams)
        if field.name not in _NOT_SHOWN and not field.name.startswith("_")
    ]
    return {
        "cli-help": "\n".join(_help_of_commands(lang)),
        "settings-engine": table(_HEADS[lang], engine),
        "settings-sampling": table(_HEADS[lang], sampling),
    }


def _help_of_commands(lang: Language) -> Iterator[str]:
    """Yield a section for each command, without the engine's settings, which docs/settings.md lists."""
    settings = text(lang, "serve.help.engine")
    for command, context in _commands(cli, click.Context(cli, info_name="tracellm", obj=lang)):
        context.terminal_width = context.max_content_width = _WIDTH
        with context:
            shown = command.get_help(context)
        if isinstance(command, EngineCommand):
            shown = shown[: shown.index(settings)].rstrip()
        yield f"## {context.command_path}\n\n```text\n{shown}\n```\n"


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all below it, each with a context for its help."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, click.Context(below, parent=context, info_name=name))


def _default(field: "dataclasses.Field[Any]") -> str:
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return f"`{value.name if isinstance(value, Enum) else repr(value)}`"


def _docstrings(cls: type) -> dict[str, str]:
    """Return the docstring below each attribute of a class, on one line."""
    [body] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for attribute, below in zip(body.body, body.body[1:], strict=False):
        match attribute, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                found[name] = " ".join(docstring.split())
    return found


def main() -> None:
    """Write the pages in both languages."""
    from scripts.make_docs import filled

    for lang in LANGUAGES:
        for name in PAGES[lang]:
            page = ROOT / name
            page.write_text(filled(page.read_text(encoding="utf-8"), blocks(lang)), encoding="utf-8")
            print(f"made {name}")


if __name__ == "__main__":
    main()

"""The answer sheets of lab 0: the questions about the run of a seed, and the beginning of a diagram."""

from tracellm.lab.labs.lab00_read_a_run.checks import QUESTIONS
from tracellm.lab.labs.lab00_read_a_run.runs import make_numbers

__all__ = ["make_sheets"]

_DIAGRAM = """\
sequenceDiagram
    %% {comment}
    participant Script
    participant LLM
    participant LLMEngine
    Script->>LLM: generate
"""

_COMMENTS = {
    "en": "Draw 12 to 30 calls of your run: a request on its way from the script to its first token, and back.",
    "zh": "画出运行中的 12 到 30 个调用：请求从脚本到第一个 token，再回到脚本的路。",
}

_HEADINGS = {
    "en": "# Answers about your own run: `tracellm lab explain 0` records it.\n",
    "zh": "# 关于你自己的运行的回答：用 `tracellm lab explain 0` 录制它。\n",
}


def make_sheets(seed: str, lang: str) -> dict[str, str]:
    """Return the empty answer sheets of a seed, by file name."""
    numbers = make_numbers(seed)
    answers = [_HEADINGS[lang]]
    for number, question in enumerate(QUESTIONS, start=1):
        answers.append(f"# {number}. {question.ask(numbers, lang)}\n{question.key} = {question.form}\n")
    return {"answers.toml": "\n".join(answers), "diagram.mmd": _DIAGRAM.format(comment=_COMMENTS[lang])}

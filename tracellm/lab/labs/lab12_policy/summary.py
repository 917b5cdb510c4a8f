"""The table of figures that `tracellm lab check 12` prints, and the leaderboard in the student's folder."""

from pathlib import Path

from tracellm.lab.grading import Grade
from tracellm.lab.labs.lab12_policy.leaderboard import FIGURES, Entry, figures_of, make_entry, version_of, write_board

__all__ = ["summarize"]

_TEXTS = {
    "en": {
        "heading": "Figures, the mean of the cases (FCFS in brackets):",
        "columns": ("slowdown", "p95", "longest (s)", "first token (s)", "fairness", "total (s)"),
        "score": "Score {score:.0f} (FCFS 100): the geometric mean of the gains. All versions of your policy: {path}",
        "unfinished": "No figures: they need a run of each workload in which every request ends.",
    },
    "zh": {
        "heading": "指标，取各用例的平均值（括号内为 FCFS）：",
        "columns": ("减速比", "p95", "最长（秒）", "首 token（秒）", "公平指数", "总计（秒）"),
        "score": "得分 {score:.0f}（FCFS 为 100）：各项改进的几何平均。策略的所有版本：{path}",
        "unfinished": "没有指标：需要每个负载中的所有请求都结束。",
    },
}


def summarize(grade: Grade, folder: Path, lang: str) -> str:
    """Return the table, and add this version of the policy to the leaderboard."""
    texts = _TEXTS[lang]
    entry = make_entry(version_of(folder), grade)
    if entry is None:
        return "\n" + str(texts["unfinished"])
    path = write_board(folder, [entry, Entry.fcfs(grade)])
    rows = [["", *texts["columns"]]]
    for check, (mine, fcfs) in figures_of(grade).items():
        name = check.short_zh if lang == "zh" else check.short_en
        rows.append([name, *(f"{mine[figure]:.3g} ({fcfs[figure]:.3g})" for figure in FIGURES)])
    lines = ["  " + _pad(row[0], -10) + "".join(_pad(cell, 16) for cell in row[1:]) for row in rows]
    return "\n".join(["", str(texts["heading"]), *lines, str(texts["score"]).format(score=entry.score, path=path)])


def _pad(cell: str, width: int) -> str:
    """Align a cell to the right, or to the left with a negative width; a Chinese character takes two columns."""
    spaces = " " * (abs(width) - len(cell) - sum(ord(character) > 0x2E80 for character in cell))
    return spaces + cell if width > 0 else cell + spaces

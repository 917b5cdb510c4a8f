"""Texts of the displays of a run in a notebook cell."""

__all__ = ["EN", "ZH"]

EN = {
    "cell.left_out": "The first {n:,} of {all:,} steps, as many as fit into a cell; report.html has all.",
}

ZH = {
    "cell.left_out": "共 {all:,} 个 step，单元格里放得下前 {n:,} 个；完整内容见 report.html。",
}

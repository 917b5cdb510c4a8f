"""Size and opening time of the report page, for runs with a thousand to a million spans.

    python -m benchmarks.report_page [--most 1000000] [--repeats 3] [--docs]

Each page is written to disk and opened in headless Chromium with a new profile. *Open* goes from the navigation to the
end of the page's script, *select* from a selected step to its finished layout. With `--docs` the table on
docs/scale.md and docs/zh/scale.md is updated. The traces come from `benchmarks.big_traces`.
"""

# ruff: noqa: T201  (it prints figures)
import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.big_traces import write_run
from benchmarks.pages import machine, table, write_pages
from benchmarks.trace_scale import PAGES
from tests.browser import Browser
from tracellm.report.html import report_html
from tracellm.trace.run_folder import RunFolder

__all__ = ["HEADS", "main", "measure"]

SIZES = (1_000, 100_000, 1_000_000)

HEADS = {
    "en": ("spans", "steps", "page", "make", "open", "select a step"),
    "zh": ("span", "step", "页面", "生成", "打开", "选择 step"),
}
_SELECT = """const begun = performance.now();
tracellm.goto(1 + Math.floor({steps} / 2));
document.body.getBoundingClientRect();
return performance.now() - begun"""


def measure(spans: int, repeats: int) -> list[str]:
    """Return the cells of one row, times as medians of `repeats` openings."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "run", spans)
        run = RunFolder.open(Path(folder) / "run")
        begun = time.perf_counter()
        page = Path(folder) / "report.html"
        page.write_text(report_html(run), encoding="utf-8")
        made = time.perf_counter() - begun
        steps = len(run.trace.named("EngineCore.step_fn"))
        opened, selected = [], []
        for _ in range(repeats):
            with Browser() as browser:
                browser.visit("about:blank")
                begun = time.perf_counter()
                browser.open(page)
                assert browser.wait("document.documentElement.dataset.ready")
                opened.append(time.perf_counter() - begun)
                selected.append(browser.run(_SELECT.format(steps=steps)))
        return [
            f"{len(run.trace.spans):,}",
            f"{steps:,}",
            f"{page.stat().st_size / 1e6:.2f} MB",
            f"{made:.1f} s",
            f"{median(opened):.2f} s",
            f"{median(selected):.0f} ms",
        ]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of spans")
    parser.add_argument("--repeats", type=int, default=3, help="openings of each page")
    parser.add_argument("--docs", action="store_true", help="update docs/scale.md and docs/zh/scale.md")
    options = parser.parse_args()
    rows = []
    for spans in SIZES:
        if spans <= options.most:
            rows.append(measure(spans, options.repeats))
            print(" | ".join(rows[-1]), flush=True)
    if options.docs:
        notes = {
            "en": f"Made by `python -m benchmarks.report_page --docs`: {machine()}; medians of {options.repeats}.",
            "zh": f"由 `python -m benchmarks.report_page --docs` 生成：{machine()}；{options.repeats} 次的中位数。",
        }
        write_pages(PAGES, "page", {lang: f"{table(HEADS[lang], rows)}\n{notes[lang]}\n" for lang in PAGES})


if __name__ == "__main__":
    main()

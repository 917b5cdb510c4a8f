"""Write docs/parity.md and docs/zh/parity.md: comparisons with recordings of a real vLLM 0.11.1.

    python -m scripts.make_parity, or make parity

It runs every recording in tests/fixtures, of whole engines and of the scheduler alone, and writes the tables between
`<!-- made: parity -->` or `<!-- made: clients -->` (parity_clients.py) and `<!-- end -->`. `tests/docs/test_parity.py`
fails if a table does not cover all recordings; `tests/engine/parity` fails on any difference. Differences between
clients are printed, with exit status 1.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scripts.parity_clients import client_rows, client_table, run_clients
from tests.engine.parity import cases
from tests.engine.parity.compare import Tally, compare_batches, count_values

ROOT = Path(__file__).parents[1]
PAGES = {"en": "docs/parity.md", "zh": "docs/zh/parity.md"}
MADE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

HEADINGS = {
    "en": "| recordings of | cases | steps | decisions compared | equal | tokens compared | equal |",
    "zh": "| 录制内容 | 案例 | 步 | 比较的决定 | 相同 | 比较的 token | 相同 |",
}
GROUPS: dict[str, tuple[str, str]] = {
    "scheduler": ("greedy requests, all added before the first step", "贪心采样的请求，全部在第一步之前加入"),
    "batches": ("several calls of `generate`, one after the other", "先后多次调用 `generate`"),
    "small_cache": ("a KV cache that one request fills", "一个请求就能占满的 KV 缓存"),
    "priority": ("the priority policy", "优先级策略"),
    "arrivals": ("arrivals and aborts between the steps", "步与步之间到来和中止的请求"),
    "long_prompts": ("prompts beyond `long_prefill_token_threshold`", "超过 `long_prefill_token_threshold` 的提示词"),
    "whole_prompts": ("chunked prefill off", "关闭分块预填充"),
    "edges": ("lengths at the limits", "处于边界的长度"),
    "stops": ("stop tokens, end of sequence, `min_tokens`", "停止 token、序列结束、`min_tokens`"),
    "text": ("text: stop strings, special tokens, output kinds", "文本：停止字符串、特殊 token、输出方式"),
    "several": ("`n` > 1", "`n` > 1"),
    "seeded": ("random sampling with seeds", "带种子的随机采样"),
    "processors": ("penalties, bias, allowed tokens, bad words", "惩罚、偏置、允许的 token、禁用词"),
    "logprobs": ("log probabilities, of prompts too", "对数概率，包括提示词的"),
    "tensor": ("two workers that share the layers", "两个 worker 共同计算每一层"),
    "pipeline": ("two or three pipeline stages, several steps under way", "两个或三个流水线 stage，多个步同时进行"),
    "policies": ("the scheduler alone, under every policy", "单独的调度器，各种策略"),
    "windows": ("the scheduler alone, with sliding windows", "单独的调度器，滑动窗口"),
}
ALL = {"en": "**all**", "zh": "**合计**"}


def recordings() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Return every group with its cases."""
    yield "scheduler", cases.scheduler_cases()
    engines = [*cases.engine_cases(), *cases.worker_cases()]
    for group in [group for group in GROUPS if any(case["group"] == group for case in engines)]:
        yield group, [case for case in engines if case["group"] == group]
    yield "policies", cases.policy_cases()
    yield "windows", cases.window_cases()


def run_here(group: str, case: dict[str, Any]) -> Tally:
    """Run a case with tracellm, and compare it."""
    if group in ("policies", "windows"):
        from tests.engine.parity import test_scheduler_policies, test_scheduler_windows
        from tests.engine.parity.replay import replay

        run_step = (test_scheduler_policies if group == "policies" else test_scheduler_windows).run_step
        return sum((_one_step(expected, ours) for _, expected, ours in replay(case, run_step)), Tally())
    import tracellm
    from tests.engine.parity.drive import Library, run_case
    from tracellm.engine.sample import sampling_params

    ours = json.loads(json.dumps(run_case(Library.of(tracellm, sampling_params), case)))
    return compare_batches(case, ours)[0]


def as_recorded(group: str, case: dict[str, Any]) -> Tally:
    """Compare a case with itself, to count what there is to compare."""
    if group in ("policies", "windows"):
        return sum((_one_step(step, step) for step in case["steps"]), Tally())
    return compare_batches(case, case["recorded"])[0]


def _one_step(expected: dict[str, Any], ours: dict[str, Any]) -> Tally:
    """Run a step of the scheduler alone, with the tokens in `sampled`."""
    theirs = {key: value for key, value in expected.items() if key != "sampled"}
    return Tally(1, *count_values(theirs, {key: json.loads(json.dumps(ours[key])) for key in theirs}))


def rows(tally_of: Callable[[str, dict[str, Any]], Tally]) -> list[tuple[str, int, Tally]]:
    """Return for each group its name, number of cases and comparison, and the totals."""
    found = [(name, len(of), sum((tally_of(name, case) for case in of), Tally())) for name, of in recordings()]
    return [*found, ("all", sum(count for _, count, _ in found), sum((tally for *_, tally in found), Tally()))]


def table(lang: str, of: list[tuple[str, int, Tally]]) -> str:
    """Return the rows in Markdown."""
    lines = [HEADINGS[lang], "|---|" + "---:|" * 6]
    for name, count, t in of:
        text = ALL[lang] if name == "all" else GROUPS[name][lang == "zh"]
        numbers = (count, t.steps, t.decisions, t.decisions_equal, t.tokens or "", t.tokens_equal if t.tokens else "")
        lines.append(f"| {text} | " + " | ".join(f"{one:,}" if one != "" else "" for one in numbers) + " |")
    return "\n".join(lines) + "\n"


def whole_engines(of: list[tuple[str, int, Tally]]) -> Tally:
    """Return the comparisons of whole engines of one worker, without the scheduler's own recordings."""
    left_out = ("tensor", "pipeline", "policies", "windows", "all")
    return sum((tally for name, _, tally in of if name not in left_out), Tally())


def put_into(page: Path, tables: dict[str, str]) -> None:
    """Replace the tables of a page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(MADE.sub(lambda made: made[1] + tables[made[2]] + made[3], text), encoding="utf-8")


def main() -> None:
    """Run everything, and write both pages."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    found = rows(run_here)
    through_clients, differences = run_clients()
    clients = client_rows(whole_engines(found), through_clients)
    for lang, name in PAGES.items():
        put_into(ROOT / name, {"parity": table(lang, found), "clients": client_table(lang, clients)})
        print(f"made {name}")
    sys.exit("\n\n".join(differences) or None)


if __name__ == "__main__":
    main()

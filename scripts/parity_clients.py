"""Second table of docs/parity.md: the recorded workloads of whole engines, through each client.

`scripts/make_parity.py` uses it. Two processes of this script each run half of the cases, each with one process for the
engine cores (tests/engine/clients/in_process.py). A case runs *in step*, where every decision is compared, and
*freely*, where only tokens can be compared (tests/engine/parity/freely.py has the reason).
"""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from tests.engine.parity import cases
from tests.engine.parity.compare import Tally, compare_batches

__all__ = ["CLIENTS", "as_recorded", "client_rows", "client_table", "run_clients"]

Json = dict[str, Any]

HEADINGS = {
    "en": "| client | engine core | steps | cases | decisions compared | equal | tokens compared | equal |",
    "zh": "| 客户端 | 引擎核心 | 步 | 案例 | 比较的决定 | 相同 | 比较的 token | 相同 |",
}
HERE, THERE = ("in the same process", "在同一进程"), ("in another process", "在另一进程")
IN_STEP, FREELY = ("when asked for", "被请求时"), ("whenever it can", "能走就走")
CLIENTS = {
    "InprocClient": ("`InprocClient`", HERE, IN_STEP),
    "SyncInStep": ("`SyncMPClient`", THERE, IN_STEP),
    "AsyncInStep": ("`AsyncMPClient`", THERE, IN_STEP),
    "run_llm": ("`SyncMPClient` (`LLM`)", THERE, FREELY),
    "run_async_llm": ("`AsyncMPClient` (`AsyncLLM`)", THERE, FREELY),
}


class Row(NamedTuple):
    """Comparisons with one client."""

    client: str
    cases: int
    tally: Tally


def client_rows(inproc: Tally, others: dict[str, Tally]) -> list[Row]:
    """Return all rows; the `InprocClient` has the figures of the first table."""
    count = len(cases.scheduler_cases()) + len(cases.engine_cases())
    return [Row(name, count, (others | {"InprocClient": inproc})[name]) for name in CLIENTS]


def as_recorded(inproc: Tally) -> dict[str, Tally]:
    """Return the counts of what there is to compare with the other clients, from those with the first."""
    tokens = Tally(tokens=inproc.tokens, tokens_equal=inproc.tokens)
    return {name: tokens if when == FREELY else inproc for name, (_, _, when) in CLIENTS.items()}


def client_table(lang: str, rows: list[Row]) -> str:
    """Return the rows in Markdown."""
    lines = [HEADINGS[lang], "|---|---|---|" + "---:|" * 5]
    for row in rows:
        client, where, when = CLIENTS[row.client]
        t, chosen = row.tally, lang == "zh"
        decisions = (t.decisions, t.decisions_equal) if t.decisions else ("", "")
        numbers = (row.cases, *decisions, t.tokens, t.tokens_equal)
        cells = [client, where[chosen], when[chosen], *(f"{one:,}" if one != "" else "" for one in numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def run_clients(processes: int = 2) -> tuple[dict[str, Tally], list[str]]:
    """Run every recorded workload of a whole engine through every client with an engine core process.

    Returns:
        The comparisons with each client, and the differences as text.
    """
    found = [*cases.scheduler_cases(), *cases.engine_cases()]
    names = [name for name in CLIENTS if name != "InprocClient"]
    tallies, differences = {name: Tally() for name in names}, []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        halves = [[case["name"] for case in found[start::processes]] for start in range(processes)]
        for name, tally, difference in chain.from_iterable(pool.map(partial(_run_some, names), halves)):
            tallies[name] += tally
            differences += [f"{name}: {difference}"] if difference else []
    return tallies, differences


def _run_some(names: list[str], some: list[str]) -> list[tuple[str, Tally, str]]:
    """Run the cases of these names through the clients of these names, in this process."""
    from tests.engine.clients.in_process import engines_in_one_process

    results = []
    with engines_in_one_process() as engines:
        for case in [*cases.scheduler_cases(), *cases.engine_cases()]:
            if case["name"] in some:
                for name in names:
                    tally, difference = _run_one(engines, name, case)
                    results.append((name, tally, difference))
                    print(f"{case['name']} {name}: {difference or 'equal'}", file=sys.stderr, flush=True)
    return results


def _run_one(engines: Any, name: str, case: Json) -> tuple[Tally, str]:
    import tracellm
    from tests.engine.clients import in_thread
    from tests.engine.parity import freely
    from tests.engine.parity.drive import Library, make_llm, run_batch
    from tracellm.engine.sample import sampling_params

    library = Library.of(tracellm, sampling_params)
    library = library._replace(LLM=partial(tracellm.LLM, multiprocess_mode=True))
    if name.startswith("run_"):
        with engines(stepped=False):
            tokens, equal, difference = freely.compare_tokens(case, getattr(freely, name)(library, case))
        return Tally(tokens=tokens, tokens_equal=equal), difference
    with engines(stepped=True), in_thread.as_clients(getattr(in_thread, name)):
        llm = make_llm(library, case)
        try:
            ours = [run_batch(library, llm, batch, in_thread.watch_client) for batch in case["batches"]]
        finally:
            llm.llm_engine.engine_core.shutdown()
    tally, first = compare_batches(case, json.loads(json.dumps(ours)))
    return tally, f"{case['name']}: {first.text}" if first else ""

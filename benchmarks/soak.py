"""Memory growth of a server's front and engine processes over many short requests. Target: below 5 %.

    python benchmarks/soak.py [--requests 5000] [--clients 16] [--warm-up 500]

The requests are streamed or not, of several lengths, some with several completions, some aborted by the client.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests' server and their HTTP

from tests.faults.http import COMPLETIONS, ask, idle, stream
from tests.faults.processes import Server, rss_of

__all__ = ["main"]

_MEBIBYTE = 1 << 20


async def send_request(port: int, number: int) -> None:
    """Send one short request; its kind depends on its number."""
    body = {"prompt": f"Request {number}:", "max_tokens": 1 + number % 5, "ignore_eos": True, "seed": number}
    match number % 10:
        case 0:
            aborted = await stream(port, body | {"max_tokens": 200})
            await anext(aiter(aborted.events()))
            await aborted.close()
        case 1 | 2 | 3:
            connection = await stream(port, body)
            async for _ in connection.events():
                pass
            await connection.close()
        case _:
            answer = await ask(port, "POST", COMPLETIONS, body | {"n": 1 + number % 2, "logprobs": number % 3})
            assert answer.status == 200, answer


async def send_requests(port: int, numbers: range, clients: int) -> None:
    """Send these requests, `clients` at a time."""
    remaining = iter(numbers)

    async def client() -> None:
        for number in remaining:
            await send_request(port, number)

    await asyncio.gather(*(client() for _ in range(clients)))
    await idle(port)


def main() -> None:
    """Measure, and print a table. The exit status is 1 if a process has grown too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=500)
    options = parser.parse_args()
    # The default number of blocks.
    with Server("--disable-uvicorn-access-log", "--num-gpu-blocks-override=16385") as server:
        pids = {"front": server.pid, "engine": server.engine()}

        def memory() -> dict[str, int]:
            return {name: rss_of(pid) for name, pid in pids.items()}

        asyncio.run(send_requests(server.port, range(options.warm_up), options.clients))
        before = memory()
        print(f"{'requests':>9} {'seconds':>8}" + "".join(f"{name + ' MiB':>12}{'':>9}" for name in pids))
        start, now, tenth = time.perf_counter(), before, max(1, options.requests // 10)
        for first in range(0, options.requests + 1, tenth):
            if first:
                numbers = range(options.warm_up + first - tenth, options.warm_up + first)
                asyncio.run(send_requests(server.port, numbers, options.clients))
            now = memory()
            growth = "".join(f"{now[n] / _MEBIBYTE:>12.1f} {now[n] / before[n] - 1:>+7.2%} " for n in pids)
            print(f"{first:>9} {time.perf_counter() - start:>8.1f}{growth}", flush=True)
    sys.exit(any(now[name] > 1.05 * before[name] for name in pids))


if __name__ == "__main__":
    main()

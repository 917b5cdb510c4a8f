"""`tracellm bench serve`: measures a running server from its client's side.

The server is `tracellm serve`, a real `vllm serve`, or any other with OpenAI's completions API. Prompts are random
token ids, and responses are streamed. Each request has its own thread, which mostly waits.

vLLM: vllm/benchmarks/serve.py, with the same names of options.
"""

import http.client
import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tracellm.bench.figures import number
from tracellm.bench.latency import latency_table, percentiles
from tracellm.bench.workload import BenchError, Lengths, Workload, random_workload
from tracellm.report.texts import Language, text
from tracellm.report.wording.safe_text import visible

__all__ = ["Answer", "serve"]

_TOKEN_IDS = 1000
"""Prompts have token ids below this; every model has them."""
_TIMEOUT_SECONDS = 600.0
_LONGEST_ERROR = 300  # characters


@dataclass
class Answer:
    """Outcome of one request. Times are of `time.perf_counter`, in seconds."""

    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    """Arrival times of the streamed chunks with text."""
    num_tokens: int = 0
    error: str = ""


class Client:
    """Client of one server."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        """Make a client of the server at http://HOST:PORT, with or without a path.

        Raises:
            BenchError: `base_url` is not such an address.
        """
        try:
            parts = urlsplit(base_url)
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            raise BenchError("base_url", value=base_url) from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise BenchError("base_url", value=base_url)
        self.address = base_url
        self._secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def model(self) -> str:
        """Return the name of the first model that the server lists.

        Raises:
            BenchError: there is no server, or it does not have OpenAI's API.
        """
        try:
            response, connection = self._request("GET", "/v1/models", None)
            with connection:
                answer = response.read()
        except (
            OSError,
            http.client.HTTPException,
            UnicodeError,
        ) as error:  # UnicodeError: a bad host name
            raise BenchError("no_server", url=self.address, reason=error) from None
        try:
            return str(json.loads(answer)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            reason = f"{response.status} {answer.decode(errors='replace')[:_LONGEST_ERROR]}"
            raise BenchError("no_server", url=self.address, reason=visible(reason)) from None

    def complete(self, model: str, prompt: list[int], length: int) -> Answer:
        """Request a completion of `length` tokens, and measure when each chunk arrives. Never raises."""
        body = {
            "model": model,
            "prompt": prompt,
            "max_tokens": length,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = Answer(sent=time.perf_counter())
        try:
            response, connection = self._request("POST", "/v1/completions", json.dumps(body))
            with connection:
                if response.status != http.client.OK:
                    raise ValueError(response.read().decode(errors="replace"))
                for line in response:
                    self._read_event(line, answer)
            if answer.num_tokens != length:
                raise ValueError(f"asked for {length} tokens, got {answer.num_tokens}")
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            answer.error = visible(str(error) or type(error).__name__)[:_LONGEST_ERROR]
        return answer

    @staticmethod
    def _read_event(line: bytes, answer: Answer) -> None:
        """Add one line of the event stream to the answer."""
        now = time.perf_counter()
        if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
            return
        event = json.loads(line[5:])
        if "error" in event:
            raise ValueError(json.dumps(event["error"]))
        if event.get("choices"):
            answer.arrivals.append(now)
        if usage := event.get("usage"):
            answer.num_tokens = usage["completion_tokens"]

    def _request(
        self, method: str, path: str, body: str | None
    ) -> tuple[http.client.HTTPResponse, closing[http.client.HTTPConnection]]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        assert self._host is not None
        connection = kind(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        connection.request(method, self._path + path, body, self._headers)
        return connection.getresponse(), closing(connection)


def serve(
    client: Client,
    lang: Language,
    *,
    model: str | None,
    requests: int,
    inputs: Lengths,
    outputs: Lengths,
    rate: float,
    at_once: int | None,
    seed: int,
    as_json: bool,
) -> tuple[str, str]:
    """Measure, and return the figures as text or JSON, and a message about failed requests, empty if none failed.

    Args:
        client: client of the server.
        lang: language of the text.
        model: name of the model; None for the server's first.
        requests: number of requests.
        inputs: tokens in a prompt.
        outputs: tokens in a completion.
        rate: requests per second, arriving as a Poisson process; infinite for all at once.
        at_once: maximum number of concurrent requests; None for no limit.
        seed: seed of lengths, tokens and arrivals.
        as_json: return JSON.

    Raises:
        BenchError: there is no such server.
    """
    name = model or client.model()
    workload = random_workload(_TOKEN_IDS, requests, inputs, outputs, seed)
    client.complete(name, workload.prompts[0], 1)  # warm up the server
    start = time.perf_counter()
    answers = _answers(client, name, workload, rate, at_once, seed)
    seconds = time.perf_counter() - start
    good = [answer for answer in answers if not answer.error]
    failed = [answer for answer in answers if answer.error]
    figures = {
        "requests": len(answers),
        "failed": len(failed),
        "seconds": seconds,
        "requests_per_second": len(good) / seconds,
        "output_tokens_per_second": sum(answer.num_tokens for answer in good) / seconds,
    }
    times = _times(good)
    failure = text(lang, "bench.serve.failed", n=len(failed), error=failed[0].error) if failed else ""
    if as_json:
        return json.dumps({**figures, "model": name, "latency_seconds": percentiles(times)}, indent=2), failure
    return _for_people(figures, times, name, client, workload, lang), failure


def _answers(
    client: Client, model: str, workload: Workload, rate: float, at_once: int | None, seed: int
) -> list[Answer]:
    """Send each request at its arrival time, or when fewer than `at_once` run; return the answers in order."""
    rng = random.Random(seed)
    with ThreadPoolExecutor(max_workers=at_once or len(workload.prompts)) as threads:
        futures = []
        due = time.perf_counter()
        for prompt, length in zip(workload.prompts, workload.lengths, strict=True):
            time.sleep(max(0.0, due - time.perf_counter()))
            futures.append(threads.submit(client.complete, model, prompt, length))
            due += rng.expovariate(rate) if rate != float("inf") else 0.0
        return [future.result() for future in futures]


def _times(answers: Sequence[Answer]) -> dict[str, list[float]]:
    """Return seconds to the first token, per token after it (mean), between chunks, and to the end."""
    times: dict[str, list[float]] = {"first": [], "token": [], "between": [], "whole": []}
    for answer in answers:
        first, last = answer.arrivals[0], answer.arrivals[-1]
        times["first"].append(first - answer.sent)
        if answer.num_tokens > 1:
            times["token"].append((last - first) / (answer.num_tokens - 1))
        times["between"] += [
            after - before for before, after in zip(answer.arrivals, answer.arrivals[1:], strict=False)
        ]
        times["whole"].append(last - answer.sent)
    return times


def _for_people(
    figures: dict[str, Any],
    times: dict[str, list[float]],
    model: str,
    client: Client,
    workload: Workload,
    lang: Language,
) -> str:
    headlines = text(
        lang,
        "bench.serve.headlines",
        url=client.address,
        model=visible(model),
        requests=figures["requests"],
        inputs=workload.num_input_tokens,
        outputs=workload.num_output_tokens,
        seconds=number(figures["seconds"]),
        rate=number(figures["requests_per_second"]),
        speed=number(figures["output_tokens_per_second"]),
    )
    return f"{headlines}\n{latency_table(times, lang)}"

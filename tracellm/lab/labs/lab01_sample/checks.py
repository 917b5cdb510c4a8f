"""Checks of lab 1: batches of some rows over a vocabulary of some tokens, small enough to be computed by hand.

A row is a dict: its logits, and the parameters that the check needs; other fields are refused, so that a student's case
cannot have a parameter without effect. Boundaries of top-p and min-p lie far from any sum of probabilities, so rounding
never decides which tokens stay.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from random import Random
from typing import Any

from tracellm.lab.checks import Check, Failure

__all__ = ["CHECKS"]

_TOLERANCE = 1e-4
_MOST_SIGMAS = 6.0
"""Largest accepted deviation of a chi-square statistic, in standard deviations; one correct run in 10^9 has more."""


class _Rows(Check):
    """A batch of rows; smaller cases have one or two of them."""

    fields: tuple[str, ...]
    """Fields that a row may have."""

    def make(self, random: Random) -> Any:
        """See `Check`."""
        vocab_size = random.randint(6, 9)
        return {"rows": [self.row(random, vocab_size) for _ in range(random.randint(3, 5))]}

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """Return one row."""
        raise NotImplementedError

    def run(self, case: Any) -> Any:
        """See `Check`; a case or row with an unknown field raises `ValueError`."""
        _refuse_unknown("case", case, ("rows",))
        for number, row in enumerate(case["rows"]):
            _refuse_unknown(f"row {number}", row, self.fields)
        return self.run_rows(case["rows"])

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Execute the rows as one batch; return plain data."""
        raise NotImplementedError

    def shrink(self, case: Any) -> Iterator[Any]:
        """Yield single rows, then pairs."""
        rows = case["rows"]
        for size in (1, 2):
            if size < len(rows):
                for chosen in combinations(rows, size):
                    yield case | {"rows": list(chosen)}


def _refuse_unknown(what: str, given: dict[str, Any], fields: Sequence[str]) -> None:
    """Raise `ValueError` if a dict of a case has a field that the check does not have."""
    if unknown := [name for name in given if name not in fields]:
        raise ValueError(f"{what} has the unknown field {', '.join(unknown)}; its fields are {', '.join(fields)}")


def _logits(random: Random, vocab_size: int, most: int = 3) -> list[float]:
    """Return distinct logits, at least 0.05 apart, of at most this size."""
    return [number / 20 for number in random.sample(range(-20 * most, 20 * most + 1), vocab_size)]


def _tensor(rows: Sequence[dict[str, Any]], name: str, dtype: str = "float32") -> Any:
    import torch

    return torch.tensor([row[name] for row in rows], dtype=getattr(torch, dtype))


def _plain(result: Any, function: str, *shape: int) -> Any:
    """Return a tensor as lists.

    Raises:
        TypeError: the result is no tensor.
        ValueError: it has another shape.
    """
    import torch

    if not isinstance(result, torch.Tensor):
        raise TypeError(f"{function} returned {type(result).__name__}, not a tensor")
    if result.shape != shape:
        raise ValueError(f"{function} returned shape {list(result.shape)}, not {list(shape)}")
    return result.tolist()


def _close(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _softmax(logits: Sequence[float]) -> list[float]:
    largest = max(logits)
    weights = [math.exp(logit - largest) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def _say(tokens: Sequence[int], zh: bool = False) -> str:
    if not tokens:
        return "无" if zh else "none"
    return ("、" if zh else ", ").join(map(str, tokens))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# -- penalties --------------------------------------------------------------------------------------------------------
class _Penalties(_Rows):
    """Rows with a prompt and an output, some of whose tokens occur several times; one logit may be masked."""

    fields = ("logits", "prompt", "output", "repetition", "frequency", "presence")
    repetition: Sequence[float] = (1.0,)
    frequency: Sequence[float] = (0.0,)
    presence: Sequence[float] = (0.0,)

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """See `_Rows`."""
        logits = _logits(random, vocab_size)
        masked = random.randrange(vocab_size) if random.random() < 0.3 else None
        tokens = random.sample(range(vocab_size), vocab_size - 2)  # two tokens are never used
        prompt, output = tokens[: len(tokens) // 2 + 1], tokens[len(tokens) // 2 :]  # one token is in both
        return {
            "logits": [-math.inf if token == masked else logit for token, logit in enumerate(logits)],
            "prompt": random.choices(prompt, k=random.randint(1, 5)),
            "output": random.choices(output, k=random.choice((0, 2, 5, 6))),
            "repetition": random.choice(self.repetition),
            "frequency": random.choice(self.frequency),
            "presence": random.choice(self.presence),
        }

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return the logits after `apply_all_penalties`."""
        import torch

        from tracellm.engine.sample.ops import apply_all_penalties

        vocab_size, longest = len(rows[0]["logits"]), max(len(row["prompt"]) for row in rows)
        padded = [row["prompt"] + [vocab_size] * (longest - len(row["prompt"])) for row in rows]
        result = apply_all_penalties(
            _tensor(rows, "logits"),
            torch.tensor(padded, dtype=torch.int64).reshape(len(rows), longest),
            _tensor(rows, "presence"),
            _tensor(rows, "frequency"),
            _tensor(rows, "repetition"),
            [list(row["output"]) for row in rows],
        )
        return _plain(result, "apply_all_penalties", len(rows), vocab_size)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe the first logit that differs."""
        for number, row in enumerate(case["rows"]):
            for token, (logit, got, right) in enumerate(
                zip(row["logits"], output[number], expected[number], strict=True)
            ):
                if not _close(got, right):
                    prompt, written = row["prompt"].count(token), row["output"].count(token)
                    return Failure(
                        f"row {number}, token {token} ({_times(prompt)} in the prompt, {_times(written)} in the "
                        f"output): logit {logit:g} became {got:.4g}, expected {right:.4g}; penalties of the row: "
                        f"repetition {row['repetition']:g}, frequency {row['frequency']:g}, presence "
                        f"{row['presence']:g}",
                        f"第 {number} 行，token {token}（提示词中 {prompt} 次，输出中 {written} 次）：logit {logit:g} "
                        f"变成了 {got:.4g}，应为 {right:.4g}；该行的惩罚：repetition {row['repetition']:g}，frequency "
                        f"{row['frequency']:g}，presence {row['presence']:g}",
                    )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Yield fewer rows, then fewer tokens of a single row."""
        yield from super().shrink(case)
        if len(case["rows"]) == 1:
            (row,) = case["rows"]
            for name in ("output", "prompt"):
                for index in range(len(row[name])):
                    yield {"rows": [row | {name: row[name][:index] + row[name][index + 1 :]}]}


class RepetitionPenaltyWeakensUsedTokens(_Penalties):
    """The repetition penalty lowers the logits of tokens in prompt or output, positive or negative, once each."""

    zh = "repetition 惩罚降低提示词或输出中出现过的 token 的 logit，无论正负，每个 token 一次。"
    repetition = (1.0, 1.25, 1.5, 2.0)


class FrequencyAndPresenceCountTheOutput(_Penalties):
    """After repetition, the frequency penalty is subtracted for each occurrence in the output, presence once."""

    zh = "在 repetition 之后，frequency 惩罚按在输出中出现的次数扣减，presence 惩罚只扣一次。"
    cases = 8
    repetition = (0.8, 1.0, 1.0, 1.5)
    frequency = (0.0, 0.25, 0.5, 1.0, -0.5)
    presence = (0.0, 0.3, 1.5, -0.4)


# -- temperature ------------------------------------------------------------------------------------------------------
class TemperatureDividesTheLogits(_Rows):
    """Logits are divided by the temperature of their row; a row of temperature 0 stays as it is."""

    zh = "logits 除以本行的温度；温度为 0 的行保持不变。"
    cases = 4
    fields = ("logits", "temperature")

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """See `_Rows`."""
        return {
            "logits": _logits(random, vocab_size),
            "temperature": random.choice((0.0, 0.0, 0.25, 0.7, 1.0, 1.6, 2.0)),
        }

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return the logits after `apply_temperature`."""
        sampler, logits = _sampler(), _tensor(rows, "logits")
        return _plain(
            sampler.apply_temperature(logits, _tensor(rows, "temperature")), "apply_temperature", *logits.shape
        )

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe the first logit that differs."""
        for number, row in enumerate(case["rows"]):
            for token, (got, right) in enumerate(zip(output[number], expected[number], strict=True)):
                if not _close(got, right):
                    logit, temperature = row["logits"][token], row["temperature"]
                    return Failure(
                        f"row {number}, token {token}: logit {logit:g} at temperature {temperature:g} became "
                        f"{got:.4g}, expected {right:.4g}",
                        f"第 {number} 行，token {token}：logit {logit:g} 在温度 {temperature:g} 下变成了 {got:.4g}，"
                        f"应为 {right:.4g}",
                    )
        return None


# -- min-p, top-k, top-p ----------------------------------------------------------------------------------------------
class _Masks(_Rows):
    """Rows in which some tokens stay, and the others become minus infinity."""

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe the first row that keeps other tokens, or changes a logit that stays."""
        for number, (row, got, right) in enumerate(zip(case["rows"], output, expected, strict=True)):
            if failure := self._compare(row, got, right):
                rule = ", ".join(f"{name} {row[name]:g}" for name in ("min_p", "top_k", "top_p") if name in row)
                return Failure(f"row {number} ({rule}), {failure.en}", f"第 {number} 行（{rule}），{failure.zh}")
        return None

    def _compare(self, row: dict[str, Any], got: list[float], right: list[float]) -> Failure | None:
        logits = row["logits"]
        order = sorted(range(len(logits)), key=lambda token: -logits[token])
        kept, stay = ([token for token in order if row[token] != -math.inf] for row in (got, right))
        if kept != stay:
            when, when_zh = "probabilities", "概率"
            if "top_k" in row and row.get("top_p", 1.0) < 1:  # top-p works on what top-k leaves
                logits = [logit if logit >= logits[order[row["top_k"] - 1]] else -math.inf for logit in logits]
                when, when_zh = "probabilities after top-k", "top-k 之后的概率"
            probs = _softmax(logits)
            shown = ", ".join(f"{token}: {probs[token]:.3f}" for token in order if probs[token])
            return Failure(
                f"kept: {_say(kept)}; expected: {_say(stay)} ({when} {shown})",
                f"留下：{_say(kept, zh=True)}；应为：{_say(stay, zh=True)}（{when_zh} {shown}）",
            )
        for token in stay:
            if not _close(got[token], logits[token]):
                return Failure(
                    f"token {token} stays, but its logit {logits[token]:g} became {got[token]:.4g}",
                    f"token {token} 留下了，但其 logit {logits[token]:g} 变成了 {got[token]:.4g}",
                )
        return None


class MinPIsAShareOfTheMaximum(_Masks):
    """Min-p drops the tokens whose probability is below this share of the largest probability."""

    zh = "min-p 去掉概率低于最大概率乘以该比例的 token。"
    fields = ("logits", "min_p")

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """See `_Rows`."""
        logits = _logits(random, vocab_size)
        shares = sorted(math.exp(logit - max(logits)) for logit in logits)
        index = random.randrange(vocab_size - 1)
        between = round(math.sqrt(shares[index] * shares[index + 1]), 8)
        return {"logits": logits, "min_p": random.choice((0.0, 1.0, between, between, between))}

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return the logits after `MinPLogitsProcessor.apply`."""
        import torch

        from tracellm.engine.sample.logits_processor import MinPLogitsProcessor

        logits = _tensor(rows, "logits")
        processor = MinPLogitsProcessor(len(rows), logits.shape[1], torch.device("cpu"))
        processor.min_p = _tensor(rows, "min_p")[:, None]
        return _plain(processor.apply(logits), "MinPLogitsProcessor.apply", len(rows), logits.shape[1])


class _TopKTopP(_Masks):
    """Rows for `apply_top_k_top_p`: all of them have `top_k`, or none; and so with `top_p`."""

    fields = ("logits", "top_k", "top_p")

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return the logits after `apply_top_k_top_p`, and the given ones after the call."""
        from tracellm.engine.sample.ops import apply_top_k_top_p

        logits = _tensor(rows, "logits")
        top_k = _tensor(rows, "top_k", "int64") if "top_k" in rows[0] else None
        top_p = _tensor(rows, "top_p") if "top_p" in rows[0] else None
        masked = _plain(apply_top_k_top_p(logits, top_k, top_p), "apply_top_k_top_p", *logits.shape)
        return {"masked": masked, "given": logits.tolist()}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a changed input, or see `_Masks`."""
        function = "apply_top_k_top_p" if "top_p" in case["rows"][0] else "apply_top_k_only"
        for number, (row, given) in enumerate(zip(case["rows"], output["given"], strict=True)):
            if not all(map(_close, given, row["logits"])):
                now = [round(one, 3) for one in given]
                return Failure(
                    f"row {number}: {function} changed the given logits, {row['logits']}, to {now}; they must not be "
                    "modified",
                    f"第 {number} 行：{function} 把传入的 logits {row['logits']} 改成了 {now}；不得修改它们",
                )
        return super().judge(case, output["masked"], expected["masked"])


class TopKKeepsTheLargest(_TopKTopP):
    """Top-k keeps the k largest logits, and all that are equal to the k-th."""

    zh = "top-k 保留最大的 k 个 logit，以及与第 k 个相等的所有 logit。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`. `top_p` of 1 keeps all tokens, but takes another way through the functions."""
        case = super().make(random)
        if random.random() < 0.5:
            for row in case["rows"]:
                row["top_p"] = 1.0
        return case

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """See `_Rows`."""
        logits = _logits(random, vocab_size)
        if random.random() < 0.5:
            one, other = random.sample(range(vocab_size), 2)
            logits[one] = logits[other]
        return {"logits": logits, "top_k": random.choice((1, 2, 3, random.randint(2, vocab_size), vocab_size))}


class TopPKeepsTheFewestThatReachP(_TopKTopP):
    """Top-p keeps the fewest most likely tokens that reach p, among those that top-k leaves; at least one."""

    zh = "在 top-k 留下的 token 中，top-p 保留按概率从高到低、累积概率达到 p 所需的最少 token，至少一个。"
    cases = 8

    def make(self, random: Random) -> Any:
        """See `Check`. Half of the cases have top-k too."""
        case = super().make(random)
        if random.random() < 0.5:
            for row in case["rows"]:
                row["top_k"] = random.randint(2, len(row["logits"]) - 1)
                row["top_p"] = _top_p(random, sorted(row["logits"])[-row["top_k"] :])
        return case

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """See `_Rows`."""
        logits = _logits(random, vocab_size)
        return {"logits": logits, "top_p": random.choice((1.0, 1e-9, *[_top_p(random, logits) for _ in range(4)]))}


def _top_p(random: Random, logits: Sequence[float]) -> float:
    """Return a p somewhat below a sum of the largest probabilities, so that a smaller sum would not reach it."""
    probs = sorted(_softmax(logits), reverse=True)
    count = random.randint(1, max(1, len(probs) - 1))
    return round(sum(probs[: count - 1]) + random.uniform(0.4, 0.95) * probs[count - 1], 8)


# -- the sampler ------------------------------------------------------------------------------------------------------
_NEUTRAL = {"temperature": 1.0, "top_k": None, "top_p": 1.0, "min_p": 0.0, "seed": None}


def _sampler(logprobs_mode: str = "raw_logprobs") -> Any:
    """Return a sampler whose shared generator has a fixed seed."""
    import torch

    from tracellm.engine.sample.sampler import Sampler

    return Sampler(torch.Generator().manual_seed(0), logprobs_mode)


def _metadata(rows: Sequence[dict[str, Any]], max_num_logprobs: int | None = None) -> Any:
    """Return the metadata of the rows, as the engine's input batch makes it."""
    import torch

    from tracellm.engine.sample.logits_processor import BatchUpdate, LogitsProcessors
    from tracellm.engine.sample.metadata import SamplingMetadata
    from tracellm.engine.sample.sampling_params import SamplingParams

    rows = [_NEUTRAL | row for row in rows]
    vocab_size = len(rows[0]["logits"])
    processors = LogitsProcessors(len(rows), vocab_size, torch.device("cpu"))
    params = {min_p: SamplingParams(min_p=min_p) for min_p in {row["min_p"] for row in rows}}
    added: list[tuple[int, SamplingParams, list[int]]] = [
        (number, params[row["min_p"]], []) for number, row in enumerate(rows)
    ]
    processors.update_state(BatchUpdate(len(rows), [], added))
    penalties = any(row.get("repetition", 1) != 1 for row in rows)
    width = max((len(row["prompt"]) for row in rows), default=0) if penalties else 0
    padded = [row["prompt"] + [vocab_size] * (width - len(row["prompt"])) for row in rows] if penalties else None
    return SamplingMetadata(
        temperature=_tensor(rows, "temperature") if any(row["temperature"] for row in rows) else None,
        all_random=all(row["temperature"] for row in rows),
        top_p=_tensor(rows, "top_p") if any(row["top_p"] < 1 for row in rows) else None,
        top_k=torch.tensor([row["top_k"] or vocab_size for row in rows]) if any(row["top_k"] for row in rows) else None,
        generators={
            number: torch.Generator().manual_seed(row["seed"])
            for number, row in enumerate(rows)
            if row["seed"] is not None and row["temperature"]
        },
        max_num_logprobs=max_num_logprobs,
        prompt_token_ids=None if padded is None else torch.tensor(padded, dtype=torch.int64),
        frequency_penalties=_tensor(rows, "frequency") if penalties else None,
        presence_penalties=_tensor(rows, "presence") if penalties else None,
        repetition_penalties=_tensor(rows, "repetition") if penalties else None,
        output_token_ids=[list(row.get("output", [])) for row in rows],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=processors,
    )


def _probabilities(rows: Sequence[dict[str, Any]]) -> list[list[float]]:
    """Return the probabilities that the sampler draws from, row by row."""
    vocab_size = len(rows[0]["logits"])
    output = _sampler("processed_logits")(_tensor(rows, "logits"), _metadata(rows, vocab_size))
    ids, logits = output.logprobs_tensors.logprob_token_ids, output.logprobs_tensors.logprobs
    found = []
    for row_ids, row_logits in zip(ids.tolist(), logits.tolist(), strict=True):
        by_token = dict(zip(row_ids[1:], row_logits[1:], strict=True))
        found.append(_softmax([by_token[token] for token in range(vocab_size)]))
    return found


def _parameters(random: Random, logits: list[float]) -> dict[str, Any]:
    """Return temperature, min-p, top-k and top-p such that each of the three may drop tokens."""
    temperature = random.choice((0.5, 0.8, 1.0, 1.5))
    scaled = [logit / temperature for logit in logits]
    kept = sorted(scaled, reverse=True)
    min_p, top_k = 0.0, None
    if random.random() < 0.5:
        count = random.randint(2, len(kept) // 2 + 1)
        min_p = round(math.exp((kept[count - 1] + kept[count]) / 2 - kept[0]), 8)
        kept = kept[:count]
    if random.random() < 0.5:
        top_k = random.randint(2, len(logits) - 1)
        kept = kept[:top_k]
    top_p = _top_p(random, kept) if random.random() < 0.7 else 1.0
    return {"temperature": temperature, "min_p": min_p, "top_k": top_k, "top_p": top_p}


class RowsOfABatchAreIndependent(_Rows):
    """In a batch of greedy and random rows, each has its own parameters, and a greedy row its largest logit."""

    zh = "在贪心行与随机行混合的批次中，每行使用自己的参数；贪心行取 logit 最大的 token。"
    cases = 6
    fields = (*_Penalties.fields, *_NEUTRAL)

    def make(self, random: Random) -> Any:
        """See `Check`. Without penalties, the sampler works on the model's logits instead of a copy."""
        vocab_size, penalties = random.randint(6, 9), random.random() < 0.6
        return {"rows": [self._row(random, vocab_size, penalties) for _ in range(random.randint(3, 5))]}

    def _row(self, random: Random, vocab_size: int, penalties: bool) -> dict[str, Any]:
        row = FrequencyAndPresenceCountTheOutput().row(random, vocab_size)
        row["repetition"], row["frequency"], row["presence"] = (1.5, 0.5, 0.4) if penalties else (1.0, 0.0, 0.0)
        row["logits"] = _logits(random, vocab_size, most=2)
        while _smallest_gap(after := _penalized(row)) < 0.01:
            row["logits"] = _logits(random, vocab_size, most=2)
        if random.random() < 0.4:
            return row | {"temperature": 0.0}
        return row | _parameters(random, after) | {"seed": random.choice((None, random.getrandbits(32)))}

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return the tokens of some draws and of an all-greedy batch, the probabilities, and the logits afterwards."""
        logits, vocab_size = _tensor(rows, "logits"), len(rows[0]["logits"])
        sampler, metadata = _sampler(), _metadata(rows)
        tokens = [sampler(logits, metadata).sampled_token_ids for _ in range(8)]
        all_greedy = sampler(logits, _metadata([row | {"temperature": 0.0} for row in rows])).sampled_token_ids
        return {
            "tokens": [[one for (one,) in _plain(drawn, "Sampler.forward", len(rows), 1)] for drawn in tokens],
            "all_greedy": [one for (one,) in _plain(all_greedy, "Sampler.forward", len(rows), 1)],
            "probabilities": _probabilities(rows),
            "logits": _plain(logits, "", len(rows), vocab_size),
        }

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a changed input, a wrong token or a wrong probability."""
        for number, row in enumerate(case["rows"]):
            if not all(map(_close, output["logits"][number], row["logits"])):
                return Failure(
                    f"row {number}: the sampler changed the model's logits, {row['logits']}, to "
                    f"{[round(one, 3) for one in output['logits'][number]]}; they must not be modified",
                    f"第 {number} 行：采样器把模型的 logits {row['logits']} 改成了 "
                    f"{[round(one, 3) for one in output['logits'][number]]}；不得修改它们",
                )
            failure = self._judge_row(row, [drawn[number] for drawn in output["tokens"]], number, output, expected)
            if failure:
                return Failure(f"row {number}, {failure.en}", f"第 {number} 行，{failure.zh}")
            if (got := output["all_greedy"][number]) != (right := expected["all_greedy"][number]):
                return Failure(
                    f"row {number}, in a batch of greedy rows only: token {got} was picked; {right} has the largest "
                    "logit after the penalties",
                    f"第 {number} 行，在全为贪心行的批次中：取了 token {got}；惩罚之后 logit 最大的是 {right}",
                )
        return None

    def _judge_row(
        self, row: dict[str, Any], tokens: list[int], number: int, output: Any, expected: Any
    ) -> Failure | None:
        if not row["temperature"]:
            right = expected["tokens"][0][number]
            wrong = [token for token in tokens if token != right]
            if not wrong:
                return None
            return Failure(
                f"greedy: token {wrong[0]} was picked; {right} has the largest logit after the penalties",
                f"贪心：取了 token {wrong[0]}；惩罚之后 logit 最大的是 {right}",
            )
        probs, right_probs = output["probabilities"][number], expected["probabilities"][number]
        en = ", ".join(f"{name} {row[name]:g}" for name in ("temperature", "min_p", "top_k", "top_p") if row[name])
        for token, (prob, right_prob) in enumerate(zip(probs, right_probs, strict=True)):
            if not _close(prob, right_prob):
                return Failure(
                    f"{en}: in the logits that `sample` returned, token {token} has probability {prob:.4f}, expected "
                    f"{right_prob:.4f}",
                    f"{en}：在 `sample` 返回的 logits 中，token {token} 的概率为 {prob:.4f}，应为 {right_prob:.4f}",
                )
        for token in tokens:
            if not right_probs[token]:
                return Failure(
                    f"{en}: token {token} was drawn, whose probability is 0",
                    f"{en}：抽到了概率为 0 的 token {token}",
                )
        return None


def _penalized(row: dict[str, Any]) -> list[float]:
    """Return a row's logits after the engine's penalties; only called where cases are made."""
    found: list[list[float]] = FrequencyAndPresenceCountTheOutput().run({"rows": [row]})
    return found[0]


def _smallest_gap(logits: list[float]) -> float:
    ascending = sorted(logits)
    return min(high - low for low, high in pairwise(ascending))


# -- the draw ---------------------------------------------------------------------------------------------------------
class SeededRowsDrawAlone(_Rows):
    """A row with a seed draws the same tokens whatever its neighbours and its place in the batch."""

    zh = "有种子的行无论相邻的行和自己的位置如何，都抽到相同的 token。"
    cases = 4
    fields = ("probs", "seed")
    uses_reference = False
    draws = 16

    def make(self, random: Random) -> Any:
        """See `Check`. Two rows have a seed, two have none."""
        vocab_size = random.randint(8, 12)
        seeds = [random.getrandbits(32), random.getrandbits(32), None, None]
        random.shuffle(seeds)
        return {"rows": [{"probs": self._probs(random, vocab_size), "seed": seed} for seed in seeds]}

    def _probs(self, random: Random, vocab_size: int) -> list[float]:
        """Return similar probabilities for most tokens, and 0 for one."""
        weights = [random.randint(8, 12) for _ in range(vocab_size)]
        weights[random.randrange(vocab_size)] = 0
        return [weight / sum(weights) for weight in weights]

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return the tokens of each row by draw: in the batch, in a batch in reverse order, and alone."""
        together, backwards = self._draw(rows), self._draw(rows[::-1])[::-1]
        alone = [self._draw([row])[0] for row in rows]
        return {"together": together, "backwards": backwards, "alone": alone}

    def _draw(self, rows: list[dict[str, Any]]) -> list[list[int]]:
        import torch

        from tracellm.engine.sample.ops import random_sample

        generators = {
            number: torch.Generator().manual_seed(row["seed"])
            for number, row in enumerate(rows)
            if row["seed"] is not None
        }
        shared, probs = torch.Generator().manual_seed(1), _tensor(rows, "probs")
        drawn = [
            _plain(random_sample(probs.clone(), generators, shared), "random_sample", len(rows))
            for _ in range(self.draws)
        ]
        return [list(tokens) for tokens in zip(*drawn, strict=True)]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the batches, and look for rows that repeat themselves or each other."""
        rows, together = case["rows"], output["together"]
        for number, row in enumerate(rows):
            tokens = together[number]
            if wrong := [token for token in tokens if not row["probs"][token]]:
                return Failure(
                    f"row {number}: token {wrong[0]} was drawn, whose probability is 0",
                    f"第 {number} 行：抽到了概率为 0 的 token {wrong[0]}",
                )
            if len(set(tokens)) == 1:
                return Failure(
                    f"row {number}: {len(tokens)} draws gave token {tokens[0]} each time, of probability "
                    f"{row['probs'][tokens[0]]:.2f}",
                    f"第 {number} 行：{len(tokens)} 次抽样每次都得到 token {tokens[0]}，而其概率为 "
                    f"{row['probs'][tokens[0]]:.2f}",
                )
            for where, en, zh in (
                ("alone", "alone in a batch", "单独成批时"),
                ("backwards", "in the batch in reverse order", "在顺序颠倒的批次中"),
            ):
                if row["seed"] is not None and tokens != output[where][number]:
                    return Failure(
                        f"row {number}, seed {row['seed']}: it draws {tokens}, but {output[where][number]} {en}",
                        f"第 {number} 行，种子 {row['seed']}：抽到 {tokens}，{zh}却抽到 {output[where][number]}",
                    )
        for one, other in combinations(range(len(rows)), 2):
            if together[one] == together[other]:
                return Failure(
                    f"rows {one} and {other} draw the same tokens, {together[one]}: they share their random numbers",
                    f"第 {one} 行和第 {other} 行抽到相同的 token {together[one]}：它们共用了随机数",
                )
        return None


class SamplerUsesItsGenerators(_Rows):
    """The sampler draws rows without a seed from its own generator, and the others from that of their row."""

    zh = "采样器用自己的随机数生成器抽取没有种子的行，用各行的生成器抽取有种子的行。"
    cases = 3
    fields = ("logits", "seed")
    uses_reference = False
    draws = 24

    def row(self, random: Random, vocab_size: int) -> dict[str, Any]:
        """See `_Rows`."""
        return {"logits": _logits(random, vocab_size, most=1), "seed": random.choice((None, random.getrandbits(32)))}

    def run_rows(self, rows: list[dict[str, Any]]) -> Any:
        """Return each row's tokens: as they are, with PyTorch's generator at another seed, and the sampler's."""
        import torch

        tokens = {}
        for name, own, torchs in (("first", 0, 1), ("again", 0, 2), ("other", 3, 1)):
            torch.manual_seed(torchs)
            tokens[name] = self._draw(rows, own)
        return tokens

    def _draw(self, rows: list[dict[str, Any]], own_seed: int) -> list[list[int]]:
        sampler, metadata, logits = _sampler(), _metadata(rows), _tensor(rows, "logits")
        sampler.generator.manual_seed(own_seed)
        drawn = [
            _plain(sampler(logits.clone(), metadata).sampled_token_ids, "Sampler.forward", len(rows), 1)
            for _ in range(self.draws)
        ]
        return [[token for (token,) in tokens] for tokens in zip(*drawn, strict=True)]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a row that depends on another generator, or not on its own."""
        for number, row in enumerate(case["rows"]):
            first, again, other = (output[name][number] for name in ("first", "again", "other"))
            seed = "no seed" if row["seed"] is None else f"seed {row['seed']}"
            seed_zh = "没有种子" if row["seed"] is None else f"种子 {row['seed']}"
            if first != again:
                return Failure(
                    f"row {number}, {seed}: its tokens change with `torch.manual_seed`: they are drawn from PyTorch's "
                    "global generator",
                    f"第 {number} 行，{seed_zh}：其 token 随 `torch.manual_seed` 改变：用的是 PyTorch 的全局生成器",
                )
            if row["seed"] is not None and first != other:
                return Failure(
                    f"row {number}, {seed}: its tokens change with the seed of `Sampler.generator`, and must depend on "
                    "the row's own generator alone",
                    f"第 {number} 行，{seed_zh}：其 token 随 `Sampler.generator` 的种子改变，应只取决于该行的生成器",
                )
            if row["seed"] is None and first == other:
                return Failure(
                    f"row {number}, {seed}: its tokens do not change with the seed of `Sampler.generator`",
                    f"第 {number} 行，{seed_zh}：其 token 不随 `Sampler.generator` 的种子改变",
                )
        return None


class DrawsFollowTheProbabilities(Check):
    """Each token gets the share of thousands of draws that its probability promises."""

    zh = "在数千次抽样中，每个 token 所占的份额符合其概率。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Draws come from `random_sample` alone, or from the sampler beside a greedy row."""
        seed = random.choice((None, random.getrandbits(31)))
        if random.random() < 0.5:
            weights = [random.randint(1, 12) for _ in range(random.randint(4, 7))]
            return {"probs": [weight / sum(weights) for weight in weights], "seed": seed, "draws": 6000}
        logits = _logits(random, random.randint(5, 8), most=1)
        return {"row": {"logits": logits, **_parameters(random, logits)}, "seed": seed, "draws": 2000}

    def run(self, case: Any) -> Any:
        """Return the number of draws of each token. With a seed, each of some rows has its own, and draws often."""
        _refuse_unknown("case", case, ("row" if "row" in case else "probs", "seed", "draws"))
        _refuse_unknown("row", case.get("row", {}), ("logits", "temperature", "min_p", "top_k", "top_p"))
        num_rows = case["draws"] if case["seed"] is None else 200
        draw = self._of_sampler if "row" in case else self._of_probabilities
        counts: Counter[int] = Counter()
        for tokens in draw(case, num_rows, case["draws"] // num_rows):
            counts.update(tokens)
        vocab_size = len(case["row"]["logits"] if "row" in case else case["probs"])
        return [counts[token] for token in range(vocab_size)]

    def _of_probabilities(self, case: Any, num_rows: int, times: int) -> Iterator[list[int]]:
        import torch

        from tracellm.engine.sample.ops import random_sample

        generators, shared = {}, torch.Generator().manual_seed(2)
        if case["seed"] is not None:
            generators = {row: torch.Generator().manual_seed(case["seed"] + row) for row in range(num_rows)}
        probs = torch.tensor([case["probs"]] * num_rows)
        for _ in range(times):
            yield _plain(random_sample(probs.clone(), generators, shared), "random_sample", num_rows)

    def _of_sampler(self, case: Any, num_rows: int, times: int) -> Iterator[list[int]]:
        seeds = [None if case["seed"] is None else case["seed"] + row for row in range(num_rows)]
        rows = [case["row"] | {"temperature": 0.0}, *(case["row"] | {"seed": seed} for seed in seeds)]
        sampler, metadata, logits = _sampler(), _metadata(rows), _tensor(rows, "logits")
        for _ in range(times):
            drawn = _plain(sampler(logits.clone(), metadata).sampled_token_ids, "Sampler.forward", len(rows), 1)
            yield [token for (token,) in drawn[1:]]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compute the chi-square statistic of the counts; the probabilities are the engine's."""
        probs = _probabilities([case["row"]])[0] if "row" in case else case["probs"]
        for token, (count, prob) in enumerate(zip(output, probs, strict=True)):
            if count and not prob:
                return self._failure(case, token, count, prob)
        right = {token: case["draws"] * prob for token, prob in enumerate(probs) if prob}
        deviations = {token: (output[token] - count) ** 2 / count for token, count in right.items()}
        if _sigmas(sum(deviations.values()), len(right) - 1) <= _MOST_SIGMAS:
            return None
        worst = max(right, key=lambda token: deviations[token])
        return self._failure(case, worst, output[worst], probs[worst])

    def _failure(self, case: Any, token: int, count: int, prob: float) -> Failure:
        row = case.get("row", {})
        rules = [f"{name} {row[name]:g}" for name in ("temperature", "min_p", "top_k", "top_p") if row.get(name)]
        en, zh = ", ".join(["random rows", *rules]), "，".join(["随机行", *rules])
        if case["seed"] is not None:
            en, zh = f"{en}, a seed each", f"{zh}，各有种子"
        draws, right = case["draws"], case["draws"] * prob
        return Failure(
            f"{en}: of {draws} draws, token {token} got {count}; its probability is {prob:.4f}, so about {right:.0f} "
            "are expected",
            f"{zh}：{draws} 次抽样中，token {token} 出现 {count} 次；其概率为 {prob:.4f}，应约为 {right:.0f} 次",
        )


def _sigmas(chi_square: float, degrees: int) -> float:
    """Return the deviation of a chi-square statistic in standard deviations (Wilson and Hilferty, 1931)."""
    if degrees == 0:
        return 0.0
    width = 2 / (9 * degrees)
    return ((chi_square / degrees) ** (1 / 3) - (1 - width)) / math.sqrt(width)


CHECKS: tuple[Check, ...] = (
    RepetitionPenaltyWeakensUsedTokens(),
    FrequencyAndPresenceCountTheOutput(),
    TemperatureDividesTheLogits(),
    MinPIsAShareOfTheMaximum(),
    TopKKeepsTheLargest(),
    TopPKeepsTheFewestThatReachP(),
    RowsOfABatchAreIndependent(),
    SeededRowsDrawAlone(),
    SamplerUsesItsGenerators(),
    DrawsFollowTheProbabilities(),
)

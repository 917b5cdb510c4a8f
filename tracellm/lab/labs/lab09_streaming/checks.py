"""Checks of lab 9: streams of tokens, whose pieces are compared with the text that all tokens give at once.

A case has the tokens of a prompt and of an output, the number of tokens per step, and the request's parameters. Its
tokens spell UTF-8 texts that are split at any byte (streams.py).
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from random import Random
from typing import Any

from tracellm.lab.checks import Check, Failure
from tracellm.lab.labs.lab09_streaming.streams import decode, make_case, run_stream, split, steps_of, vocabulary_of

__all__ = ["CHECKS"]

_TEXTS = (
    "a naïve café, déjà vu",
    "你好，世界！今天天气很好。",
    "Привет, как дела?",
    "こんにちは、世界。",
    "안녕하세요 세계",
    "नमस्ते दुनिया",
    "שלום עולם",
    "a 👍🏽 and a 👋🏿!",
    "one 👨‍👩‍👧‍👦 family",
    "🏳️‍🌈 flags 🇪🇺🇨🇳",
    "x = √2 ≈ 1.41 € 𝄞",
)

_WORDS = (
    "the sun",
    "a 👍🏽",
    "你好",
    " café",
    " and",
    " 👩‍🚀",
    " stop",
    "。",
    " END",
    "\n\n",
    " ok",
    " été",
    " на",
    "!",
)

_HALF = "\ufffd"
"""Replacement character: bytes that are no whole character."""


def _prompt(random: Random, name: str = "bytes") -> list[int]:
    return split(random, random.choice(("the cat", "a sun", "the cat sat and sat")), name)


def _new_text(case: Mapping[str, Any], count: int) -> str:
    """Return the text of the first `count` tokens, decoded at once behind the prompt."""
    before = decode(case, case["prompt"]).rstrip(_HALF)
    return decode(case, case["prompt"] + case["tokens"][:count])[len(before) :]


def _expected(case: Mapping[str, Any]) -> tuple[list[str], str | None, str]:
    """Return the text after each step, the stop string that ends the stream, and the final text."""
    params, count = case["params"], len(case["tokens"])
    include = params.get("include_stop_str_in_output", False)
    stop, least = params.get("stop", []), params.get("min_tokens", 0)
    texts, old = [], 0
    for start, end in steps_of(case):
        without = end == count and case["stop_token"] and not include
        if start < least:
            old = len(_new_text(case, min(least, end)).rstrip(_HALF))
        text = _new_text(case, end - without)
        texts.append(text)
        if end > least:
            for string in stop:
                index = text.find(string, max(0, old - len(string) + 1))
                if index >= 0:
                    return texts, string, text[: index + len(string) * include]
        old = len(text.rstrip(_HALF))
    return texts, None, texts[-1]


def _judge_stream(case: Mapping[str, Any], output: Mapping[str, Any]) -> Failure | None:
    """Return the first step in which the shown text is wrong."""
    texts, found, final = _expected(case)
    params, shown = case["params"], output["shown"]
    held = 0
    if params.get("stop") and not params.get("include_stop_str_in_output"):
        held = max(map(len, params["stop"])) - 1
    before = ""
    for number, (now, text) in enumerate(zip(shown, texts, strict=False), start=1):
        last = number == len(shown)
        if not now.startswith(before):
            return _at(
                number,
                case,
                f"{now!r} is shown, and before it was {before!r}: shown text changed",
                f"显示 {now!r}，而之前是 {before!r}：已显示的文本变了",
            )
        if now.endswith(_HALF) and not last:
            return _at(number, case, f"{now!r} ends in half a character", f"{now!r} 以半个字符结尾")
        if not last and not final.startswith(now):
            return _at(
                number,
                case,
                f"{now!r} is shown; the text of the stream is {final!r}",
                f"显示了 {now!r}；整个流的文本是 {final!r}",
            )
        if not last and not text.endswith(_HALF) and len(now) < len(text) - held:
            most = f", of which {held} characters at most may be held back" if held else ""
            most_zh = f"，其中最多可保留 {held} 个字符" if held else ""
            return _at(
                number,
                case,
                f"{now!r} is shown; the tokens so far give {text!r}{most}",
                f"显示了 {now!r}；到此为止的 token 给出 {text!r}{most_zh}",
            )
        before = now
    return _judge_end(case, output, texts, found, final)


def _judge_end(
    case: Mapping[str, Any], output: Mapping[str, Any], texts: list[str], found: str | None, final: str
) -> Failure | None:
    number, stops = len(output["shown"]), case["params"].get("stop", [])
    if output["found"] != found or number != len(texts):
        one, other = _stop_says(output["found"], number), _stop_says(found, len(texts))
        return _at(
            number,
            case,
            f"{one.en}; expected: {other.en} (stop={stops!r}, text {texts[-1]!r})",
            f"{one.zh}；应为：{other.zh}（stop={stops!r}，文本 {texts[-1]!r}）",
        )
    if output["shown"][-1] != final:
        why, why_zh = (
            (f", ended by the stop string {found!r}", f"（由停止字符串 {found!r} 结束）") if found else ("", "")
        )
        return _at(
            number,
            case,
            f"the text at the end is {output['shown'][-1]!r}, expected {final!r}{why}",
            f"最后的文本是 {output['shown'][-1]!r}，应为 {final!r}{why_zh}",
        )
    came, kept = steps_of(case)[number - 1][1], output["num_tokens"]
    if kept != came:
        return _at(
            number,
            case,
            f"output_token_ids has {kept} tokens, {came} came",
            f"output_token_ids 有 {kept} 个 token，实际到来 {came} 个",
        )
    return None


def _stop_says(found: str | None, number: int) -> Failure:
    if found is None:
        return Failure("no stop string is found", "没有找到停止字符串")
    return Failure(f"the stop string {found!r} is found in step {number}", f"在第 {number} 步找到停止字符串 {found!r}")


def _at(number: int, case: Mapping[str, Any], en: str, zh: str) -> Failure:
    start, end = steps_of(case)[number - 1] if number else (0, 0)
    names = {index: data for data, index in vocabulary_of(case["tokenizer"]).items()}
    parts = [repr(names.get(index, index)) for index in case["tokens"][start:end]]
    tokens = " ".join([*parts[:2], "…", *parts[-6:]] if len(parts) > 9 else parts)
    return Failure(f"step {number} (tokens {tokens}): {en}", f"第 {number} 步（token {tokens}）：{zh}")


class _Stream(Check):
    """A stream of tokens."""

    uses_reference = False

    def run(self, case: Any) -> Any:
        """Return the text shown after each step, and the stop string."""
        return run_stream(case)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with the text of all tokens at once."""
        return _judge_stream(case, output)

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out tokens at the end, as long as whole characters are left."""
        count = len(case["tokens"])
        for end in dict.fromkeys((count // 4, count // 2, count - 4, count - 3, count - 2, count - 1)):
            if 0 < end < count and not case["stop_token"] and not _new_text(case, end).endswith(_HALF):
                yield case | {"tokens": case["tokens"][:end]}


# -- the checks -------------------------------------------------------------------------------------------------------


class CharactersAppearWhole(_Stream):
    """A character appears with its last byte, wherever its bytes are split, and the pieces add up to the text."""

    zh = "无论字节怎样拆分，字符都随其最后一个字节出现；各片段拼起来就是完整文本。"
    cases = 8

    def make(self, random: Random) -> Any:
        """See `Check`."""
        tokens = split(random, " ".join(random.sample(_TEXTS, 2)), mixed=True)
        return make_case(random, _prompt(random), tokens, per_step=random.choice((1, 1, 1, 2, 3)))


class OutputContinuesThePrompt(_Stream):
    """The output continues the prompt: a space before its first word is kept, a character begun there is completed."""

    zh = "输出延续提示词：首个词前的空格保留，提示词中未完的字符得以补全。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        if random.random() < 0.4:
            output = random.choice((" cat and", " 你好 the sun", " the 👍🏽", " sun"))
            prompt = _prompt(random, "fallback")
            return make_case(random, prompt, split(random, output, "fallback"), tokenizer="fallback")
        text = random.choice(("你好，世界！", "안녕하세요", "नमस्ते", "👍🏽👋🏿👍🏽", "こんにちは")) * random.choice(
            (1, 3)
        )
        data = text.encode()
        cut = random.choice([index for index in range(len(data) - 14, len(data)) if data[index] & 0xC0 == 0x80])
        bytewise = vocabulary_of("bytes")
        prompt = [bytewise[data[index : index + 1]] for index in range(cut)]
        return make_case(random, prompt, split(random, data[cut:] + random.choice(("", " ok", "!")).encode()))


class BytesWithoutACharacterAreReplaced(_Stream):
    """Bytes that are no character become U+FFFD when later text shows it, or at the end; later text is not lost."""

    zh = "不构成字符的字节变为 U+FFFD：后续文本能够断定时，或在结尾处；后续文本不会丢失。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        name = random.choice(("bytes", "bytes", "fallback"))
        before, after = (
            random.choice(("the sun", "a 👍🏽", "你好")),
            random.choice(("and the cat", "a sun", "the sun.")),
        )
        if name == "fallback":
            tokens = split(random, before, name) + split(random, bytes([random.randint(0xF8, 0xFF)]), name)
            return make_case(random, _prompt(random, name), tokens + split(random, after, name), tokenizer=name)
        half = random.choice(("👍", "世", "é")).encode()[:-1]
        tokens = split(random, before.encode() + half, mixed=True)
        more = split(random, after) + split(random, half) if random.random() < 0.6 else []
        return make_case(random, _prompt(random), tokens + more)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """With byte fallback, the bytes may spoil those beside them, so only the text around them is compared."""
        names = {index: data for data, index in vocabulary_of(case["tokenizer"]).items()}
        parts = [names.get(index, b"") for index in case["tokens"]]
        wrong = next((index for index, data in enumerate(parts) if data >= b"\xf8"), None)
        if case["tokenizer"] == "bytes" or wrong is None:
            return _judge_stream(case, output)
        before, after = b"".join(parts[:wrong]).decode(), b"".join(parts[wrong + 1 :]).decode()
        shown = output["shown"]
        for number, now in enumerate(shown, start=1):
            if number == wrong and now != before:
                return _at(number, case, f"{now!r} is shown, expected {before!r}", f"显示 {now!r}，应为 {before!r}")
        if not shown[-1].startswith(before) or not shown[-1].endswith(after):
            return _at(
                len(shown),
                case,
                f"the text at the end is {shown[-1]!r}; it should begin with {before!r} and end with {after!r}, around "
                f"the invalid byte {parts[wrong]!r}",
                f"最后的文本是 {shown[-1]!r}；它应以 {before!r} 开头、以 {after!r} 结尾，中间是无效字节 "
                f"{parts[wrong]!r}",
            )
        return None


class StopStringsEndTheText(_Stream):
    """A stop string ends the text wherever its tokens lie: before it, or behind it with include_stop_str_in_output."""

    zh = "无论停止字符串的 token 如何分布，文本都在它之前结束；设置 include_stop_str_in_output 时在它之后结束。"
    cases = 7

    def make(self, random: Random) -> Any:
        """See `Check`."""
        stop = random.choice((" END", "stop", "。", "👍🏽", "\n\n", "</a>", "été"))
        words = [random.choice(("the sun", "你好", " café", " and", " на")) for _ in range(3)]
        behind, per_step = random.choice((b"", b" behind", stop.encode())), random.choice((1, 1, 1, 2, 5))
        if random.random() < 0.35:  # one step, which ends inside a character
            behind, per_step = "世".encode()[:2], 100
        text = "".join(words).encode() + stop.encode() + behind
        params = {"stop": [stop], "include_stop_str_in_output": random.random() < 0.5}
        return make_case(random, _prompt(random), split(random, text), per_step=per_step, params=params)


class TheFirstStopStringEndsTheText(_Stream):
    """Of several stop strings the one complete first counts; if one step completes several, the first of the list."""

    zh = "多个停止字符串中，最先完整出现的有效；同一步完成多个时，取列表中的第一个。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        stops = random.sample((" END", " stop", "。", "ok", "👍🏽", "OP", " STOP", "D", "\n"), 3)
        text = "the sun" + "".join(random.choice((" and", " café", "你")) + one for one in random.sample(stops, 3))
        params = {"stop": stops, "include_stop_str_in_output": random.random() < 0.5}
        per_step = random.choice((1, 1, 4, 100))
        return make_case(random, _prompt(random), split(random, text), per_step=per_step, params=params)


class StopStringsWaitForMinTokens(_Stream):
    """A stop string that is complete within the first min_tokens tokens does not end the text."""

    zh = "在前 min_tokens 个 token 内完成的停止字符串不结束文本。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`."""
        stop = random.choice((" END", "stop", "。", "ab"))
        parts = [split(random, word) for word in ("the", stop, " sun 👍🏽", stop, " and")]
        ends = list(accumulate(map(len, parts)))
        least = random.choice((ends[1], ends[1] - 1, ends[1] + 1, ends[3] - 1, ends[3], ends[4]))
        tokens = [token for part in parts for token in part]
        per_step = random.choice((1, 1, 3, 100))
        return make_case(
            random, _prompt(random), tokens, per_step=per_step, params={"stop": [stop], "min_tokens": least}
        )


class HeldBackTextComesAtTheEnd(_Stream):
    """Text that may begin a stop string is held back, and shown at the end if none came."""

    zh = "可能是停止字符串开头的文本会被保留；若停止字符串没有出现，则在结尾显示。"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`."""
        stops = random.sample(("<|user|>", "\n\nQ:", "。。。", "the end.", "👍🏽👍🏽"), 2)
        begun = stops[0][: random.randint(1, len(stops[0]) - 1)]
        text = "".join(random.choices(_WORDS[:7], k=3)) + stops[1][:-1] + " ok" + begun
        include = {"include_stop_str_in_output": True} if random.random() < 0.25 else {}
        return make_case(random, _prompt(random), split(random, text), params={"stop": stops} | include)


class StopTokensAndSpecialTokensAreLeftOut(_Stream):
    """The stop token is no part of the text, and special tokens are none with skip_special_tokens."""

    zh = "停止 token 不属于文本；设置 skip_special_tokens 时，特殊 token 也不属于。"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`."""
        tokens = [
            token for word in random.choices(_WORDS, k=3) for token in (*split(random, word), random.choice((1, 2)))
        ]
        end = random.choice((vocabulary_of("bytes")[b"s"], 0))
        params = {
            "skip_special_tokens": random.random() < 0.6,
            "include_stop_str_in_output": random.random() < 0.3,
            "stop": random.choice(([], ["never"])),
        }
        return make_case(random, _prompt(random), [*tokens, end], stop_token=True, params=params)


class SearchesOnlyNewText(Check):
    """check_stop_strings finds a stop string that ends in the new characters, and no other."""

    zh = "check_stop_strings 只找在新字符中结束的停止字符串。"
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        text = "".join(random.choices("ab👍", k=random.randint(4, 12)))
        stop = ["".join(random.choices("ab👍", k=random.randint(1, 3))) for _ in range(2)]
        return {"text": text, "stop": stop, "new": list(range(len(text) + 1)), "include": random.random() < 0.5}

    def run(self, case: Any) -> Any:
        """Return the result for each number of new characters."""
        from tracellm.engine.frontend.detokenizer import check_stop_strings

        found = [check_stop_strings(case["text"], new, case["stop"], case["include"]) for new in case["new"]]
        return [None if one is None else [str(one[0]), int(one[1])] for one in found]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with a search of all ends."""
        text, include = case["text"], case["include"]
        for new, result in zip(case["new"], output, strict=True):
            right = None
            for string in reversed(case["stop"]):
                ends = [end for end in range(len(string), len(text) + 1) if text[:end].endswith(string)]
                if ends := [end for end in ends if end > len(text) - new]:
                    right = [string, ends[0] if include else ends[0] - len(string)]
            if result != right:
                call = f"check_stop_strings({text!r}, {new}, {case['stop']!r}, {include})"
                old = f"{text[: len(text) - new]!r} + {text[len(text) - new :]!r}"
                return Failure(
                    f"{call} is {result and tuple(result)}, expected {right and tuple(right)}; old and new text: {old}",
                    f"{call} 为 {result and tuple(result)}，应为 {right and tuple(right)}；旧文本与新文本：{old}",
                )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out characters, and numbers of new characters."""
        text = case["text"]
        for index in range(len(text)):
            shorter = text[:index] + text[index + 1 :]
            yield case | {"text": shorter, "new": list(range(len(shorter) + 1))}
        if len(case["new"]) > 1:
            yield from (case | {"new": [new]} for new in case["new"])


CHECKS: tuple[Check, ...] = (
    CharactersAppearWhole(),
    OutputContinuesThePrompt(),
    BytesWithoutACharacterAreReplaced(),
    SearchesOnlyNewText(),
    StopStringsEndTheText(),
    TheFirstStopStringEndsTheText(),
    StopStringsWaitForMinTokens(),
    HeldBackTextComesAtTheEnd(),
    StopTokensAndSpecialTokensAreLeftOut(),
)

"""Predictions of lab 9: when text appears, and when a stop string is found."""

from random import Random
from typing import Any

from tracellm.lab.labs.lab09_streaming.streams import make_case, run_stream, split, vocabulary_of
from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _listed(tokens: list[int]) -> str:
    """Return the bytes of each token, such as `[61] [f0 9f]`."""
    names = {index: data for data, index in vocabulary_of("bytes").items()}
    return " ".join(f"[{names[token].hex(' ')}]" for token in tokens)


def _one_by_one(tokens: list[int], **params: Any) -> dict[str, Any]:
    case = make_case(Random(0), split(Random(0), "the sun"), tokens, params=params)
    return run_stream(case | {"delta": False})


class FirstEmoji(Prediction):
    """Number of tokens after which an emoji appears."""

    name = "first-emoji"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        before = random.choice(("a ", "hi ", "é ", "你 "))
        return {"before": before, "tokens": split(random, f"{before}👍🏽!")}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        text, listed = f"{case['before']}👍🏽!", _listed(case["tokens"])
        if lang == "zh":
            return f"文本 {text!r} 的 token 逐个到来，其字节为 {listed}。第几个 token 之后首次显示 👍？（一个数）"
        return (
            f"The tokens of {text!r} come one by one; their bytes are {listed}. After which token does 👍 appear? "
            "(number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        shown = _one_by_one(case["tokens"])["shown"]
        return next(number for number, text in enumerate(shown, start=1) if "👍" in text)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        count = self.answer(case)
        if lang == "zh":
            return f"👍 有四个字节 f0 9f 91 8d，最后一个在第 {count} 个 token 中；肤色 🏽 是另一个字符，可以稍后到来。"
        return (
            f"👍 has the four bytes f0 9f 91 8d, and the last of them comes with token {count}. The skin tone 🏽 is a "
            "character of its own, and may come later."
        )


class StopStep(Prediction):
    """Step in which a stop string is found."""

    name = "stop-step"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        stop = random.choice(("END", "STOP", "。"))
        word = random.choice(("sun ", "你好 ", "é ", "a "))
        tokens = split(random, stop) + split(random, word) + split(random, stop) + split(random, " ok")
        return {"stop": stop, "word": word, "tokens": tokens, "least": len(split(random, stop)) + random.randint(4, 6)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        stop, least, listed = case["stop"], case["least"], _listed(case["tokens"])
        text = f"{stop}{case['word']}{stop} ok"
        if lang == "zh":
            return (
                f"文本 {text!r} 每步来一个 token，其字节为 {listed}。stop=[{stop!r}]，min_tokens={least}。"
                "在第几步找到停止字符串？（一个数；找不到则为 0）"
            )
        return (
            f"The text {text!r} comes in one token per step; their bytes are {listed}. stop=[{stop!r}], "
            f"min_tokens={least}. In which step is the stop string found? (number; 0 if it is not found)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        output = _one_by_one(case["tokens"], stop=[case["stop"]], min_tokens=case["least"])
        return output["num_tokens"] if output["found"] is not None else 0

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        step, least = self.answer(case), case["least"]
        if lang == "zh":
            found = f"此后第一个完整的是在第 {step} 步" if step else "此后没有完整的停止字符串"
            return f"前 {least} 个 token 内完成的停止字符串不算；{found}。"
        found = f"the first one that is complete later ends with token {step}" if step else "none is complete later"
        return f"A stop string within the first {least} tokens does not count; {found}."


class HeldBack(Prediction):
    """Number of characters that are shown before the end."""

    name = "held-back"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        stops = random.sample(("END", "<user>", "。。", "\n\nQ: ", "the end"), 2)
        text = random.choice(("the sun is up", "你好，世界，今天", "a café and a 👍🏽"))
        return {"stops": stops, "text": text, "tokens": split(random, text) + split(random, "!")}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        text, stops = case["text"], case["stops"]
        if lang == "zh":
            return (
                f"流已有文本 {text!r}（{len(text)} 个字符），还未结束，stop={stops!r}。引擎显示了多少个字符？（一个数）"
            )
        return (
            f"A stream has the text {text!r} ({len(text)} characters) and goes on; stop={stops!r}. How many characters "
            "does the engine show? (number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        return len(_one_by_one(case["tokens"], stop=case["stops"])["shown"][-2])

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        longest, count = max(map(len, case["stops"])), len(case["text"])
        if lang == "zh":
            return (
                f"最长的停止字符串有 {longest} 个字符，最后 {longest - 1} 个字符可能是其开头：{count} - {longest - 1}。"
            )
        return (
            f"The longest stop string has {longest} characters, so the last {longest - 1} may be its beginning: "
            f"{count} - {longest - 1}."
        )


PREDICTIONS = (FirstEmoji(), StopStep(), HeldBack())

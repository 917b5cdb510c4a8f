"""Numbers from 0 to 100 in words, English and Chinese."""

__all__ = ["chinese", "english"]

# fmt: off
_EN = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_EN_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ZH = "零一二三四五六七八九"


def english(n: int) -> str:
    """Return `n` (0 to 100) in English words: ``english(21) == "twenty-one"``."""
    if n < 20:
        return _EN[n]
    if n == 100:
        return "one hundred"
    return _EN_TENS[n // 10 - 2] + (f"-{_EN[n % 10]}" if n % 10 else "")


def chinese(n: int) -> str:
    """Return `n` (0 to 100) in Chinese characters: ``chinese(21) == "二十一"``."""
    if n < 10:
        return _ZH[n]
    if n == 100:
        return "一百"
    return (_ZH[n // 10] if n >= 20 else "") + "十" + (_ZH[n % 10] if n % 10 else "")

"""The tables of benchmarks/compare.py, in both languages."""

from typing import Any

from benchmarks.compared.rounds import PEERS
from benchmarks.compared.shapes import SHAPES
from benchmarks.pages import table
from tracellm.bench.figures import number

__all__ = ["HEADS", "NOT_MEASURED", "TITLES", "comparison"]

_LANGUAGES = ("en", "zh")
NOT_MEASURED = {"en": "*Not measured yet.*\n", "zh": "*尚未测量。*\n"}
TITLES = {
    "tracellm": ("**tracellm**", "**tracellm**"),
    "tracellm-traced": ("**tracellm, recorded**", "**tracellm，录制**"),
    "tracellm-torch": ("tracellm with PyTorch's operations, eager", "tracellm，用 PyTorch 的运算，不用 CUDA graph"),
    "transformers": ("transformers `generate`, padded", "transformers `generate`，补齐"),
    "transformers-continuous": ("transformers, continuous batching", "transformers，连续批处理"),
    "vllm": ("vLLM", "vLLM"),
}
"""The rows, in order."""
HEADS = (
    ("engine", "引擎"),
    ("output tokens/s (quartiles)", "输出 token/s（四分位）"),
    ("of the limit", "占极限"),
    ("times {peer}", "是 {peer} 的几倍"),
    ("decoding, tokens/s (quartiles)", "解码 token/s（四分位）"),
    ("of the limit", "占极限"),
    ("times {peer}", "是 {peer} 的几倍"),
    ("read, GB/s", "读取 GB/s"),
)
_PEERS = {"vllm": "vLLM", "tracellm-torch": "PyTorch"}
_SAME = ("same outputs in {dtype}", "{dtype} 输出相同")
_NOTES = (
    """
{title}, {dtype}, {threads} threads: {requests} requests, {input_tokens:,} tokens in, {output_tokens:,} out;
decoding: as many requests of equal length, without prompts and first tokens. {repeats} rounds. Limits measured in the
same rounds: {read} GB/s read, {flops} GFLOP/s. Other programs had {busy:.0%} of the processors' time.{differences}
Made by `{command}` on {machine}; {versions}.
""",
    """
{title}，{dtype}，{threads} 个线程：{requests} 个请求，输入 {input_tokens:,} token，输出 {output_tokens:,}；
解码：同样多的请求，长度全部相同，不含提示词和第一个 token。{repeats} 轮。在同样的轮次中测得的极限：读内存 {read} GB/s，
{flops} GFLOP/s。处理器时间有 {busy:.0%} 被别的程序占用。{differences}
由 `{command}` 生成：{machine}；{versions}。
""",
)
_DIFFERENCES = (
    " Outputs part from tracellm's at token {first} at the earliest; where they part, the logits of the two tokens are "
    "at most {gap:.2g} standard deviations of all logits from each other.",
    "与 tracellm 的输出最早在第 {first} 个 token 处不同；在不同之处，"
    "两个 token 的 logit 相差最多为全部 logit 标准差的 {gap:.2g} 倍。",
)


def comparison(figures: dict[str, Any], lang: str, command: str, machine: str) -> str:
    """Return the table of one model in Markdown, with notes on the measurement below."""
    column = _LANGUAGES.index(lang)
    ways = figures["ways"]
    dtype = figures["dtype"]
    peer = PEERS[figures["device"]]
    rows = [_row(way, ways[way], ways.get(peer), dtype, column) for way in TITLES if way in ways]
    heads = [texts[column].format(peer=_PEERS[peer]) for texts in HEADS]
    heads += [_SAME[column].format(dtype=name) for name in _compared(dtype)]
    versions = {name: version for about in figures["about"].values() for name, version in about.items()}
    versions.pop("threads", None)
    note = _NOTES[column].format(
        **{
            name: figures[name] for name in ("dtype", "threads", "requests", "input_tokens", "output_tokens", "repeats")
        },
        title=SHAPES[figures["shape"]].title[column],
        read=number(figures["ceilings"]["read_bytes_per_second"] / 1e9),
        flops=number(figures["ceilings"]["flops_per_second"] / 1e9),
        busy=figures["busy_elsewhere"],
        differences=_differences(ways, dtype, column),
        command=command,
        machine=machine,
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )
    return f"{table(heads, rows)}{note}"


def _compared(dtype: str) -> list[str]:
    """Return the dtypes in which outputs were compared."""
    return list(dict.fromkeys(["float32", dtype]))


def _row(way: str, figures: dict[str, Any], peer: dict[str, Any] | None, dtype: str, column: int) -> list[str]:
    cells = [TITLES[way][column]]
    for name, of_limit in (("whole", "of_limit"), ("decode", "decode_of_limit")):
        spread = figures[name]
        cells += [
            f"{number(spread['median'])} ({number(spread['low'])} – {number(spread['high'])})",
            f"{figures[of_limit]:.0%}",
            f"{spread['median'] / peer[name]['median']:.2f}" if peer else "",
        ]
    cells.append(number(figures["decode_gb_per_second"]))
    for name in _compared(dtype):
        agreement = figures[name]
        cells.append(f"{agreement['same']} / {agreement['requests']}" if agreement and way != "tracellm" else "")
    return cells


def _differences(ways: dict[str, Any], dtype: str, column: int) -> str:
    differing = [figures[dtype] for figures in ways.values() if figures[dtype] and figures[dtype]["first"] is not None]
    gaps = [figures["gap"] for figures in differing if figures["gap"] is not None]
    if not gaps:
        return ""
    return _DIFFERENCES[column].format(first=min(figures["first"] for figures in differing) + 1, gap=max(gaps))

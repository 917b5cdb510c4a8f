"""The generated tables of docs/server.md: the options of `tracellm serve`, and the metrics."""

import re
from collections.abc import Iterable, Sequence

import click

from tracellm.cli.commands.serve import SERVER_DEFAULTS, serve
from tracellm.cli.options import Option, engine_options
from tracellm.report.texts import Language, text

__all__ = ["HEADS", "metrics_table", "options_table", "table"]

HEADS = {
    "en": {
        "options": ("option", "meaning"),
        "engine": ("option of the engine", "default", "meaning"),
        "metrics": ("metric", "kind", "meaning"),
        "errors": ("request", "status", "type", "message"),
        "refused": ("field", "answer"),
    },
    "zh": {
        "options": ("选项", "含义"),
        "engine": ("引擎的选项", "默认值", "含义"),
        "metrics": ("指标", "种类", "含义"),
        "errors": ("请求", "状态码", "类型", "消息"),
        "refused": ("字段", "回答"),
    },
}

ENGINE = {
    "tokenizer": ("a directory or hub id, if not the model's", "分词器的目录或 hub 名字，如果不用模型自带的"),
    "skip_tokenizer_init": ("no tokenizer: token ids in, token ids out", "不要分词器：输入输出都是 token id"),
    "dtype": (
        "auto (as the checkpoint has it), float32, bfloat16, float16",
        "auto（按权重文件）、float32、bfloat16、float16",
    ),
    "hf_overrides": ("entries of config.json to change", "要改动的 config.json 条目"),
    "generation_config": (
        "whose sampling defaults: auto (the model's), vllm (none), or a directory",
        "采用谁的采样默认值：auto（模型的）、vllm（不采用），或一个目录",
    ),
    "override_generation_config": ("sampling defaults of your own", "自定的采样默认值"),
    "seed": ("for requests without a seed of their own", "请求没有自带种子时使用"),
    "max_model_len": (
        "the most tokens of prompt and output; by default the model's",
        "提示词与输出合计的最多 token 数；默认是模型的",
    ),
    "gpu_memory_utilization": ("the share of a GPU's memory to use", "GPU 显存使用的比例"),
    "block_size": ("tokens in a KV block", "一个 KV 块的 token 数"),
    "num_gpu_blocks_override": ("so many KV blocks, whatever the memory", "KV 块的个数，不看内存"),
    "kv_cache_memory_bytes": ("so much memory for the KV cache", "KV 缓存的内存"),
    "max_num_batched_tokens": ("tokens that one step may compute", "一步最多计算的 token 数"),
    "max_num_seqs": ("requests that may run at once", "最多同时运行的请求数"),
    "enable_prefix_caching": ("reuse the blocks of equal beginnings", "重用相同开头的块"),
    "enable_chunked_prefill": ("long prompts over several steps", "长提示词分几步计算"),
    "long_prefill_token_threshold": (
        "the most tokens of one prompt in a step; 0: no bound",
        "一个提示词一步最多的 token 数；0 不限",
    ),
    "scheduling_policy": ("fcfs, or priority: lower goes first", "fcfs，或 priority：数值小的先行"),
    "disable_hybrid_kv_cache_manager": ("sliding windows keep all their blocks", "滑动窗口也保留所有的块"),
    "max_logprobs": ("the most log probabilities a request may ask for", "一个请求最多可要的对数概率个数"),
    "logprobs_mode": (
        "raw_logprobs, raw_logits, processed_logprobs or processed_logits",
        "raw_logprobs、raw_logits、processed_logprobs 或 processed_logits",
    ),
    "enforce_eager": ("no CUDA graphs: every step's layers are called", "不用 CUDA graph：每一步都调用各层"),
    "async_scheduling": (
        "decide a step while the step before is still computed; by default on a GPU only",
        "上一步还在计算时就决定下一步；默认只在 GPU 上",
    ),
    "attention_backend": (
        "what computes the layers: cpu, torch or triton; by default what suits the device",
        "由什么计算各层：cpu、torch 或 triton；默认选适合设备的",
    ),
    "disable_log_stats": ("no statistics: /metrics is empty", "不做统计：/metrics 为空"),
}
"""Descriptions of the engine's options, in English and Chinese."""

METRICS = {
    "num_requests_running": "正在运行的请求数：它们参与每一步。",
    "num_requests_waiting": "等待运行的请求数。",
    "kv_cache_usage_perc": "KV 缓存的块被占用的比例；1 表示全部。",
    "prefix_cache_queries_total": "在前缀缓存里查找过的 token 数。",
    "prefix_cache_hits_total": "在前缀缓存里找到的 token 数。",
    "num_preemptions_total": "抢占次数：正在运行的请求把块让给了别的请求。",
    "prompt_tokens_total": "已得到第一个 token 的请求的提示词 token 数。",
    "generation_tokens_total": "生成的 token 数。",
    "request_success_total": "在引擎里结束的请求数，按原因分。",
    "iteration_tokens_total": "一步的 token 数：算完的提示词与生成的 token。",
    "request_prompt_tokens": "一个请求的提示词 token 数。",
    "request_generation_tokens": "为一个请求生成的 token 数。",
    "request_params_max_tokens": "请求的参数 `max_tokens`。",
    "request_time_per_output_token_seconds": "第一个 token 之后每个 token 的秒数。",
    "e2e_request_latency_seconds": "从请求到达到最后一次输出的秒数。",
    "request_queue_time_seconds": "请求第一次运行之前等待的秒数。",
    "request_inference_time_seconds": "从请求第一次运行到最后一个 token 的秒数。",
    "request_prefill_time_seconds": "从请求第一次运行到第一个 token 的秒数。",
    "request_decode_time_seconds": "从第一个 token 到最后一个 token 的秒数。",
    "request_max_num_generation_tokens": "一个请求的 `n` 个序列中最长者的 token 数。",
    "request_params_n": "请求的参数 `n`。",
    "time_to_first_token_seconds": "从请求到达到第一个 token 的秒数。",
    "inter_token_latency_seconds": "一个请求的两个 token 之间的秒数。",
    "time_per_output_token_seconds": "同 vllm:inter_token_latency_seconds，旧名字。",
    "cache_config_info": "KV 缓存的设置。",
}
"""Descriptions of the metrics in Chinese; the server has them in English."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def options_table(lang: Language) -> str:
    """Return the table of all options of `tracellm serve`: the server's, then the engine's."""
    of_the_engine = [option for option in engine_options(SERVER_DEFAULTS) if not option.hidden]
    names = {option.name for option in of_the_engine}
    context = click.Context(serve, obj=lang, help_option_names=["-h", "--help"])
    own = [
        (f"`{_spelled(param)}`", _help(param, lang))
        for param in serve.get_params(context)
        if isinstance(param, click.Option) and not param.hidden and param.name not in names
    ]
    engine = [
        (f"`{_spelled(option)}`", f"`{option.help}`" if option.help else "", ENGINE[str(option.name)][lang == "zh"])
        for option in of_the_engine
    ]
    return f"{table(HEADS[lang]['options'], own)}\n{table(HEADS[lang]['engine'], engine)}"


def _help(option: click.Option, lang: Language) -> str:
    return text(lang, option.help) if isinstance(option, Option) and option.help else option.help or ""


def _spelled(option: click.Option) -> str:
    names = "`, `".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar}"


def metrics_table(lang: Language, metrics: str) -> str:
    """Return the table of metrics, from the text of /metrics."""
    helped = dict(re.findall(r"(?m)^# HELP vllm:(\S+) (.+)$", metrics))
    kinds = re.findall(r"(?m)^# TYPE vllm:(\S+) (\w+)$", metrics)
    return table(
        HEADS[lang]["metrics"],
        (
            (f"`vllm:{name}`", kind, METRICS[name] if lang == "zh" else helped[name])
            for name, kind in kinds
            if not name.endswith("_created")  # start times, added by prometheus_client
        ),
    )

"""Generated tables of docs/server.md: the options of `tracellm serve`, and the metrics."""

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
    "tokenizer": (
        "directory or hub id of the tokenizer; default: the model's",
        "分词器的目录或 hub 名字；默认用模型自带的",
    ),
    "skip_tokenizer_init": (
        "load no tokenizer: prompts and outputs are token ids",
        "不加载分词器：输入和输出都是 token id",
    ),
    "dtype": (
        "auto (the checkpoint's dtype; bfloat16 for a float32 checkpoint), float32, bfloat16 or float16",
        "auto（按 checkpoint；float32 的 checkpoint 用 bfloat16）、float32、bfloat16 或 float16",
    ),
    "runner": (
        "generate (text), pooling (vectors of prompts) or auto (by the model's files)",
        "generate（生成文本）、pooling（提示词的向量）或 auto（由模型文件决定）",
    ),
    "convert": (
        "embed: embeddings from a model that generates, the default under --runner pooling; none: not",
        "embed：从生成模型得到 embedding，是 --runner pooling 时的默认值；none：不转换",
    ),
    "pooler_config": (
        'how vectors are made, as JSON: `{"pooling_type": "MEAN", "normalize": false}`; types: LAST, CLS, MEAN, ALL',
        '向量的计算方式，写作 JSON：`{"pooling_type": "MEAN", "normalize": false}`；类型有 LAST、CLS、MEAN、ALL',
    ),
    "override_pooler_config": ("deprecated name of --pooler-config", "--pooler-config 的旧名"),
    "hf_overrides": ("entries of config.json to replace", "要覆盖的 config.json 条目"),
    "generation_config": (
        "source of sampling defaults: auto (the model), vllm (none) or a directory",
        "采样默认值的来源：auto（模型）、vllm（不采用）或一个目录",
    ),
    "override_generation_config": ("sampling defaults to replace", "要覆盖的采样默认值"),
    "seed": ("seed for requests without their own", "请求没有指定种子时使用的种子"),
    "max_model_len": (
        "maximum number of tokens of prompt and output together; default: the model's",
        "提示词与输出合计的最大 token 数；默认取自模型",
    ),
    "gpu_memory_utilization": ("share of the GPU's memory to use", "使用 GPU 显存的比例"),
    "block_size": ("tokens per KV cache block", "每个 KV 缓存块的 token 数"),
    "num_gpu_blocks_override": ("number of KV cache blocks, regardless of memory", "KV 缓存块的数量，不考虑内存大小"),
    "kv_cache_memory_bytes": ("size of the KV cache in bytes", "KV 缓存的大小（字节）"),
    "max_num_batched_tokens": (
        "token budget: maximum number of tokens per step",
        "token 预算：一个 step 最多计算的 token 数",
    ),
    "max_num_seqs": ("maximum number of running requests", "同时运行的请求数上限"),
    "enable_prefix_caching": ("reuse KV cache blocks of shared prompt prefixes", "复用相同前缀的 KV 缓存块"),
    "enable_chunked_prefill": (
        "compute long prompts in chunks over several steps",
        "分块预填充：长提示词分多个 step 计算",
    ),
    "long_prefill_token_threshold": (
        "maximum number of tokens of one prompt per step; 0: no limit",
        "每个 step 为一个提示词最多计算的 token 数；0 表示不限",
    ),
    "scheduling_policy": (
        "fcfs (first come, first served) or priority (lower values first)",
        "fcfs（先到先服务）或 priority（数值小的优先）",
    ),
    "disable_hybrid_kv_cache_manager": (
        "keep all blocks in layers with a sliding window",
        "滑动窗口的层也保留全部块",
    ),
    "max_logprobs": (
        "maximum number of log probabilities per token that a request may ask for; -1: no limit",
        "请求可以为每个 token 索取的对数概率个数上限；-1 表示不限",
    ),
    "logprobs_mode": (
        "raw_logprobs or raw_logits (before penalties and temperature), "
        "processed_logprobs or processed_logits (after them)",
        "raw_logprobs 或 raw_logits（惩罚和温度之前），processed_logprobs 或 processed_logits（之后）",
    ),
    "reasoning_parser": (
        "form of the model's reasoning, deepseek_r1 or qwen3; constraints apply after it; default: none",
        "模型推理内容的格式：deepseek_r1 或 qwen3；约束只作用于推理之后；默认没有",
    ),
    "enforce_eager": ("use no CUDA graphs", "不使用 CUDA graph"),
    "limit_mm_per_prompt": (
        'maximum number of images and sounds in a prompt, as JSON: `{"image": 2}`; default: 999 of each',
        '一个提示词中图像和声音的最大个数，写作 JSON：`{"image": 2}`；默认各 999 个',
    ),
    "mm_processor_kwargs": (
        'arguments for the checkpoint\'s processor of images or sounds, as JSON: `{"max_pixels": 200704}`',
        '检查点的图像或声音处理器的参数，写作 JSON：`{"max_pixels": 200704}`',
    ),
    "mm_processor_cache_gb": (
        "size of the cache of processed images and sounds in GiB; 0: none",
        "已处理的图像和声音的缓存大小，单位 GiB；0 表示不缓存",
    ),
    "disable_chunked_mm_input": (
        "compute all tokens of an image or a sound in one step",
        "在一个 step 内计算一幅图像或一段声音的全部 token",
    ),
    "allowed_local_media_path": (
        "directory whose files requests may name by file:// URLs; default: none",
        "请求可以用 file:// URL 指定其中文件的目录；默认没有",
    ),
    "allowed_media_domains": (
        "hosts from which images and sounds are fetched; default: none",
        "允许从哪些主机获取图像和声音；默认没有",
    ),
    "async_scheduling": (
        "schedule a step before the previous one has ended; default: only on a GPU",
        "上一个 step 结束之前就调度下一个；默认只在 GPU 上启用",
    ),
    "pipeline_parallel_size": (
        "stages of the model, each with some of the layers and workers of its own",
        "模型分成的 stage 数，每个 stage 有其中一部分层和自己的 worker",
    ),
    "tensor_parallel_size": (
        "workers that share each layer of the model, each a process",
        "共同计算每一层的 worker 数，每个 worker 一个进程",
    ),
    "data_parallel_size": (
        "engine cores that share the requests, each with a copy of the model (`AsyncLLM` and the server)",
        "共同处理请求的引擎核心数，每个都有一份完整的模型（`AsyncLLM` 和服务器）",
    ),
    "distributed_executor_backend": (
        "uni (one worker in the engine core's process), mp (a process for each worker), ray (a Ray actor for each), or "
        "external_launcher (the processes of torchrun, for `LLM`); default: mp for several",
        "uni（一个 worker，在引擎核心的进程中）、mp（每个 worker 一个进程）、ray（每个 worker 一个 Ray actor）或 "
        "external_launcher（由 torchrun 启动的进程，用于 `LLM`）；多个 worker 时默认 mp",
    ),
    "attention_backend": (
        "implementation of the layers' operations: cpu, torch or triton; default: by the device",
        "各层算子的实现：cpu、torch 或 triton；默认按设备选择",
    ),
    "otlp_traces_endpoint": (
        "address of an OpenTelemetry collector, to which a span of each finished request is sent "
        "([docs](opentelemetry.md#spans-of-finished-requests))",
        "OpenTelemetry collector 的地址：每个完成的请求向它发送一个 span（[文档](opentelemetry.md#完成的请求的-span)）",
    ),
    "disable_log_stats": (
        "collect no statistics: `RequestOutput.metrics` and /metrics are empty",
        "不收集统计数据：`RequestOutput.metrics` 和 /metrics 为空",
    ),
}
"""Descriptions of the engine's options, in English and Chinese."""

METRICS = {
    "num_requests_running": "正在运行的请求数。",
    "num_requests_waiting": "等待运行的请求数。",
    "kv_cache_usage_perc": "KV 缓存块的使用率，0 到 1。",
    "prefix_cache_queries_total": "在前缀缓存中查找的 token 数。",
    "prefix_cache_hits_total": "前缀缓存命中的 token 数。",
    "num_preemptions_total": "运行中的请求被抢占的次数。",
    "prompt_tokens_total": "已得到第一个 token 的请求的提示词 token 数。",
    "generation_tokens_total": "生成的 token 数。",
    "request_success_total": "已结束的请求数，按结束原因分类。",
    "iteration_tokens_total": "一个 step 的 token 数：算完的提示词和生成的 token。",
    "request_prompt_tokens": "一个请求的提示词 token 数。",
    "request_generation_tokens": "为一个请求生成的 token 数。",
    "request_params_max_tokens": "请求的参数 `max_tokens`。",
    "request_time_per_output_token_seconds": "第一个 token 之后，平均每个 token 的秒数。",
    "e2e_request_latency_seconds": "从请求到达到最后一次输出的秒数。",
    "request_queue_time_seconds": "请求从入队到首次被调度的秒数。",
    "request_inference_time_seconds": "请求从首次被调度到最后一个 token 的秒数。",
    "request_prefill_time_seconds": "请求从首次被调度到第一个 token 的秒数。",
    "request_decode_time_seconds": "请求从第一个 token 到最后一个 token 的秒数。",
    "request_max_num_generation_tokens": "一个请求的 `n` 个序列中，最长的一个生成的 token 数。",
    "request_params_n": "请求的参数 `n`。",
    "time_to_first_token_seconds": "从请求到达到第一个 token 的秒数。",
    "inter_token_latency_seconds": "一个请求的相邻两个 token 之间的秒数。",
    "time_per_output_token_seconds": "vllm:inter_token_latency_seconds 的旧名字。",
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
    context = click.Context(serve, obj=lang)
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

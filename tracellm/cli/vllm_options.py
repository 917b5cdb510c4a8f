"""Options of `vllm serve` that `tracellm serve` does not have, so that they are named and not taken for misspellings.

Those of vLLM 0.11.1 and 0.32.0, without the engine's (`engine/config/unsupported_args.py`), which are refused by value.
"""

__all__ = ["VLLM_OPTIONS", "is_vllm_option"]

VLLM_OPTIONS = frozenset([
    "allow-credentials", "allow-deprecated-quantization", "allowed-headers", "allowed-methods",
    "anthropic-disabled-thinking-effort", "api-server-count", "attention-config", "aux-output-config",
    "cohere-format", "cohere-is-reasoning-model", "config", "cp-kv-cache-interleave-size",
    "cpu-distributed-timeout-seconds", "cpu-offload-params", "cudagraph-metrics", "custom-histogram-buckets",
    "data-parallel-multi-port-external-lb", "data-parallel-supervisor-port", "dcp-comm-backend", "dcp-q-replicate",
    "default-chat-template-kwargs", "device-ids", "device-memory-utilization", "diffusion-config",
    "disable-access-log-for-endpoints", "disable-fastapi-docs", "disable-frontend-multiprocessing",
    "disable-log-requests", "distributed-timeout-seconds", "dp-supervisor-probe-failure-threshold",
    "dp-supervisor-probe-interval-s", "dp-supervisor-probe-timeout-s", "dp-sync-interval", "ec-manager-config",
    "elastic-ep-max-dp-size", "enable-batch-sharded-sampling", "enable-cumem-allocator",
    "enable-elastic-ep", "enable-ep-weight-filter", "enable-fault-tolerance", "enable-flash-late-interaction",
    "enable-flashinfer-autotune", "enable-hc-sp", "enable-layerwise-nvtx-tracing", "enable-log-deltas",
    "enable-log-outputs", "enable-logging-iteration-details", "enable-mamba-cache-stochastic-rounding",
    "enable-mamba-shared-prefix-checkpoint", "enable-mfu-metrics", "enable-mixed-moe-lora-format",
    "enable-moe-shared-loras", "enable-nccl-comm-suspend", "enable-offline-docs", "enable-per-request-metrics",
    "enable-return-routed-experts", "enable-scale-out", "enable-server-load-tracking", "enable-shm-tensor-arena",
    "enable-ssl-refresh", "enable-tokenizer-info-endpoint", "enable-tower-connector-lora", "enable-trace-replay",
    "engram-config", "fail-on-environ-validation", "fault-tolerance-config",
    "fingerprint-mode", "fingerprint-value", "gdn-prefill-backend", "grpc", "grpc-port", "h11-max-header-count",
    "h11-max-incomplete-event-size", "headless", "ir-op-priority", "jit-monitor-mode", "jit-monitor-verbose",
    "kda-decode-backend", "kda-prefill-backend", "kernel-config", "kv-cache-dtype-skip-layers", "kv-cache-metrics",
    "kv-cache-metrics-sample", "language-model-only", "linear-backend", "log-config-file", "log-error-stack",
    "log-level", "logging-config", "long-prefill-token-threshold-adaptive", "lora-modules", "lora-target-modules",
    "mamba-backend", "mamba-cache-mode", "mamba-cache-philox-rounds", "mamba-ssu-algorithm", "max-lora-cls-labels",
    "max-num-active-seqs", "max-num-queued-reqs", "max-num-queued-tokens", "max-num-scheduled-tokens", "middleware",
    "mm-device-do-normalize", "mm-encoder-attn-dtype", "mm-encoder-fp8-scale-path",
    "mm-encoder-fp8-scale-save-margin", "mm-encoder-fp8-scale-save-path", "mm-encoder-only", "mm-hasher-algorithm",
    "mm-ipc-gpu-memory-gb", "mm-processor-device", "mm-tensor-ipc", "model-class-overrides", "moe-backend",
    "numa-bind", "numa-bind-cpus", "numa-bind-nodes", "offload-backend", "offload-group-size",
    "offload-num-in-group", "offload-params", "offload-prefetch-step", "optimization-level",
    "per-request-spec-decode-metrics", "performance-mode", "prefill-context-parallel-size",
    "prefill-schedule-interval", "prefix-cache-retention-interval", "prefix-match-unit", "profiler-config",
    "quantization-config", "reasoning-config", "renderer-num-workers", "replayssm-buffer-len",
    "return-sampling-mask", "safetensors-prefetch-block-size", "safetensors-prefetch-num-threads",
    "scheduler-reserve-full-isl", "sleep-mode-offload-cudagraph", "sleep-preserve-parameter-names",
    "sparse-indexer-topk-backend", "spec-method", "spec-model", "spec-tokens", "specialize-active-lora",
    "sse-keep-alive-interval", "ssl-ciphers", "swa-bounded-replay", "tool-parser-plugin",
    "tool-server", "tool-strict-level", "trust-request-mm-kwargs", "ubatch-size", "uds", "use-fp64-gumbel",
    "use-replayssm", "video-pruning-method", "watermark", "watermark-config", "weight-transfer-config",
])  # fmt: skip


def is_vllm_option(name: str) -> bool:
    """Return whether vLLM has the option `name`, such as `--uds`, `--no-enable-metrics` or `--kernel-config.key`."""
    name = name.removeprefix("--").partition(".")[0]
    return name in VLLM_OPTIONS or name.removeprefix("no-") in VLLM_OPTIONS

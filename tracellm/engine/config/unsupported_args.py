"""Arguments of vLLM's `LLM(...)` for features that tracellm does not have, each with its accepted values.

A script that spells out vLLM's defaults runs; any other value is rejected with a message that names the argument.
`EngineArgs.from_arguments` and the options of `tracellm serve` read the table.

vLLM: vllm/engine/arg_utils.py::EngineArgs.
"""

from typing import Any

__all__ = ["UNSUPPORTED_ARGS"]

_NONE_BY_DEFAULT = [
    "additional_config", "all2all_backend", "code_revision", "collect_detailed_traces",
    "cuda_graph_sizes", "cudagraph_capture_sizes", "data_parallel_address", "data_parallel_rank",
    "data_parallel_rpc_port", "data_parallel_size_local", "data_parallel_start_rank", "default_mm_loras",
    "download_dir", "ec_transfer_config", "eplb_config", "hf_config_path", "hf_token", "io_processor_plugin",
    "kv_events_config", "kv_offloading_backend", "kv_offloading_size", "kv_transfer_config",
    "logits_processor_pattern", "logits_processors", "mamba_block_size", "max_cpu_loras",
    "max_cudagraph_capture_size", "max_parallel_loading_workers", "media_io_kwargs", "mm_encoder_attn_backend",
    "model_loader_extra_config", "override_attention_dtype", "quantization", "reasoning_parser_plugin",
    "revision", "scheduler_cls", "show_hidden_metrics_for_version", "speculative_config", "tokenizer_revision",
    "video_pruning_rate",
]  # fmt: skip
_FALSE_BY_DEFAULT = [
    "aggregate_engine_logging", "calculate_kv_scales", "data_parallel_external_lb", "data_parallel_hybrid_lb",
    "disable_mm_preprocessor_cache", "disable_nccl_for_dp_synchronization",
    "disable_sliding_window", "enable_dbo", "enable_eplb", "enable_expert_parallel", "enable_lora",
    "enable_mm_embeds", "enable_multimodal_encoder_data_parallel", "enable_prompt_embeds", "enable_sleep_mode",
    "eplb_log_balancedness", "fully_sharded_loras", "interleave_mm_strings", "kv_sharing_fast_prefill",
    "ray_workers_use_nsight", "skip_mm_profiling", "tokens_only", "trust_remote_code",
]  # fmt: skip

UNSUPPORTED_ARGS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_NONE_BY_DEFAULT, (None,)),
    **dict.fromkeys(_FALSE_BY_DEFAULT, (False,)),
    "compilation_config": (None, 0),
    "config_format": ("auto", "hf"),
    "cpu_offload_gb": (0,),
    "data_parallel_backend": ("mp",),
    "dbo_decode_token_threshold": (32,),
    "dbo_prefill_token_threshold": (512,),
    "dcp_kv_cache_interleave_size": (1,),
    "decode_context_parallel_size": (1,),
    "disable_cascade_attn": (False, True),
    "disable_custom_all_reduce": (False, True),
    "eplb_step_interval": (3000,),
    "eplb_window_size": (1000,),
    "expert_placement_strategy": ("linear",),
    "guided_decoding_backend": (None, "auto", "guidance"),
    "guided_decoding_disable_additional_properties": (None, False),
    "guided_decoding_disable_any_whitespace": (None, False),
    "guided_decoding_disable_fallback": (None, False),
    "ignore_patterns": (None, ["original/**/*"]),
    "kv_cache_dtype": ("auto",),
    "load_format": ("auto", "safetensors"),
    "lora_dtype": ("auto",),
    "lora_extra_vocab_size": (256,),
    "mamba_cache_dtype": ("auto",),
    "mamba_ssm_cache_dtype": ("auto",),
    "master_addr": ("127.0.0.1",),
    "master_port": (29501,),
    "max_long_partial_prefills": (1,),
    "max_lora_rank": (16,),
    "max_loras": (1,),
    "max_num_partial_prefills": (1,),
    "mm_encoder_tp_mode": ("weights",),
    "mm_processor_cache_type": ("lru",),
    "mm_shm_cache_max_object_size_mb": (128,),
    "model_impl": ("auto", "vllm"),
    "nnodes": (1,),
    "node_rank": (0,),
    "num_lookahead_slots": (0,),
    "num_redundant_experts": (0,),
    "prefix_caching_hash_algo": ("sha256",),
    "pt_load_map_location": ("cpu",),
    "safetensors_load_strategy": ("lazy",),
    "stream_interval": (1,),
    "structured_outputs_config": (None, {"backend": "auto"}, {"backend": "guidance"}),
    "swap_space": (0, 4),
    "task": (None, "auto", "generate"),
    "tokenizer_mode": ("auto",),
    "use_tqdm_on_load": (False, True),
    "worker_cls": ("auto",),
    "worker_extension_cls": ("",),
}
"""Accepted values by argument; an empty list, dict or string is accepted where None is."""

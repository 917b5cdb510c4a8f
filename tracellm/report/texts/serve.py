"""Texts of `tracellm serve`: its help, and the line when it is ready."""

__all__ = ["EN", "ZH"]

EN = {
    "cli.help.serve.short": "Serve a model over HTTP, as OpenAI's API; with --explain, record and explain it.",
    "cli.help.serve": "Serve MODEL over HTTP, compatible with OpenAI's API and with `vllm serve`.",
    "cli.help.serve.more": """\
MODEL is a directory or a hub id; without it, the model that comes with tracellm. SIGTERM and Ctrl-C let running
requests finish. Settings of the engine are options with vLLM's names, such as --max-model-len.

\b
Examples:
  tracellm serve
  tracellm serve --explain --out my-run --port 8001
  tracellm serve path/to/model --max-num-seqs 16 --api-key secret""",
    "serve.help.host": "The address to listen at. Default: 127.0.0.1, so only this machine is served.",
    "serve.help.port": "The port; 0 takes any that is free. Default: 8000",
    "serve.help.api_key": "Serve only requests with this key; may be repeated. Otherwise VLLM_API_KEY, or none.",
    "serve.help.served_model_name": "What the model is called in requests; may be repeated.",
    "serve.help.allowed_origins": "A website whose scripts may ask this server (CORS), or *; may be repeated, or JSON.",
    "serve.help.uvicorn_log_level": "From what level on uvicorn logs: debug, info, warning (default), error, critical.",
    "serve.help.disable_uvicorn_access_log": "No line for each request at the levels info and debug.",
    "serve.help.root_path": "The path at which a proxy shows this server.",
    "serve.help.response_role": "The role of answers. Default: assistant",
    "serve.help.chat_template": "A Jinja template in place of the model's own: a file, or the template itself.",
    "serve.help.chat_template_content_format": "How the template gets contents: auto, string or openai.",
    "serve.help.trust_request_chat_template": "Let requests bring their own chat template, which is a program.",
    "serve.help.return_tokens_as_token_ids": "Show tokens beside log probabilities as token_id:17.",
    "serve.help.enable_request_id_headers": "Put X-Request-Id on every response.",
    "serve.help.enable_prompt_tokens_details": "Tell in the usage how many tokens the prefix cache had.",
    "serve.help.enable_force_include_usage": "Tell the usage in every stream.",
    "serve.help.shutdown_timeout": "Seconds for running requests after SIGTERM or Ctrl-C. Default: 30",
    "serve.help.max_request_bytes": "The longest body that is read. Default: 33554432",
    "serve.help.engine": "Of the engine, as for LLM(...), with their defaults",
    "serve.ready": """\
{model} is served at {address}/v1 (Ctrl-C ends it). Try:
  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
-d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    "cli.error.serve_option": "--{option} takes {accepted}, not {value!r}",
    "cli.error.chat_template": "cannot read the chat template {path}: {reason}",
    "cli.error.serve_aborted": "ended at once; requests that were running have been given up",
}

ZH = {
    "cli.help.serve.short": "以兼容 OpenAI 的 HTTP 接口提供模型服务；加上 --explain 则记录并解释。",
    "cli.help.serve": "通过 HTTP 提供 MODEL 的服务，接口与 OpenAI 和 `vllm serve` 兼容。",
    "cli.help.serve.more": """\
MODEL 是一个目录或 hub 上的名字；不给则用 tracellm 自带的模型。收到 SIGTERM 或 Ctrl-C 后，正在处理的请求会先做完。
推理引擎的设置都是与 vLLM 同名的选项，例如 --max-model-len。

\b
例如：
  tracellm serve
  tracellm serve --explain --out my-run --port 8001
  tracellm serve path/to/model --max-num-seqs 16 --api-key secret""",
    "serve.help.host": "监听的地址。默认 127.0.0.1，只服务本机。",
    "serve.help.port": "端口；0 表示任选一个空闲的。默认 8000",
    "serve.help.api_key": "只服务带有这个密钥的请求；可以重复给出。不给时看 VLLM_API_KEY，没有则不检查。",
    "serve.help.served_model_name": "请求里使用的模型名；可以重复给出。",
    "serve.help.allowed_origins": "哪些网站的脚本可以访问本服务（CORS），* 表示全部；可以重复给出，也可以写成 JSON。",
    "serve.help.uvicorn_log_level": "uvicorn 从哪一级开始写日志：debug、info、warning（默认）、error、critical。",
    "serve.help.disable_uvicorn_access_log": "在 info 和 debug 级别不为每个请求写一行日志。",
    "serve.help.root_path": "代理展示本服务时所用的路径。",
    "serve.help.response_role": "回答的角色。默认 assistant",
    "serve.help.chat_template": "代替模型自带模板的 Jinja 模板：一个文件，或模板本身。",
    "serve.help.chat_template_content_format": "模板得到的内容的形式：auto、string 或 openai。",
    "serve.help.trust_request_chat_template": "允许请求自带对话模板；模板是程序。",
    "serve.help.return_tokens_as_token_ids": "对数概率旁的 token 显示为 token_id:17。",
    "serve.help.enable_request_id_headers": "在每个响应里加上 X-Request-Id。",
    "serve.help.enable_prompt_tokens_details": "在用量里说明有多少 token 来自前缀缓存。",
    "serve.help.enable_force_include_usage": "在每个流里都给出用量。",
    "serve.help.shutdown_timeout": "收到 SIGTERM 或 Ctrl-C 后留给正在处理的请求的秒数。默认 30",
    "serve.help.max_request_bytes": "最多读取的请求正文字节数。默认 33554432",
    "serve.help.engine": "推理引擎的设置（与 LLM(...) 的相同）及其默认值",
    "serve.ready": """\
{model} 的服务地址是 {address}/v1（Ctrl-C 结束）。试一试：
  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
-d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    "cli.error.serve_option": "--{option} 接受 {accepted}，而不是 {value!r}",
    "cli.error.chat_template": "无法读取对话模板 {path}：{reason}",
    "cli.error.serve_aborted": "立即结束；放弃了正在处理的请求",
}

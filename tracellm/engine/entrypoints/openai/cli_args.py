"""Options of `tracellm serve` besides the engine's `EngineArgs`, parsed by the command line and used at startup.

vLLM: vllm/entrypoints/openai/cli_args.py::FrontendArgs, with its names. Left out: LoRA, several API
servers, users' own parsers. Added: `shutdown_timeout`, `receive_timeout`, `max_request_bytes`, `on_ready`. Other
defaults: `host` is 127.0.0.1, not all addresses; `allowed_origins` is empty, not all origins; of uvicorn's own messages
only warnings are logged, besides a line for each request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.validation import NUMBER, Rule, all_are, anything, verify
from tracellm.engine.entrypoints.chat_utils import CONTENT_FORMATS
from tracellm.engine.entrypoints.openai.tool_parsers import ToolParserManager

__all__ = ["ServeArgs"]

_LOG_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")
_TOOL_PARSERS = ToolParserManager.list_registered()
_RULES = (
    Rule("host", str, lambda v: bool(v.strip()), "a host name or an address"),
    Rule("port", int, lambda v: 0 <= v < 65536, "a port, from 1 to 65535, or 0 for any that is free"),
    Rule("served_model_name", list, all_are(str, lambda v: bool(v.strip())), "names"),
    Rule("api_key", list, all_are(str, bool), "keys, none of them empty"),
    Rule("allowed_origins", list, all_are(str, bool), "origins, such as https://example.org, or *"),
    Rule("uvicorn_log_level", str, _LOG_LEVELS.__contains__, f"one of {', '.join(_LOG_LEVELS)}, or None"),
    Rule("max_log_len", int, lambda v: v >= 0, "a number of characters, at least 0, or None"),
    Rule("ssl_certfile", str, bool, "a file, or None"),
    Rule("ssl_keyfile", str, bool, "a file, or None"),
    Rule("ssl_ca_certs", str, bool, "a file, or None"),
    Rule("ssl_cert_reqs", int, (0, 1, 2).__contains__, "0 (none), 1 (optional) or 2 (required)"),
    Rule("receive_timeout", NUMBER, lambda v: 0 < v < 1e9, "seconds, above 0"),
    Rule("chat_template_content_format", str, CONTENT_FORMATS.__contains__, f"one of {', '.join(CONTENT_FORMATS)}"),
    Rule("shutdown_timeout", NUMBER, lambda v: 0 <= v < 1e9, "seconds, at least 0"),
    Rule("max_request_bytes", int, lambda v: v >= 1, "a number of bytes, at least 1"),
    Rule("root_path", str, anything, "a path"),
    Rule("tool_call_parser", str, _TOOL_PARSERS.__contains__, f"one of {', '.join(_TOOL_PARSERS)}, or None"),
    Rule("response_role", str, lambda v: bool(v.strip()), "the name of a role"),
)


@dataclass(kw_only=True)
class ServeArgs:
    """Options of the server, validated on construction.

    Raises:
        EngineError: A value is invalid.
    """

    engine_args: EngineArgs
    host: str = "127.0.0.1"
    port: int = 8000
    """TCP port; 0 selects a free one."""
    served_model_name: list[str] = field(default_factory=list)
    """Served model names; responses contain the first. Defaults to the model's own name."""
    api_key: list[str] = field(default_factory=list)
    """Accepted API keys; if empty, no key is required."""
    allowed_origins: list[str] = field(default_factory=list)
    """Origins allowed to send cross-origin requests (CORS)."""
    uvicorn_log_level: str | None = None
    """Log level of uvicorn; None logs warnings, and a line for each request."""
    disable_uvicorn_access_log: bool = False
    """Do not log a line for each request; log levels above `info` never do."""
    enable_log_requests: bool = False
    """Log the parameters of each request, and at the level `debug` its prompt."""
    max_log_len: int | None = None
    """Maximum number of characters or token ids of a logged prompt."""
    ssl_keyfile: str | None = None
    """File with the private key of TLS; None if it is in `ssl_certfile`."""
    ssl_certfile: str | None = None
    """File with the certificate of TLS; None serves HTTP."""
    ssl_ca_certs: str | None = None
    """File with the certificates by which those of clients are verified."""
    ssl_cert_reqs: int = 0
    """Whether clients need a certificate: 0 for no, 1 for optional, 2 for yes."""
    root_path: str = ""
    """Path prefix of the server behind a proxy."""
    response_role: str = "assistant"
    enable_auto_tool_choice: bool = False
    """Let the model choose tools; needs `tool_call_parser`."""
    tool_call_parser: str | None = None
    """Parser of the tool calls that the model writes."""
    exclude_tools_when_tool_choice_none: bool = False
    """Leave the tools out of the prompt if a request forbids their use."""
    chat_template: str | None = None
    """Jinja template that replaces the model's own."""
    chat_template_content_format: str = "auto"
    trust_request_chat_template: bool = False
    """Accept chat templates in requests."""
    return_tokens_as_token_ids: bool = False
    enable_request_id_headers: bool = False
    enable_prompt_tokens_details: bool = False
    enable_force_include_usage: bool = False
    shutdown_timeout: float = 30.0
    """Seconds to wait for running requests after SIGTERM or Ctrl-C before aborting them."""
    receive_timeout: float = 60.0
    """Seconds to wait for the head of a request, and for each next part of its body."""
    max_request_bytes: int = 32 << 20
    """Maximum size of a request body."""
    on_ready: Callable[[str, bool], None] = field(default=lambda address, generates: None, repr=False)
    """Called when the server accepts requests, with its URL and whether its model generates (or only pools)."""

    def __post_init__(self) -> None:
        try:
            verify("serve", self, _RULES)
        except EngineError as error:  # name the option, not the field
            name, _, rest = str(error).removeprefix("serve: `").partition("`")
            raise EngineError(f"--{name.replace('_', '-')}{rest}") from None
        if self.ssl_certfile is None and (self.ssl_keyfile or self.ssl_ca_certs or self.ssl_cert_reqs):
            raise EngineError("--ssl-keyfile, --ssl-ca-certs and --ssl-cert-reqs need --ssl-certfile.")
        if self.enable_auto_tool_choice and self.tool_call_parser is None:
            raise EngineError("--enable-auto-tool-choice requires --tool-call-parser")
        if not self.served_model_name:
            self.served_model_name = [self.engine_args.served_model_name or str(self.engine_args.model)]
        self.engine_args.served_model_name = self.served_model_name[0]

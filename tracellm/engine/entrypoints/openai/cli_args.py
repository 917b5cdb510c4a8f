"""The options of `tracellm serve`, apart from the engine's own, which are `EngineArgs`.

vLLM: vllm/entrypoints/openai/cli_args.py::FrontendArgs, whose names and spelling these are. Left out: TLS, LoRA, tool
and reasoning parsers, several API servers. Three are new: `shutdown_timeout`, `max_request_bytes`, `on_ready`. Three
have another default: `host` is 127.0.0.1 and not every address, `allowed_origins` is none and not all of them, and
uvicorn logs warnings only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.validation import NUMBER, Rule, all_are, anything, verify
from tracellm.engine.entrypoints.chat_utils import CONTENT_FORMATS

__all__ = ["ServeArgs"]

_LOG_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")
_RULES = (
    Rule("host", str, lambda v: bool(v.strip()), "a host name or an address"),
    Rule("port", int, lambda v: 0 <= v < 65536, "a port, from 1 to 65535, or 0 for any that is free"),
    Rule("served_model_name", list, all_are(str, lambda v: bool(v.strip())), "names"),
    Rule("api_key", list, all_are(str, bool), "keys, none of them empty"),
    Rule("allowed_origins", list, all_are(str, bool), "origins, such as https://example.org, or *"),
    Rule("uvicorn_log_level", str, _LOG_LEVELS.__contains__, f"one of {', '.join(_LOG_LEVELS)}"),
    Rule("chat_template_content_format", str, CONTENT_FORMATS.__contains__, f"one of {', '.join(CONTENT_FORMATS)}"),
    Rule("shutdown_timeout", NUMBER, lambda v: 0 <= v < 1e9, "seconds, at least 0"),
    Rule("max_request_bytes", int, lambda v: v >= 1, "a number of bytes, at least 1"),
    Rule("root_path", str, anything, "a path"),
    Rule("response_role", str, lambda v: bool(v.strip()), "the name of a role"),
)


@dataclass(kw_only=True)
class ServeArgs:
    """How to serve; checked when it is made.

    Raises:
        EngineError: a value that cannot be.
    """

    engine_args: EngineArgs
    host: str = "127.0.0.1"
    port: int = 8000
    """0: any that is free."""
    served_model_name: list[str] = field(default_factory=list)
    """The names under which the model is served; the first stands in responses. None: the model's own."""
    api_key: list[str] = field(default_factory=list)
    """Of these a request must send one. None: everybody is served."""
    allowed_origins: list[str] = field(default_factory=list)
    """Websites whose scripts may ask this server (CORS). None: no website's."""
    uvicorn_log_level: str = "warning"
    disable_uvicorn_access_log: bool = False
    """No line for each request; there is one from the log level `info` on."""
    root_path: str = ""
    """The path at which a proxy shows this server."""
    response_role: str = "assistant"
    chat_template: str | None = None
    """A Jinja template in place of the model's own."""
    chat_template_content_format: str = "auto"
    trust_request_chat_template: bool = False
    """Requests may bring their own chat template."""
    return_tokens_as_token_ids: bool = False
    enable_request_id_headers: bool = False
    enable_prompt_tokens_details: bool = False
    enable_force_include_usage: bool = False
    shutdown_timeout: float = 30.0
    """Seconds that requests may still take after SIGTERM or Ctrl-C before they are given up."""
    max_request_bytes: int = 32 << 20
    """The longest body that is read."""
    on_ready: Callable[[str], None] = field(default=lambda address: None, repr=False)
    """Called with the server's address, `http://127.0.0.1:8000`, when it takes requests."""

    def __post_init__(self) -> None:
        try:
            verify("serve", self, _RULES)
        except EngineError as error:  # options are written with dashes
            name, _, rest = str(error).removeprefix("serve: `").partition("`")
            raise EngineError(f"--{name.replace('_', '-')}{rest}") from None
        if not self.served_model_name:
            self.served_model_name = [self.engine_args.served_model_name or str(self.engine_args.model)]
        self.engine_args.served_model_name = self.served_model_name[0]

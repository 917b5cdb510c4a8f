"""Makes `import vllm` give tracellm's engine in processes that a script under `--engine tracellm` starts."""

from tracellm.as_vllm import become

become(__name__)

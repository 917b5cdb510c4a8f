"""What `import vllm` finds in a process that a script under `--engine tracellm` has started (tracellm/as_vllm)."""

from tracellm.as_vllm import become

become(__name__)

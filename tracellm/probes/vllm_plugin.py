"""What a vLLM calls in each of its processes: its plugin mechanism loads the entry point `vllm.general_plugins`.

A process that belongs to a recording joins it here at the latest, and finds the models that `tracellm run --model` has
replaced; everywhere else this does nothing, and at once. One that multiprocessing spawns does so when tracellm is
imported in it, before anything else: some of vLLM's, the servers of `--api-server-count 2`, look for the model first.
"""

import os

__all__ = ["join_recording"]


def join_recording() -> None:
    """Take part in the recording that this process was started in, if it does not do so already."""
    if "TRACELLM_MODELS" in os.environ:
        from tracellm.probes.vllm_models import replace_models

        replace_models()
    if "TRACELLM_RECORDING" in os.environ:
        from tracellm.probes.spawned import join

        join()

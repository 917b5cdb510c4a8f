"""Memory and traffic of a model on several GPUs, computed from its config alone: `tracellm plan`.

The engine's own model is made for each rank on PyTorch's `meta` device, which has shapes but no memory, and runs a step
there. Its groups count what would be sent (ranks.py). gpus.py has the GPUs' published figures, summary.py the output.
"""

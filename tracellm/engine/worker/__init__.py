"""The worker: owns the device, the model and the KV cache, and runs the steps that the scheduler plans.

Read `gpu_model_runner.py` first: it runs a step. `gpu_input_batch.py` and `block_table.py` hold the state between
steps, `prompt_logprobs.py` collects results over several, and `async_output.py` brings the tokens back to the host.
"""

"""The worker: owns the device, the model and the KV cache, and runs the steps that the scheduler planned.

Read `gpu_model_runner.py` first: a step is there. Then `gpu_input_batch.py` and `block_table.py`, what is kept between
steps, and `prompt_logprobs.py`, what is collected over several. `async_output.py` goes with sched/async_scheduler.py.
"""

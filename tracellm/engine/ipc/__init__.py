"""The way between the front end and the engine core: messages, their encoding, the three clients, the launch.

vLLM: vllm/v1/engine/core_client.py, vllm/v1/engine/utils.py, vllm/v1/serial_utils.py.
"""

"""The connection between front end and engine core: clients, messages and their encoding, and the process launch.

vLLM: vllm/v1/engine/core_client.py, vllm/v1/engine/utils.py, vllm/v1/serial_utils.py.
"""

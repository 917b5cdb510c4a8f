"""`/tokenize` and `/detokenize`: texts and conversations to tokens, and back.

vLLM: vllm/entrypoints/openai/serving_tokenization.py; later versions: vllm/entrypoints/serve/tokenize/.
"""

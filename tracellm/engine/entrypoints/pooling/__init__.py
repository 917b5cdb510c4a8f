"""Entry points of pooling models: `LLM`'s methods (`methods.py`), and the server's routes (`api_router.py`).

vLLM: vllm/entrypoints/openai/serving_embedding.py, serving_pooling.py and serving_score.py beside it.
"""

"""Entry points of pooling models: `LLM`'s methods (`methods.py`), and the server's routes (`api_router.py`)."""

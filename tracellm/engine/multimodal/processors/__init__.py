"""Multimodal processors of the supported models, a file for each family; registry.py names their classes."""

"""Layers that the models share: linear layers, norms, rotary embedding, activations, attention, embeddings."""

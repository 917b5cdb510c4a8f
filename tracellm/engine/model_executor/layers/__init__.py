"""What the models share: linear layers, norms, rotary embedding, activation, attention, embeddings."""

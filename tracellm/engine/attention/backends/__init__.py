"""Attention backends: plain PyTorch, C++ kernels for a CPU, Triton kernels for a GPU."""

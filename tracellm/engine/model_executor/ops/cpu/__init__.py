"""The CPU's own kernels, in C++ beside this file: linear.cpp, attention.cpp, elementwise.cpp, and layers.cpp,
which calls them for all layers at once; vectors.h and kernels.h are for all.

Read linear.cpp first: nearly all of a step's time is there. native.py compiles and loads them; `CpuOps` (../cpu_ops.py)
calls them, and does without where they cannot be compiled.

vLLM: csrc/cpu/, which is compiled when vLLM is built, for AVX2 and for AVX-512.
"""

"""C++ kernels for a CPU: linear.cpp, attention.cpp, elementwise.cpp, and layers.cpp, which calls them for all layers.

Read linear.cpp first: nearly all of a step's time is there. native.py compiles and loads the kernels; `CpuOps`
(../cpu_ops.py) and the `cpu` attention backend call them.

vLLM: csrc/cpu/, which is compiled when vLLM is built, for AVX2 and for AVX-512.
"""

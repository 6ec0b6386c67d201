"""Compiled Triton kernels on a machine without a GPU: their PTX, executed by NumPy.

The interpreter of Triton runs the source of a kernel. What reaches a GPU is PTX, in which masks have become predicates,
reductions shuffles, and accesses vectors; :mod:`ptx.executor` runs that, and :mod:`ptx.driver` puts it where Triton
expects a GPU.
"""

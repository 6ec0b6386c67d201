"""Triton kernels, one module for each family of instructions; imported as ``pto_gpu.kernels``."""

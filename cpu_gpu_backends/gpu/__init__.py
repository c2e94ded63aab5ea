"""Kernels for GPUs: from loop nests to OpenCL C and CUDA C, and what runs them."""

"""Whole graphs on the processor: kernels, memory plan, threads, one native call."""

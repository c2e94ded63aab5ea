"""Lowering of fused operators to accelerator programs."""

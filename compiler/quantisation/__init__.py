"""Post-training quantisation: a float graph and samples to a graph of 8-bit tensors."""

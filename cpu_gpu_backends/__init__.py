"""Code generators that turn loop nests into CPU and GPU programs."""

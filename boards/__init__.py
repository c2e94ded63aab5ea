"""Boards as data, and the flows that make bitstreams for them."""

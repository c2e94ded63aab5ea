"""Boards as data, and the flows that build bitstreams for them."""

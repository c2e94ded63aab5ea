"""Readers that turn model files into graphs."""

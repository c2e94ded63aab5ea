"""Compiled models and the devices that run them."""

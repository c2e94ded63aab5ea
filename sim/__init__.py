"""Cycle-exact simulation of the accelerator."""

"""From a model file to a program for the accelerator."""

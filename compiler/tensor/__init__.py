"""Tensor expressions, schedules and loop nests: operators declared once, arranged per target."""

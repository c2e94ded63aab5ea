"""Registers that keep a value beside a pipeline until the stage that uses it."""

from typing import Any

from amaranth.hdl import Module, Signal


def delayed(m: Module, value: Any, cycles: int, *, name: str) -> Any:
    """Return a value or view as it was some cycles ago; it is 0 until it has passed."""
    for stage in range(1, cycles + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}")
        m.d.sync += register.eq(value)
        value = register
    return value

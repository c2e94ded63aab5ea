"""Registers that keep a value beside a pipeline until the stage that uses it."""

from typing import Any

from amaranth.hdl import Module, Signal


def delayed(m: Module, value: Any, cycles: int, *, name: str, is_data: bool = False) -> Any:
    """Return a value or view as it was some cycles ago.

    It is 0 until it has passed. Data needs no reset, as nothing uses it that is not marked valid:
    then its registers fit into shift registers and multipliers.
    """
    for stage in range(1, cycles + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}", reset_less=is_data)
        m.d.sync += register.eq(value)
        value = register
    return value

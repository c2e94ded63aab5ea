"""Registers of pipelines: delays, and stages that rest while nothing valid enters them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value


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


def staged(m: Module, valid: Value, value: Value, *, name: str) -> Signal:
    """Return data as it was one cycle ago, or 0 if it was not valid then.

    So a pipeline that has nothing to do rests at 0, which saves power, and time in a simulation.
    """
    register = Signal(value.shape(), name=name, reset_less=True)
    m.d.sync += register.eq(Mux(valid, value, 0))
    return register

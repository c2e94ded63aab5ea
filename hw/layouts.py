"""Amaranth layouts of instructions and micro-ops, read from their description."""

from typing import Any

from amaranth.hdl import Shape, signed, unsigned
from amaranth.lib import data

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import OPCODE_BITS, encoded_bits, layout
from tilewright.isa.instructions import AnyUop, Instruction


def instruction_layout(cls: type[Instruction], config: AcceleratorConfig) -> data.Layout:
    """Lay out the operands of an instruction class as a queue holds them, without the opcode.

    A nested operand such as ``loops.0.extent`` is the member ``loops_0_extent``.
    """
    return _flexible(cls, config, skipped_bits=OPCODE_BITS)


def uop_bits(cls: type[AnyUop], config: AcceleratorConfig) -> int:
    """Width of a micro-op as its scratchpad holds it."""
    return encoded_bits(cls, config)


def uop_layout(cls: type[AnyUop], config: AcceleratorConfig) -> data.Layout:
    """Lay out a micro-op class as its scratchpad holds it: without the unused upper bits."""
    return _flexible(cls, config, skipped_bits=0)


def _flexible(
    cls: type[Any], config: AcceleratorConfig, *, skipped_bits: int
) -> data.FlexibleLayout:
    members: dict[int | str, data.Field] = {
        item.field.path.replace(".", "_"): data.Field(
            _shape(item.width, is_signed=item.low < 0), item.position - skipped_bits
        )
        for item in layout(cls, config)
        if item.position >= skipped_bits
    }
    return data.FlexibleLayout(encoded_bits(cls, config) - skipped_bits, members)


def _shape(width: int, *, is_signed: bool) -> Shape:
    return signed(width) if is_signed else unsigned(width)

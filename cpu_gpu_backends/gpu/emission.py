"""Intrinsics of GPUs as text of a dialect."""

from collections.abc import Mapping
from math import prod

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Const, Expr, Tensor
from tilewright.compiler.tensor.intervals import Ranges
from tilewright.compiler.tensor.simplify import simplify
from tilewright.compiler.tensor.statements import IntrinsicCall, Region
from tilewright.cpu_gpu_backends.gpu.expressions import ExpressionWriter
from tilewright.cpu_gpu_backends.gpu.intrinsics import (
    WARP_COLUMNS,
    WARP_ROWS,
    Emitter,
)
from tilewright.cpu_gpu_backends.gpu.tiles import WARP_THREADS


def emit_intrinsic(
    call: IntrinsicCall, writer: ExpressionWriter, spaces: Mapping[Tensor, str], ranges: Ranges
) -> tuple[str, ...]:
    """Return the lines that carry out `call`; `spaces` qualifies pointers to each tensor."""
    emitter = Emitter(call.intrinsic.emitter)
    match emitter:
        case Emitter.DOT4:
            return (_dot4(call, writer, spaces, ranges),)
        case Emitter.MATRIX_MULTIPLY:
            return (_matrix_multiply(call, writer, ranges),)
        case Emitter.STORE_FRAGMENT:
            return (_store_fragment(call, writer, ranges),)
        case _:
            assert_never(emitter)


def _dot4(
    call: IntrinsicCall, writer: ExpressionWriter, spaces: Mapping[Tensor, str], ranges: Ranges
) -> str:
    def element(region: Region) -> str:
        return writer.element(region.tensor, region.offsets, ranges)

    def packed(region: Region) -> str:
        return f"*({spaces[region.tensor]}const int *)&{element(region)}"

    assert call.first is not None, "a dot product is a reduction"
    place = element(call.output)
    left, right = map(packed, call.inputs)
    return f"{place} = tw_dot4({left}, {right}, {_so_far(call.first, place, writer, ranges)});"


def _so_far(first: Expr, place: str, writer: ExpressionWriter, ranges: Ranges) -> str:
    if isinstance(first, Const):
        return "0" if first.value else place
    return f"({writer.write(first, ranges)} ? 0 : {place})"


def fragment_registers(tensor: Tensor) -> int:
    """Return how many registers of each thread of a warp hold `tensor`."""
    return prod(tensor.shape) // WARP_THREADS


def _fragment(region: Region, writer: ExpressionWriter, ranges: Ranges) -> str:
    """Return the registers of one tile of a fragment: tiles lie row by row."""
    *leading, _, columns = region.tensor.shape
    assert prod(leading) == 1, "a warp holds one matrix"
    row, column = (region.offsets[axis] for axis in region.axes)
    tile = row // WARP_ROWS * (columns // WARP_COLUMNS) + column // WARP_COLUMNS
    registers = WARP_ROWS * WARP_COLUMNS // WARP_THREADS
    position = writer.write(simplify(tile * registers, ranges), ranges)
    return f"&{writer.tensors[region.tensor]}[{position}]"


def _rows(region: Region, writer: ExpressionWriter, ranges: Ranges) -> str:
    """Return where a tile in shared memory begins, and the elements from row to row."""
    tensor = region.tensor
    row, column = region.axes
    assert column == len(tensor.shape) - 1, "rows of a tile lie in a row of memory"
    place = writer.element(tensor, region.offsets, ranges)
    return f"&{place}, {prod(tensor.shape[row + 1 :])}"


def _matrix_multiply(call: IntrinsicCall, writer: ExpressionWriter, ranges: Ranges) -> str:
    """Return the product; the registers are 0 when they are declared, just before the first."""
    operands = ", ".join(_rows(region, writer, ranges) for region in call.inputs)
    return f"tw_matrix_multiply({_fragment(call.output, writer, ranges)}, {operands});"


def _store_fragment(call: IntrinsicCall, writer: ExpressionWriter, ranges: Ranges) -> str:
    (source,) = call.inputs
    target = _rows(call.output, writer, ranges)
    return f"tw_store_fragment({target}, {_fragment(source, writer, ranges)});"

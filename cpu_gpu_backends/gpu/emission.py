"""Intrinsics of GPUs as text of a dialect."""

from collections.abc import Mapping
from math import prod

from tilewright.compiler.tensor.expressions import Const, Expr, Tensor
from tilewright.compiler.tensor.intervals import Ranges
from tilewright.compiler.tensor.statements import IntrinsicCall, Region
from tilewright.cpu_gpu_backends.gpu.expressions import ExpressionWriter
from tilewright.cpu_gpu_backends.gpu.intrinsics import Emitter


def emit_intrinsic(
    call: IntrinsicCall, writer: ExpressionWriter, spaces: Mapping[Tensor, str], ranges: Ranges
) -> tuple[str, ...]:
    """Return the lines that carry out `call`; `spaces` qualifies pointers to each tensor."""
    match Emitter(call.intrinsic.emitter):
        case Emitter.DOT4:
            return (_dot4(call, writer, spaces, ranges),)
        case _:
            raise NotImplementedError


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
    return prod(tensor.shape) // 32

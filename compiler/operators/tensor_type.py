"""The type of a tensor, and the checks of operand types that operators share."""

from dataclasses import dataclass

from tilewright.compiler.operators.datatype import DataType
from tilewright.compiler.operators.integer import Padding, Pair

QUANTISED = (DataType.INT8, DataType.UINT8)


class InferenceError(ValueError):
    """An operator cannot take operands of the given types; the text says why."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a tensor."""

    shape: tuple[int, ...]
    dtype: DataType

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def window_positions(size: int, kernel: int, stride: int, pads: int, dilation: int = 1) -> int:
    """Return how many windows fit along an axis of `size` elements with `pads` around it."""
    return (size + pads - dilation * (kernel - 1) - 1) // stride + 1


def operands(inputs: tuple[TensorType, ...], *counts: int) -> tuple[TensorType, ...]:
    """Return the inputs, whose number must be one of `counts`."""
    if len(inputs) not in counts:
        raise InferenceError(f"takes {' or '.join(map(str, counts))} inputs, not {len(inputs)}")
    return inputs


def require(operand: TensorType, *dtypes: DataType) -> TensorType:
    """Return an operand, whose element type must be one of `dtypes`."""
    if operand.dtype not in dtypes:
        raise InferenceError(f"takes {' or '.join(map(str, dtypes))}, not {operand.dtype}")
    return operand


def image(operand: TensorType) -> tuple[int, int, int, int]:
    """Return the four sizes of an operand."""
    if len(operand.shape) != 4:
        raise InferenceError(f"takes a tensor of 4 axes, not {operand}")
    batch, height, width, channels = operand.shape
    return batch, height, width, channels


def broadcast(*inputs: TensorType) -> tuple[int, ...]:
    """Return the shape that all operands broadcast to, as numpy defines it."""
    rank = max(len(operand.shape) for operand in inputs)
    padded = [(1,) * (rank - len(operand.shape)) + operand.shape for operand in inputs]
    shape = []
    for sizes in zip(*padded, strict=True):
        longer = {size for size in sizes if size != 1}
        if len(longer) > 1:
            raise InferenceError(f"cannot broadcast {' and '.join(map(str, inputs))}")
        shape.append(longer.pop() if longer else 1)
    return tuple(shape)


def windows(size: Pair, kernel: Pair, stride: Pair, pads: Padding, dilation: Pair = (1, 1)) -> Pair:
    """Return how many windows fit into an image of `size`, down and across."""
    if min(kernel) < 1 or min(stride) < 1 or min(dilation) < 1 or min(pads) < 0:
        raise InferenceError("takes positive kernel, stride and dilation and no negative padding")
    top, left, bottom, right = pads
    rows = window_positions(size[0], kernel[0], stride[0], top + bottom, dilation[0])
    columns = window_positions(size[1], kernel[1], stride[1], left + right, dilation[1])
    if rows < 1 or columns < 1:
        raise InferenceError(f"kernel {kernel} does not fit into an image of {size}")
    return rows, columns

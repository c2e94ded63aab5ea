"""Kernels that only move values: into and out of the program, and into borders."""

from dataclasses import replace

from tilewright.compiler.operators import DataType, Padding
from tilewright.compiler.tensor.build import cast, constant
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.cpu.arrangement import arrange
from tilewright.cpu_gpu_backends.cpu.builder import Activation, Layout
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.program import View, whole_view
from tilewright.cpu_gpu_backends.cpu.quantised import STORED_OFFSET


def padded(
    context: Context, name: str, pads: Padding, fill: float, dtype: ScalarType | None = None
) -> Activation:
    """Return a tensor with a border of at least `pads` that holds `fill`: a copy if need be.

    Parameters
    ----------
    dtype
        The element type that it must have; by default the one that it has.
    """
    activation = context.activations[name]
    dtype = dtype or activation.dtype
    suits = all(have >= need for have, need in zip(activation.border, pads, strict=True))
    if dtype is activation.dtype and (not any(pads) or (suits and activation.fill == fill)):
        return activation
    key = (name, pads, fill, dtype)
    if key not in context.copies:
        copy = context.scratch(name, Layout(pitch=activation.pitch, border=pads, fill=fill), dtype)
        add_border(context, name, copy)
        kept = placeholder(activation.shape, activation.dtype, "kept")
        _add(context, name, _copied(kept, dtype), activation.view, copy.view)
        context.copies[key] = copy
    return context.copies[key]


def dense_copy(context: Context, name: str) -> Activation:
    """Return a copy of a tensor without gaps."""
    activation = context.activations[name]
    copy = context.scratch(name, Layout(pitch=activation.shape[-1]), activation.dtype)
    kept = placeholder(activation.shape, activation.dtype, "kept")
    _add(context, name, _copied(kept, kept.dtype), activation.view, copy.view)
    return copy


def copy_in(context: Context, name: str, buffer: str, layout: Layout) -> None:
    """Bring an input of the graph from the caller's buffer to where kernels read it."""
    tensor = context.graph.tensors[name]
    activation = context.allocate(name, layout, None)
    add_border(context, name, activation)
    given = placeholder(tensor.shape, ScalarType(tensor.dtype.value), "given")
    signed = tensor.dtype is DataType.INT8
    taken = _moved(given, ScalarType.UINT8) if signed else _copied(given, activation.dtype)
    _add(context, name, taken, whole_view(buffer, tensor.shape), activation.view)


def copy_out(context: Context, name: str, buffer: str) -> None:
    """Bring an output of the graph to the caller's buffer."""
    activation, tensor = context.activations[name], context.graph.tensors[name]
    kept = placeholder(tensor.shape, activation.dtype, "kept")
    signed = tensor.dtype is DataType.INT8
    given = (
        _moved(kept, ScalarType.INT8) if signed else _copied(kept, ScalarType(tensor.dtype.value))
    )
    _add(context, name, given, activation.view, whole_view(buffer, tensor.shape))


def add_border(context: Context, name: str, activation: Activation) -> None:
    """Fill the border of a tensor."""
    if not activation.has_border:
        return
    batch, height, width, _ = activation.shape
    top, left, bottom, right = activation.border
    image, row, column, _ = activation.view.strides
    start = activation.view.offset - top * row - left * column
    lines = (left + width + right) * activation.pitch
    sides = (
        (start, top, lines),
        (start + (top + height) * row, bottom, lines),
        (start + top * row, height, left * activation.pitch),
        (start + top * row + (left + width) * column, height, right * activation.pitch),
    )
    for offset, rows, length in sides:
        if rows * length:
            view = View(
                buffer=activation.view.buffer,
                offset=offset,
                shape=(batch, rows, length),
                strides=(image, row, 1),
            )
            fill_view(context, f"{name}/border", view, activation, is_border=True)


def fill_view(
    context: Context, layer: str, view: View, activation: Activation, *, is_border: bool = False
) -> None:
    """Set what lies in a view to what the border of a tensor holds."""
    value = activation.fill if activation.dtype.is_float else int(activation.fill)
    fill = constant(value, activation.dtype)
    filled = compute(view.shape, lambda *at: fill, "border")
    schedule = Schedule(filled)
    schedule.vectorize("border", schedule.loops("border")[-1])
    context.builder.kernel(layer, lower(schedule), {"border": view}, is_border=is_border)


def copy_view(context: Context, layer: str, dtype: ScalarType, source: View, place: View) -> None:
    """Copy what lies in a view to another one of the same shape."""
    kept = placeholder(source.shape, dtype, "kept")
    _add(context, layer, _copied(kept, dtype), source, place)


def _copied(source: Tensor, dtype: ScalarType) -> Tensor:
    return compute(source.shape, lambda *at: cast(source[at], dtype), "copy")


def _moved(source: Tensor, dtype: ScalarType) -> Tensor:
    """Return bytes with 128 added modulo 256: from int8 to what is stored, and back."""
    half = constant(STORED_OFFSET, ScalarType.UINT8)

    def element(*at: Expr) -> Expr:
        return cast(cast(source[at], ScalarType.UINT8) + half, dtype)

    return compute(source.shape, element, "copy")


def _add(context: Context, name: str, target: Tensor, source: View, place: View) -> None:
    schedule = Schedule(target)
    arrange(schedule)
    (given,) = schedule.state.inputs
    views = {given.name: replace(source), target.name: place}
    context.builder.kernel(f"{name}/copy", lower(schedule), views)

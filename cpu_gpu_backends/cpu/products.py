"""Products of two activations: the matrix kernel, its weights read where the second one lies."""

from math import prod

from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.convolution import matrix_nest
from tilewright.cpu_gpu_backends.cpu.copies import dense_copy
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.layouts import matrix_plan, output_panels
from tilewright.cpu_gpu_backends.cpu.matrix_schedule import Window
from tilewright.cpu_gpu_backends.cpu.program import View
from tilewright.cpu_gpu_backends.cpu.tails import TailInputs, apply_tail, as_element, reshaped


def lower_product(context: Context, group: Group, output: Activation) -> None:
    """Add the kernel of a product and its tail; leading axes of both operands are alike."""
    left, right = group.first.inputs
    *leading, rows, depth = context.graph.tensors[left].shape
    batch, columns = prod(leading), context.graph.tensors[right].shape[-1]
    a = joined_operand(context, left, (batch, rows, depth))
    panels = output_panels(context.graph, group, context.target)
    b = joined_operand(context, right, (batch, depth, columns))
    window = product_window(batch, rows, depth, a.strides[1])
    # Padded columns read what follows in memory; nobody reads their results.
    inputs = TailInputs.of(context, (*output.shape[:-1], panels.channels))
    inputs.reshape((batch, 1, rows, panels.channels))

    def epilogue(total: Expr, at: tuple[Expr, ...]) -> Expr:
        value, main = total, group.first.outputs[0]
        for node in group.tail:
            value = apply_tail(node, main, value, inputs, at)
            main = node.outputs[0]
        return as_element(value, output.dtype)

    nest = matrix_nest(
        window,
        panels,
        dtype=ScalarType.FLOAT32,
        weight_dtype=ScalarType.FLOAT32,
        epilogue=epilogue,
        target=context.target,
        weights_per_image=True,
        packed=False,
        plan=matrix_plan(group),
    )
    weights = View(
        buffer=b.buffer,
        offset=b.offset,
        shape=(batch, panels.count, 1, 1, depth, panels.width),
        strides=(b.strides[0], panels.width, 0, 0, b.strides[1], 1),
    )
    image = View(buffer=a.buffer, offset=a.offset, shape=window.image, strides=(a.strides[0], 0, 1))
    views = {
        **inputs.views,
        "image": image,
        "weights": weights,
        "out": inputs.view_of(output),
    }
    context.builder.kernel(group.output, nest, views)


def product_window(batch: int, rows: int, length: int, step: int) -> Window:
    """Return the window of a product of a matrix for each image, its rows `step` apart."""
    return Window(
        batch=batch,
        rows=1,
        columns=rows,
        row_step=1,
        column_step=step,
        kernel_rows=1,
        row_dilation=1,
        kernel_columns=1,
        column_dilation=1,
        length=length,
    )


def joined_operand(context: Context, name: str, shape: tuple[int, ...]) -> View:
    """Return an operand with its leading axes joined, copied if its place does not allow that."""
    view = reshaped(context.activations[name].view, shape)
    if view is None:
        view = reshaped(dense_copy(context, name).view, shape)
        assert view is not None, "a dense tensor can be viewed with any axes"
    return view

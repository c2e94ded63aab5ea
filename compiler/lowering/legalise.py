"""From operators of the integer graph to kernels of the accelerator."""

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.attention import lower_matrix_product
from tilewright.compiler.lowering.broadcast import (
    Operand,
    lower_expand,
    needing,
    operand_of,
    widened,
)
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    Kernel,
    LaneKernel,
    LaneSource,
    Legalised,
    MatrixKernel,
    Requantisation,
    Window,
)
from tilewright.compiler.lowering.movement import (
    lower_concat,
    lower_pad,
    lower_slice,
    lower_upsample,
)
from tilewright.compiler.lowering.multiplication import lower_multiplication
from tilewright.compiler.lowering.tensors import TensorShape
from tilewright.compiler.lowering.transposed import lower_transposed
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Concat,
    Conv2d,
    ConversionOperator,
    ConvTranspose2d,
    DataType,
    Expand,
    FloatOperator,
    Gather,
    LayerNorm,
    LogicOperator,
    Lookup,
    MatMul,
    MaxPool2d,
    Mul,
    Pad,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Transpose,
    Upsample2d,
)
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import VectorOperation

_MOVES = HostReason(text="the reshape moves data between channels")


def legalise(node: Node, graph: Graph, config: AcceleratorConfig) -> Decision:
    """Return the kernels of a node, or the reason why it has none.

    A reshape that moves no data needs no kernel; see `is_view`.
    """
    for name in (*node.inputs, *node.outputs):
        tensor = graph.tensors[name]
        if name in graph.constants:
            continue
        if tensor.dtype is not DataType.INT8:
            return HostReason(text=f"{tensor.dtype.value} tensor {tensor.name!r}")
        if len(tensor.shape) < 2 or 0 in tensor.shape:
            return HostReason(text=f"tensor {tensor.name!r} of shape {list(tensor.shape)}")
    return _dispatch(node, graph, config)


def _dispatch(node: Node, graph: Graph, config: AcceleratorConfig) -> Decision:  # noqa: C901
    match node.op:
        case Conv2d() as op:
            return _one(_conv(node, op, graph))
        case Add() as op:
            return _add(node, op, graph)
        case AveragePool2d() as op:
            return _one(_average_pool(node, op, graph))
        case MaxPool2d() as op:
            return _one(_max_pool(node, op, graph))
        case Requantize() as op:
            return _one(_requantize(node, op, graph))
        case Clip() as op:
            return _one(_element_wise(node, graph, low=op.low, high=op.high))
        case Lookup():
            table = np.asarray(graph.constants[node.inputs[1]], dtype=np.int8)
            return _one(_element_wise(node, graph, table=table))
        case Concat() as op:
            return lower_concat(node, op, graph, config)
        case Pad() as op:
            return lower_pad(node, op, graph, config)
        case Slice() as op:
            return lower_slice(node, op, graph, config)
        case Reshape():
            return Legalised(kernels=()) if is_view(node, graph) else _MOVES
        case ConvTranspose2d() as op:
            return lower_transposed(node, op, graph, config)
        case Mul() as op:
            return lower_multiplication(node, op, graph, config)
        case MatMul() as op:
            return lower_matrix_product(node, op, graph, config)
        case Softmax() | LayerNorm():
            return _unsupported(node)
        case Upsample2d() as op:
            return lower_upsample(node, op, graph)
        case Expand():
            return lower_expand(node, graph)
        case Transpose() | Gather():
            return _unsupported(node)
        case _ if isinstance(node.op, ConversionOperator | FloatOperator | LogicOperator):
            return _unsupported(node)
        case _:
            assert_never(node.op)


def _unsupported(node: Node) -> HostReason:
    return HostReason(text=f"the accelerator has no {type(node.op).__name__}")


def is_view(node: Node, graph: Graph) -> bool:
    """Whether a reshape keeps images and channels, so that its bytes in DRAM stay the same."""
    before = graph.tensors[node.inputs[0]].shape
    after = graph.tensors[node.outputs[0]].shape
    if min(len(before), len(after)) < 2:
        return False
    return (before[0], before[-1]) == (after[0], after[-1])


def _one(kernel: Kernel) -> Legalised:
    return Legalised(kernels=(kernel,))


def _shape(graph: Graph, name: str) -> TensorShape:
    return TensorShape.of(graph.tensors[name].shape)


def _splat(
    bias: int, multiplier: int, shift: int, *, limits: tuple[int, int, int]
) -> Requantisation:
    zero_point, low, high = limits
    return Requantisation(
        bias=np.array([bias]),
        multiplier=np.array([multiplier]),
        shift=np.array([shift]),
        zero_point=zero_point,
        low=low,
        high=high,
    )


def _conv(node: Node, op: Conv2d, graph: Graph) -> Kernel:
    source, *names = node.inputs
    weights, bias, multiplier, shift = (np.asarray(graph.constants[name]) for name in names)
    output = _shape(graph, node.outputs[0])
    outputs, kernel_rows, kernel_columns, per_group = weights.shape
    window = Window(
        kernel=(kernel_rows, kernel_columns),
        stride=op.stride,
        before=(op.pads[0], op.pads[1]),
        dilation=op.dilation,
        pad_value=op.input_zero_point,
    )
    scale = Requantisation(
        bias=bias,
        multiplier=multiplier,
        shift=shift,
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )
    if op.groups > 1 and per_group == 1 and op.groups == outputs:
        return LaneKernel(
            name=node.name,
            sources=(LaneSource(tensor=source),),
            output=node.outputs[0],
            window=window,
            operation=VectorOperation.MAC,
            coefficients=weights.reshape(outputs, -1).T.astype(np.int16),
            scale=scale,
            rows=output.height,
            columns=output.width,
            channels=output.channels,
        )
    return MatrixKernel(
        name=node.name,
        source=source,
        output=node.outputs[0],
        window=window,
        weights=weights,
        groups=op.groups,
        scale=scale,
    )


def _add(node: Node, op: Add, graph: Graph) -> Decision:
    output = _shape(graph, node.outputs[0])
    shifted = _add_channels(node, op, graph)
    if shifted is not None:
        return _one(shifted)
    operands: list[Operand] = []
    for number, name in enumerate(node.inputs):
        operand = operand_of(node, name, graph)
        if isinstance(operand, HostReason):
            return operand
        wide = f"{node.outputs[0]}#wide{number}"
        operands.append(widened(operand, output, f"{node.name}#wide{number}", wide))
    total = LaneKernel(
        name=node.name,
        sources=tuple(LaneSource(tensor=operand.tensor) for operand in operands),
        output=node.outputs[0],
        window=Window(),
        operation=VectorOperation.MAC,
        coefficients=np.array([[op.a_coefficient], [op.b_coefficient]], dtype=np.int16),
        scale=add_scale(op),
        rows=output.height,
        columns=output.width,
        channels=output.channels,
    )
    return needing(operands, total)


def _add_channels(node: Node, op: Add, graph: Graph) -> Kernel | None:
    """Return the addition of a constant for each channel, which joins the bias, or None."""
    output, tensors = _shape(graph, node.outputs[0]), graph.operands(node)
    coefficients = (op.a_coefficient, op.b_coefficient)
    for own, other in ((0, 1), (1, 0)):
        name = node.inputs[other]
        if (
            name not in graph.constants
            or tensors[own].shape != graph.tensors[node.outputs[0]].shape
        ):
            continue
        values = np.asarray(graph.constants[name]).astype(np.int64)
        if values.size != values.shape[-1]:
            continue
        bias = op.bias + coefficients[other] * np.broadcast_to(values.reshape(-1), output.channels)
        scale = Requantisation(
            bias=bias,
            multiplier=np.full(output.channels, op.multiplier),
            shift=np.full(output.channels, op.shift),
            zero_point=op.zero_point,
            low=op.low,
            high=op.high,
        )
        return LaneKernel(
            name=node.name,
            sources=(LaneSource(tensor=node.inputs[own]),),
            output=node.outputs[0],
            window=Window(),
            operation=VectorOperation.MAC,
            coefficients=np.array([[coefficients[own]]], dtype=np.int16),
            scale=scale,
            rows=output.height,
            columns=output.width,
            channels=output.channels,
        )
    return None


def add_scale(op: Add) -> Requantisation:
    """Return the requantisation at the end of an addition."""
    return _splat(op.bias, op.multiplier, op.shift, limits=(op.zero_point, op.low, op.high))


def _average_pool(node: Node, op: AveragePool2d, graph: Graph) -> Kernel:
    output = _shape(graph, node.outputs[0])
    limits = (op.zero_point, op.low, op.high)
    taps = op.kernel[0] * op.kernel[1]
    bias = -taps * op.input_zero_point
    return LaneKernel(
        name=node.name,
        sources=(LaneSource(tensor=node.inputs[0]),),
        output=node.outputs[0],
        window=Window(
            kernel=op.kernel,
            stride=op.stride,
            before=(op.pads[0], op.pads[1]),
            pad_value=op.input_zero_point,
        ),
        operation=VectorOperation.SUM,
        scale=_splat(bias, op.multiplier, op.shift, limits=limits),
        border=tuple(
            (entry.count, _splat(bias, entry.multiplier, entry.shift, limits=limits))
            for entry in op.border
        ),
        rows=output.height,
        columns=output.width,
        channels=output.channels,
    )


def _max_pool(node: Node, op: MaxPool2d, graph: Graph) -> Kernel:
    output = _shape(graph, node.outputs[0])
    return LaneKernel(
        name=node.name,
        sources=(LaneSource(tensor=node.inputs[0]),),
        output=node.outputs[0],
        window=Window(
            kernel=op.kernel,
            stride=op.stride,
            before=(op.pads[0], op.pads[1]),
            pad_value=-128,
        ),
        operation=VectorOperation.MAX,
        rows=output.height,
        columns=output.width,
        channels=output.channels,
    )


def _requantize(node: Node, op: Requantize, graph: Graph) -> Kernel:
    limits = (op.zero_point, op.low, op.high)
    scale = _splat(op.bias, op.multiplier, op.shift, limits=limits)
    return _element_wise(node, graph, scale=scale)


def _element_wise(
    node: Node,
    graph: Graph,
    *,
    scale: Requantisation | None = None,
    low: int = -128,
    high: int = 127,
    table: npt.NDArray[np.int8] | None = None,
) -> Kernel:
    output = _shape(graph, node.outputs[0])
    return LaneKernel(
        name=node.name,
        sources=(LaneSource(tensor=node.inputs[0]),),
        output=node.outputs[0],
        window=Window(),
        operation=VectorOperation.SUM,
        scale=scale,
        low=low,
        high=high,
        table=table,
        rows=output.height,
        columns=output.width,
        channels=output.channels,
    )

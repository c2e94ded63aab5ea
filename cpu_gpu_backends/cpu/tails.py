"""Element-wise operators, computed where their operand is: in the tail of another kernel."""

from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.operators import Add, Clip, DataType, Lookup, Reinterpret, Requantize
from tilewright.compiler.tensor.build import cast, maximum, minimum
from tilewright.compiler.tensor.declare import placeholder
from tilewright.compiler.tensor.expressions import (
    Const,
    Definition,
    Expr,
    Load,
    Reduce,
    Tensor,
    Var,
)
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.traversal import children, loads, transform
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.program import View, dense_strides
from tilewright.cpu_gpu_backends.cpu.quantised import (
    INT32,
    STORED_OFFSET,
    Range,
    requantised,
    rounding_type,
    scale_factors,
    stored_element,
    stored_value,
    weighted_sum,
)

#: Largest stored value.
_LARGEST_STORED = 255
_FLOAT32 = ScalarType.FLOAT32


class OperandKind(Enum):
    """Which element of an operand an element-wise operator reads."""

    SAME = "the one at the same place"
    CHANNEL = "the one of the same channel"
    TABLE = "any"


def operand_kinds(graph: Graph, node: Node) -> tuple[OperandKind, ...] | None:
    """Return how an element-wise operator reads each operand; None for any other operator."""
    if isinstance(node.op, Lookup):
        return (OperandKind.SAME, OperandKind.TABLE)
    definition = _definition(graph, node)
    if definition is None or isinstance(definition.body, Reduce):
        return None
    if _uses_places(definition):
        return None
    kinds = []
    for position, operand in enumerate(graph.operands(node)):
        found = {
            _kind(load, definition)
            for load in loads(definition.body)
            if load.tensor.name == _operand_name(position)
        }
        if len(found) != 1 or None in found:
            return None
        (kind,) = found
        assert kind is not None, f"operand {operand.name!r} is read in one way"
        kinds.append(kind)
    return tuple(kinds) if OperandKind.SAME in kinds else None


def _operand_name(position: int) -> str:
    return f"operand{position}"


def _definition(graph: Graph, node: Node) -> Definition | None:
    operands = graph.operands(node)
    output = graph.tensors[node.outputs[0]]
    if not output.shape or any(0 in operand.shape for operand in operands):
        return None
    inputs = tuple(
        placeholder(operand.shape, ScalarType(operand.dtype.value), _operand_name(position))
        for position, operand in enumerate(operands)
    )
    declared = declare_operator(node.op, inputs, node.name)
    if declared.definition is None:
        return None
    read = {load.tensor.name for load in loads(declared.definition.body)}
    return declared.definition if read <= {tensor.name for tensor in inputs} else None


def _uses_places(definition: Definition) -> bool:
    """Whether the value depends on where the element is, apart from what it reads."""

    def free(expr: Expr) -> bool:
        match expr:
            case Load():
                return False
            case Var():
                return True
            case _:
                return any(map(free, children(expr)))

    return free(definition.body)


def _kind(load: Load, definition: Definition) -> OperandKind | None:
    variables = tuple(axis.var for axis in definition.axes)
    shape = tuple(axis.extent for axis in definition.axes)
    if load.tensor.shape == shape and all(
        index == variable or (extent == 1 and isinstance(index, Const))
        for index, variable, extent in zip(load.indices, variables, shape, strict=True)
    ):
        return OperandKind.SAME
    *outer, last = load.indices or (Const(0, ScalarType.INDEX),)
    fixed = all(isinstance(index, Const) for index in outer)
    if fixed and (isinstance(last, Const) or last == variables[-1]):
        return OperandKind.CHANNEL
    return None


@dataclass(slots=True)
class TailInputs:
    """The operands that the tail of one kernel reads, and where they lie.

    Attributes
    ----------
    tensor_shape
        The shape of the tensor that the kernel computes, padded channels included.
    shape
        The shape of the kernel's loops, which may join axes.
    views
        Where each operand lies, by the name of its placeholder.
    rows
        Image and first row, where the kernel computes part of an image.
    """

    context: Context
    tensor_shape: tuple[int, ...]
    shape: tuple[int, ...]
    views: dict[str, View] = field(default_factory=dict)
    rows: tuple[int, int] | None = None
    _tensors: dict[str, Tensor] = field(default_factory=dict)
    #: Those of the operands that are read at the same place, by the name of their placeholder.
    _same: dict[str, Activation] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context, shape: tuple[int, ...]) -> "TailInputs":
        """Return the operands of a kernel that computes a tensor axis by axis."""
        return cls(context, shape, shape)

    def reshape(self, shape: tuple[int, ...]) -> None:
        """Let the kernel's loops run over other axes; all operands can be viewed that way."""
        self.shape = shape

    def select_rows(self, image: int, first: int, count: int) -> None:
        """Let the kernel compute rows of one image only: its loops are row, column, channel.

        It can be called again for as many other rows: then the same operands lie elsewhere.
        """
        self.rows = (image, first)
        self.shape = (count, *self.tensor_shape[2:])
        for operand, activation in self._same.items():
            self.views[operand] = self.view_of(activation)

    def view_of(self, activation: Activation) -> View:
        """Return the view of a tensor that the kernel's loops index."""
        view = activation.with_channels(self.tensor_shape[-1])
        if self.rows is not None:
            image, first = self.rows
            offset = image * view.strides[0] + first * view.strides[1]
            return replace(
                view, offset=view.offset + offset, shape=self.shape, strides=view.strides[1:]
            )
        if self.shape == self.tensor_shape:
            return view
        joined = reshaped(view, self.shape)
        assert joined is not None, "checked before the loops were joined"
        return joined

    def value(self, name: str, kind: OperandKind, at: tuple[Expr, ...]) -> Expr:
        """Return the operand's value for the element `at`."""
        if kind is OperandKind.CHANNEL:
            return self._channel(name, at[-1])
        activation = self.context.activations[name]
        operand = f"{name}.operand"
        if operand not in self._tensors:
            self._tensors[operand] = placeholder(self.shape, activation.dtype, operand)
            self._same[operand] = activation
            self.views[operand] = self.view_of(activation)
        return _value(self._tensors[operand][at], activation.dtype)

    def _channel(self, name: str, channel: Expr) -> Expr:
        if name not in self.context.graph.constants:
            return self._computed_channel(name, channel)
        values = self.context.graph.constants[name].reshape(-1)
        if values.dtype == np.int8:
            values = (values.astype(np.int16) + STORED_OFFSET).astype(np.uint8)
        if values.size == 1:
            tensor = self.constant(f"{name}.number", values)
            return _value(tensor[0], tensor.dtype)
        padded = np.zeros(self.tensor_shape[-1], values.dtype)
        padded[: values.size] = values
        tensor = self.constant(f"{name}.channels", padded)
        return _value(tensor[channel], tensor.dtype)

    def _computed_channel(self, name: str, channel: Expr) -> Expr:
        """Return an element of a tensor that has nothing but channels."""
        activation = self.context.activations[name]
        count = activation.shape[-1] if activation.shape else 1
        operand = f"{name}.channels"
        if operand not in self._tensors:
            step = activation.view.strides[-1] if activation.shape else 1
            self._tensors[operand] = placeholder((count,), activation.dtype, operand)
            self.views[operand] = replace(activation.view, shape=(count,), strides=(step,))
        position = channel if count > 1 else Const(0, ScalarType.INDEX)
        return _value(self._tensors[operand][position], activation.dtype)

    def constant(self, name: str, values: Array) -> Tensor:
        """Return a constant operand; one name stands for the same values each time."""
        if name in self._tensors:
            return self._tensors[name]
        view = self.context.builder.constant(name, values)
        self._tensors[name] = placeholder(view.shape, ScalarType(str(values.dtype)), name)
        self.views[name] = view
        return self._tensors[name]


def reshaped(view: View, shape: tuple[int, ...]) -> View | None:
    """Return a view with other axes over the same elements; None if strides do not allow it.

    Either the elements lie densely, or the last axis stays and positions are evenly spaced.
    """
    if view.is_dense:
        return replace(view, shape=shape, strides=dense_strides(shape))
    if not view.shape or shape[-1] != view.shape[-1] or view.strides[-1] != 1:
        return None
    step = 0
    count = 1
    for extent, stride in zip(reversed(view.shape[:-1]), reversed(view.strides[:-1]), strict=True):
        if extent == 1:
            continue
        step = step or stride
        if stride != step * count:
            return None
        count *= extent
    strides = tuple(stride * step for stride in dense_strides(shape[:-1]))
    return replace(view, shape=shape, strides=(*strides, 1))


def _value(element: Expr, dtype: ScalarType) -> Expr:
    """Return a stored element as tails compute with it: bytes and bfloat16 numbers as float32."""
    return stored_value(element) if dtype in (ScalarType.UINT8, ScalarType.BFLOAT16) else element


def as_element(value: Expr, dtype: ScalarType) -> Expr:
    """Return the value of a tail as a stored element."""
    if dtype is ScalarType.BFLOAT16:
        return cast(value, dtype)
    return stored_element(value) if dtype is ScalarType.UINT8 else value


def apply_tail(
    node: Node, main: str, value: Expr, inputs: TailInputs, at: tuple[Expr, ...]
) -> Expr:
    """Return the value of an element-wise node whose operand `main` has the value `value`."""
    graph = inputs.context.graph
    kinds = operand_kinds(graph, node)
    assert kinds is not None, f"{node.label} is element-wise"
    if isinstance(node.op, Lookup):
        return _lookup(graph, node, value, inputs)
    values = tuple(
        value if name == main else inputs.value(name, kind, at)
        for name, kind in zip(node.inputs, kinds, strict=True)
    )
    match node.op:
        case Add():
            op = node.op
            offset = STORED_OFFSET * (op.a_coefficient + op.b_coefficient)
            terms = ((values[0], op.a_coefficient), (values[1], op.b_coefficient))
            return _scaled(op, *weighted_sum(terms, op.bias - offset, _LARGEST_STORED))
        case Requantize():
            bias = node.op.bias - STORED_OFFSET
            return _scaled(node.op, *weighted_sum(((value, 1),), bias, _LARGEST_STORED))
        case Clip(low=low, high=high):
            limited = maximum(value, float(low + STORED_OFFSET))
            return minimum(limited, float(high + STORED_OFFSET))
        case Reinterpret():
            return value  # int8 and uint8 are stored alike
        case _:
            return _declared(graph, node, values)


def _scaled(op: Add | Requantize, total: Expr, bound: int) -> Expr:
    factor = scale_factors(np.array(op.multiplier), np.array(op.shift))
    dtype = rounding_type(bound, factor)
    result = Range(zero_point=op.zero_point, low=op.low, high=op.high)
    return requantised(total, float(factor), result, dtype)


def _lookup(graph: Graph, node: Node, value: Expr, inputs: TailInputs) -> Expr:
    """Return an entry of a table: of bytes where instructions look them up, else of float32."""
    table = graph.constants[node.inputs[1]].astype(np.float32) + STORED_OFFSET
    if inputs.context.target.permutes_bytes:
        tensor = inputs.constant(f"{node.name}.table", table.astype(np.uint8))
        return stored_value(tensor[cast(stored_element(value), ScalarType.INDEX)])
    tensor = inputs.constant(f"{node.name}.table", table)
    return tensor[cast(cast(value, INT32), ScalarType.INDEX)]


def _declared(graph: Graph, node: Node, values: tuple[Expr, ...]) -> Expr:
    """Return the value that the operator's own declaration gives."""
    definition = _definition(graph, node)
    assert definition is not None, f"{node.label} is element-wise"
    operands = {
        _operand_name(position): _natural(value, tensor.dtype)
        for position, (value, tensor) in enumerate(zip(values, graph.operands(node), strict=True))
    }

    def step(expr: Expr) -> Expr:
        return operands[expr.tensor.name] if isinstance(expr, Load) else expr

    body = transform(definition.body, step)
    dtype = graph.tensors[node.outputs[0]].dtype
    if dtype is DataType.INT8:
        return cast(cast(body, INT32) + STORED_OFFSET, _FLOAT32)
    return cast(body, _FLOAT32) if dtype is DataType.UINT8 else body


def _natural(value: Expr, dtype: DataType) -> Expr:
    """Return a value of a tail in the type that the graph declares."""
    if dtype is DataType.INT8:
        return cast(cast(value, INT32) - STORED_OFFSET, ScalarType.INT8)
    return cast(cast(value, INT32), ScalarType.UINT8) if dtype is DataType.UINT8 else value

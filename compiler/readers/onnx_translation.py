"""What translating an ONNX graph needs: names, constants, quantisation parameters, layout."""

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph import Array, Source
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    BinaryFunction,
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatBinary,
    Gather,
    Operator,
    Quantize,
    Reshape,
    Transpose,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.isa.errors import ModelError

CHANNELS_LAST = (0, 2, 3, 1)
CHANNELS_FIRST = (0, 3, 1, 2)
#: Operators whose further outputs only training reads.
DISCARDED = ("Dropout",)


class OnnxTranslation:
    """The state of one translation.

    ONNX images are NCHW, the graph's operators want NHWC: `channels_last` and `channels_first` put
    transpositions around such operators, and a later pass cancels them.
    """

    def __init__(self, builder: GraphBuilder, opset: int, outputs: Sequence[str]) -> None:
        self.builder = builder
        self.opset = opset
        self.constants: dict[str, Array] = {}
        self._tensors: dict[str, str] = {}
        self._constant_tensors: set[str] = set()
        self._outputs = frozenset(outputs)

    def bind(self, name: str, tensor: str) -> None:
        """Let the ONNX value `name` be the graph's `tensor`."""
        if name in self._tensors or name in self.constants:
            raise ModelError(f"tensor {name!r} is defined twice")
        self._tensors[name] = tensor

    def bound(self, name: str) -> str | None:
        """Return the graph's tensor for the ONNX value `name`, None where there is none."""
        return self._tensors.get(name)

    def is_constant(self, tensor: str) -> bool:
        """Tell whether a tensor of the graph is constant, dequantised or not."""
        return tensor in self._constant_tensors

    def has_input(self, node: OnnxNode, index: int) -> bool:
        """Tell whether the optional input `index` is given."""
        return index < len(node.inputs) and node.inputs[index] != ""

    def tensor(self, node: OnnxNode, index: int = 0) -> str:
        """Return the graph's tensor for input `index`, adding a constant where it is one."""
        if not self.has_input(node, index):
            raise ModelError(f"{node.label} lacks input {index}")
        name = node.inputs[index]
        if name not in self._tensors:
            if name not in self.constants:
                raise ModelError(f"{node.label} reads {name!r}, which nothing computes")
            self._tensors[name] = self._add_constant(node, name)
        return self._tensors[name]

    def shape(self, node: OnnxNode, index: int = 0) -> tuple[int, ...]:
        """Return the shape of input `index`."""
        return self.builder.tensor(self.tensor(node, index)).shape

    def image_size(self, node: OnnxNode) -> tuple[int, int]:
        """Return height and width of the first input, an image NCHW or a line NCW of height 1."""
        shape = self.shape(node)
        if len(shape) == 3:
            return 1, shape[2]
        if len(shape) != 4:
            raise ModelError(f"{node.label} takes images NCHW only")
        return shape[2], shape[3]

    def axis(self, node: OnnxNode, axis: int, rank: int) -> int:
        """Return an axis counted from the front; the file may count from the end."""
        if not -rank <= axis < rank:
            raise ModelError(f"{node.label} names axis {axis} of {rank}")
        return axis % rank

    def constant(self, node: OnnxNode, index: int) -> Array:
        """Return the values of input `index`, which must be constant."""
        if not self.has_input(node, index):
            raise ModelError(f"{node.label} lacks input {index}")
        name = node.inputs[index]
        if name not in self.constants:
            raise ModelError(f"{node.label} needs a constant for input {index} ({name!r})")
        return self.constants[name]

    def integers(self, node: OnnxNode, index: int) -> tuple[int, ...]:
        """Return a constant input that is a list of integers."""
        values = self.constant(node, index)
        if values.dtype.kind not in "iu":
            raise ModelError(f"{node.label} needs integers for input {index}")
        return tuple(int(value) for value in values.reshape(-1))

    def scale(self, node: OnnxNode, index: int) -> float:
        """Return a per-tensor scale."""
        values = self.scales(node, index)
        if values.size != 1:
            raise ModelError(f"{node.label} quantises an activation per channel")
        return float(values[0])

    def scales(self, node: OnnxNode, index: int) -> Array:
        """Return scales, one or one per channel, as float32 ``[n]``."""
        values = self.constant(node, index).reshape(-1).astype(np.float32)
        if not values.size or not np.isfinite(values).all() or (values <= 0).any():
            raise ModelError(f"{node.label} has a scale that is not a positive number")
        return values

    def zero_points(self, node: OnnxNode, index: int) -> tuple[Array, DataType]:
        """Return zero points as int32 ``[n]`` and their type, which is that of the tensor."""
        if not self.has_input(node, index):
            return np.zeros(1, dtype=np.int32), DataType.UINT8
        values = self.constant(node, index)
        if values.dtype not in (np.uint8, np.int8, np.int32) or not values.size:
            raise ModelError(
                f"{node.label} quantises to {values.dtype}; only int8 and uint8 are supported"
            )
        return values.reshape(-1).astype(np.int32), DataType(str(values.dtype))

    def zero_point(self, node: OnnxNode, index: int) -> tuple[int, DataType]:
        """Return a per-tensor zero point and its type."""
        values, dtype = self.zero_points(node, index)
        if values.size != 1 or dtype is DataType.INT32:
            raise ModelError(f"{node.label} needs one int8 or uint8 zero point")
        return int(values[0]), dtype

    def add(self, node: OnnxNode, op: Operator, inputs: Sequence[str], part: str = "") -> str:
        """Add a node of the graph for (a `part` of) an ONNX node and return its output."""
        name = f"{node.name}/{part}" if part else node.name
        return self.builder.add(op, inputs, node=name, node_source=node.label)

    def number(self, node: OnnxNode, value: float, part: str) -> str:
        """Return a constant float32 number for a part of a node."""
        return self.builder.add_constant(f"{node.name}/{part}", np.array(value, np.float32))

    def scaled(self, node: OnnxNode, x: str, factor: float, part: str = "scaled") -> str:
        """Return ``x * factor``."""
        operands = [x, self.number(node, factor, f"{part}_by")]
        return self.add(node, FloatBinary(function=BinaryFunction.MULTIPLY), operands, part)

    def taken(self, node: OnnxNode, x: str, indices: Array, axis: int, part: str) -> str:
        """Return entries of `x` along an axis."""
        constant = self.builder.add_constant(f"{node.name}/{part}_indices", indices)
        return self.add(node, Gather(axis=axis), [x, constant], part)

    def finish_copy(self, node: OnnxNode, tensor: str) -> None:
        """Let a tensor be the one output of a node."""
        self.finish(node, Reshape(shape=self.builder.tensor(tensor).shape), [tensor])

    def finish(self, node: OnnxNode, op: Operator, inputs: Sequence[str]) -> None:
        """Add the graph's node that computes the one output of an ONNX node."""
        self.output(node)
        self.finish_output(node, 0, op, inputs)

    def finish_output(
        self, node: OnnxNode, index: int, op: Operator, inputs: Sequence[str]
    ) -> None:
        """Add the graph's node that computes output `index` of an ONNX node."""
        name = node.outputs[index]
        tensor = self.builder.add(
            op,
            inputs,
            node=f"{node.name}/{index}" if index else node.name,
            output=name,
            exact=name in self._outputs,
            node_source=node.label,
        )
        self.builder.describe(tensor, source=self._source(name, tensor))
        self.bind(name, tensor)

    def channels_last(self, node: OnnxNode, index: int = 0) -> str:
        """Return input `index`, an image or a kernel, with the channels moved to the end."""
        return self.to_channels_last(node, self.tensor(node, index))

    def finish_image(self, node: OnnxNode, op: Operator, inputs: Sequence[str]) -> None:
        """Do as `finish` for an operator on NHWC, whose result ONNX sees as NCHW, or as NCW."""
        self._finish_first(node, self.add(node, op, inputs))

    def set_constant(self, node: OnnxNode, values: Array) -> None:
        """Let the one output of a node be constant."""
        name = self.output(node)
        if name in self._tensors or name in self.constants:
            raise ModelError(f"tensor {name!r} is defined twice")
        self.constants[name] = values

    def constant_output(self, name: str) -> str:
        """Return a tensor for a constant that is an output of the network."""
        values = self.builder.add_constant(f"{name}/value", self._graph_constant(name, name))
        copy = Reshape(shape=self.builder.tensor(values).shape)
        return self.builder.add(copy, [values], node=f"{name}/copy", output=name, exact=True)

    def dequantized(self, node: OnnxNode, index: int, part: str, axis: int = 0) -> str:
        """Return a quantised input as real numbers; scale and zero point are the two after it.

        A constant may be quantised per channel, along `axis`.
        """
        x = self.tensor(node, index)
        if node.inputs[index] in self.constants:
            operands = self._constant_operands(node, index)
            return self.add(node, DequantizeWeights(axis=axis), operands, part)
        zero_point, _ = self.zero_point(node, index + 2)
        op = Dequantize(scale=self.scale(node, index + 1), zero_point=zero_point)
        return self.add(node, op, [x], part)

    def finish_dequantized_constant(self, node: OnnxNode, axis: int) -> None:
        """Translate a whole node that dequantises a constant along `axis`."""
        self.finish(node, DequantizeWeights(axis=axis), self._constant_operands(node, 0))
        self._constant_tensors.add(self._tensors[self.output(node)])

    def dequantized_number(self, node: OnnxNode) -> Array:
        """Return the real number that a node makes of a constant without axes."""
        zero_point = self.zero_point(node, 2)[0] if self.has_input(node, 2) else 0
        steps = int(self.constant(node, 0)) - zero_point
        return np.asarray(np.float32(steps) * np.float32(self.scale(node, 1)))

    def dequantized_bias(self, node: OnnxNode, index: int, scales: tuple[int, int]) -> str:
        """Return an int32 bias as real numbers; its scale is the product of the two at `scales`."""
        if self.constant(node, index).dtype != np.int32:
            raise ModelError(f"{node.label} needs an int32 bias")
        x_scale, w_scale = (self.scales(node, position) for position in scales)
        scale = (x_scale * w_scale).astype(np.float32)
        name = node.inputs[index]
        operands = [
            self.tensor(node, index),
            self.builder.add_constant(f"{name}/scale", scale),
            self.builder.add_constant(f"{name}/zero_point", np.zeros(scale.shape, np.int32)),
        ]
        return self.add(node, DequantizeWeights(axis=0), operands, "bias")

    def to_channels_last(self, node: OnnxNode, tensor: str) -> str:
        """Return an NCHW or NCW `tensor` as NHWC, a line as an image of height 1."""
        image = self.spatial(node, tensor, "image")
        return self.add(node, Transpose(permutation=CHANNELS_LAST), [image], "channels_last")

    def spatial(self, node: OnnxNode, tensor: str, part: str) -> str:
        """Return an NCW `tensor` as NCHW of height 1."""
        shape = self.builder.tensor(tensor).shape
        if len(shape) == 3:
            return self.add(node, Reshape(shape=(*shape[:2], 1, shape[2])), [tensor], part)
        if len(shape) != 4:
            raise ModelError(f"{node.label} takes images NCHW only")
        return tensor

    def finish_quantized(
        self, node: OnnxNode, op: Operator, inputs: Sequence[str], parameters: tuple[int, int]
    ) -> None:
        """Do as `finish` and quantise; `parameters` are the inputs with scale and zero point."""
        self.finish(node, self._quantize(node, parameters), [self.add(node, op, inputs)])

    def finish_quantized_image(
        self, node: OnnxNode, op: Operator, inputs: Sequence[str], parameters: tuple[int, int]
    ) -> None:
        """Do as `finish_image` and quantise."""
        image = self.add(node, op, inputs)
        first = self.add(node, Transpose(permutation=CHANNELS_FIRST), [image], "channels_first")
        if len(self.shape(node)) == 3:
            first = self._line(node, first)
        self.finish(node, self._quantize(node, parameters), [first])

    def _finish_first(self, node: OnnxNode, image: str) -> None:
        first = Transpose(permutation=CHANNELS_FIRST)
        if len(self.shape(node)) != 3:
            self.finish(node, first, [image])
            return
        moved = self.add(node, first, [image], "channels_first")
        batch, channels, _, width = self.builder.tensor(moved).shape
        self.finish(node, Reshape(shape=(batch, channels, width)), [moved])

    def _line(self, node: OnnxNode, image: str) -> str:
        batch, channels, _, width = self.builder.tensor(image).shape
        return self.add(node, Reshape(shape=(batch, channels, width)), [image], "line")

    def output(self, node: OnnxNode) -> str:
        """Return the name of the one output of a node."""
        names = [name for name in node.outputs if name]
        if len(names) > 1 and node.op_type in DISCARDED:
            names = names[:1]
        if len(names) != 1 or node.outputs[0] != names[0]:
            raise ModelError(f"{node.label} has {len(names)} outputs instead of one")
        return names[0]

    def _constant_operands(self, node: OnnxNode, index: int) -> list[str]:
        """Return the operands of `DequantizeWeights` for the constant input `index`."""
        name = node.inputs[index]
        scales = self.scales(node, index + 1)
        zero_points = np.zeros(1, dtype=np.int32)
        if self.has_input(node, index + 2):
            zero_points, dtype = self.zero_points(node, index + 2)
            if dtype.value != str(self.constants[name].dtype):
                raise ModelError(f"{node.label} has a zero point of another type than its values")
        if zero_points.size not in (1, scales.size):
            raise ModelError(f"{node.label} has {zero_points.size} zero points")
        return [
            self.tensor(node, index),
            self.builder.add_constant(f"{name}/scale", scales),
            self.builder.add_constant(
                f"{name}/zero_point", np.broadcast_to(zero_points, scales.shape)
            ),
        ]

    def _quantize(self, node: OnnxNode, parameters: tuple[int, int]) -> Quantize:
        scale, zero_point = parameters
        value, dtype = self.zero_point(node, zero_point)
        return Quantize(scale=self.scale(node, scale), zero_point=value, dtype=dtype)

    def _source(self, name: str, tensor: str) -> Source:
        return Source(name=name, axes=tuple(range(len(self.builder.tensor(tensor).shape))))

    def _add_constant(self, node: OnnxNode, name: str) -> str:
        tensor = self.builder.add_constant(name, self._graph_constant(name, node.label))
        self._constant_tensors.add(tensor)
        return tensor

    def _graph_constant(self, name: str, where: str) -> Array:
        """Return a constant in a type that the graph has."""
        values = self.constants[name]
        if values.dtype == np.float64:
            values = values.astype(np.float32)
        if str(values.dtype) not in {dtype.value for dtype in DataType}:
            raise ModelError(f"{where} computes with constant {name!r} of {values.dtype}")
        return values

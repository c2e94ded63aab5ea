"""What translating a TFLite graph needs: its tensors as real numbers, and back."""

import math
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph import Array, Source, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatClip,
    Gather,
    Operator,
    Padding,
    Pair,
    Quantize,
    Reshape,
)
from tilewright.compiler.operators.tensor_type import QUANTISED
from tilewright.compiler.readers.tflite_file import TfliteModel, TfliteOperator, TfliteTensor
from tilewright.compiler.readers.windows import same_padding
from tilewright.isa.errors import ModelError

#: ActivationFunctionType (schema.fbs) to the range it clips to.
ACTIVATIONS = {0: None, 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


class TfliteTranslation:
    """The state of one translation.

    An operator on quantised tensors becomes its real form between dequantisations of its inputs
    and a quantisation of its output.
    """

    def __init__(self, builder: GraphBuilder, model: TfliteModel) -> None:
        self.builder = builder
        self._model = model
        self._tensors: dict[int, str] = {}
        self._reals: dict[int, str] = {}

    def add_input(self, index: int) -> None:
        """Declare an input of the graph."""
        tensor = self._model.tensors[index]
        where = f"input {tensor.key!r}"
        if tensor.dtype is DataType.INT16:
            raise ModelError(f"{where} is {tensor.dtype}, which is not supported")
        for axis in tensor.dynamic_axes:
            if axis > 0:
                raise ModelError(f"{where} has a dynamic shape: axis {axis} may have any size")
        if 0 in tensor.shape or not tensor.shape:
            raise ModelError(f"{where} has an unknown shape: {list(tensor.shape)}")
        scale, zero_point = self._parameters(tensor)
        self.builder.add_input(
            Tensor(
                name=tensor.key,
                shape=tensor.shape,
                dtype=tensor.dtype,
                scale=scale,
                zero_point=zero_point,
                source=_source(tensor),
            )
        )
        self._bind(index, tensor.key)

    def output(self, index: int) -> str:
        """Return the graph's tensor for the model's output `index`."""
        if index not in self._tensors:
            raise ModelError(f"output {self._model.tensors[index].key!r} is not computed")
        return self._tensors[index]

    def operand(self, op: TfliteOperator, position: int) -> TfliteTensor:
        """Return the model's tensor that is input `position`."""
        if not self.has_operand(op, position):
            raise ModelError(f"{op.label} lacks input {position}")
        return self._model.tensors[op.inputs[position]]

    def has_operand(self, op: TfliteOperator, position: int) -> bool:
        """Tell whether the optional input `position` is given."""
        return position < len(op.inputs) and op.inputs[position] >= 0

    def result(self, op: TfliteOperator, output: int | None = None) -> TfliteTensor:
        """Return the model's tensor that is the one output, or output `output` of several."""
        if output is None and len(op.outputs) != 1:
            raise ModelError(f"{op.label} has {len(op.outputs)} outputs instead of one")
        if op.outputs[output or 0] < 0:
            raise ModelError(f"{op.label} lacks output {output or 0}")
        return self._model.tensors[op.outputs[output or 0]]

    def integers(self, op: TfliteOperator, position: int) -> tuple[int, ...]:
        """Return a constant input that is a list of integers."""
        tensor = self.operand(op, position)
        if tensor.constant is None or tensor.element_type not in ("int32", "int64"):
            raise ModelError(f"{op.label} needs constant integers for input {position}")
        return tuple(int(value) for value in tensor.constant.reshape(-1))

    def image(self, op: TfliteOperator) -> tuple[int, int, int, int]:
        """Return the sizes of the first input, an NHWC image."""
        shape = self.operand(op, 0).shape
        if len(shape) != 4:
            raise ModelError(f"{op.label} takes images NHWC only")
        return shape[0], shape[1], shape[2], shape[3]

    def image_size(self, op: TfliteOperator) -> Pair:
        """Return height and width of the first input, an NHWC image."""
        return self.image(op)[1:3]

    def axes(self, op: TfliteOperator, position: int, rank: int) -> tuple[int, ...]:
        """Return a constant input that is a list of axes, ascending and counted from the front."""
        return tuple(sorted({self.axis(op, axis, rank) for axis in self.integers(op, position)}))

    def axis(self, op: TfliteOperator, axis: int, rank: int) -> int:
        """Return an axis counted from the front; the file may count from the end."""
        if not -rank <= axis < rank:
            raise ModelError(f"{op.label} names axis {axis} of {rank}")
        return axis % rank

    def plain(self, op: TfliteOperator, position: int) -> str:
        """Return input `position` as it is, an index or a truth value."""
        tensor, index = self.operand(op, position), op.inputs[position]
        if index not in self._tensors:
            if tensor.constant is None:
                raise ModelError(f"{op.label} reads {tensor.key!r}, which nothing computes")
            self._tensors[index] = self.builder.add_constant(tensor.key, tensor.constant)
        return self._tensors[index]

    def number(self, op: TfliteOperator, value: float, part: str) -> str:
        """Return a constant float32 number for a part of an operator."""
        return self.builder.add_constant(f"{op.name}/{part}", np.array(value, np.float32))

    def taken(self, op: TfliteOperator, x: str, indices: Array, axis: int, part: str) -> str:
        """Return entries of `x` along an axis."""
        constant = self.builder.add_constant(f"{op.name}/{part}_indices", indices)
        return self.add(op, Gather(axis=axis), [x, constant], part)

    def finish_copy(self, op: TfliteOperator, tensor: str, activation: int = 0) -> None:
        """Let a tensor be the output, in the shape that the file declares."""
        self.finish(op, Reshape(shape=self.result(op).shape), [tensor], activation)

    def real(self, op: TfliteOperator, position: int = 0) -> str:
        """Return input `position` as real numbers."""
        tensor = self.operand(op, position)
        index = op.inputs[position]
        if index not in self._reals:
            self._reals[index] = self._dequantized(op, index, tensor)
        return self._reals[index]

    def add(
        self, op: TfliteOperator, operator: Operator, inputs: Sequence[str], part: str = ""
    ) -> str:
        """Add a node of the graph for (a `part` of) a TFLite operator."""
        name = f"{op.name}/{part}" if part else op.name
        return self.builder.add(operator, inputs, node=name, node_source=op.label)

    def finish(
        self,
        op: TfliteOperator,
        operator: Operator,
        inputs: Sequence[str],
        activation: int = 0,
        output: int | None = None,
    ) -> None:
        """Add the node that computes an output, its activation, and its quantisation."""
        tensor = self.result(op, output)
        real = self.add(op, operator, inputs, f"output{output}" if output else "")
        if activation not in ACTIVATIONS:
            raise ModelError(f"{op.label} has activation {activation}, which is not supported")
        bounds = ACTIVATIONS[activation]
        if bounds is not None:
            clip = FloatClip(low=bounds[0], high=bounds[1])
            real = self.add(op, clip, [real], "activation")
        shape = self.builder.tensor(real).shape
        if shape != tensor.shape:
            raise ModelError(
                f"{op.label} yields shape {list(shape)}, declared as {list(tensor.shape)}"
            )
        index = op.outputs[output or 0]
        if tensor.dtype not in QUANTISED:
            self._rebind_real(index, real, tensor)
            return
        scale, zero_point = self._parameters(tensor)
        if scale is None or zero_point is None:
            raise ModelError(f"{op.label} yields {tensor.key!r}, which has no scale")
        quantize = Quantize(scale=scale, zero_point=zero_point, dtype=tensor.dtype)
        name = self.builder.add(
            quantize,
            [real],
            node=f"{op.name}/quantized",
            output=tensor.key,
            exact=index in self._model.outputs,
            source=_source(tensor),
            node_source=op.label,
        )
        self._bind(index, name)

    def windows(
        self,
        op: TfliteOperator,
        kernel: Pair,
        fields: tuple[int, int, int],
        dilation: Pair = (1, 1),
    ) -> tuple[Pair, Padding]:
        """Return stride and padding; `fields` are padding, stride_w and stride_h in the options."""
        padding, stride_w, stride_h = (
            op.option(fields[0], "<b"),
            op.option(fields[1]),
            op.option(fields[2]),
        )
        if min(stride_w, stride_h, *kernel, *dilation) < 1 or padding not in (0, 1):
            raise ModelError(f"{op.label} has an impossible window, stride or padding")
        stride = (stride_h, stride_w)
        if padding == 1:
            return stride, (0, 0, 0, 0)
        return stride, same_padding(self.image_size(op), kernel, stride, dilation)

    def _rebind_real(self, index: int, real: str, tensor: TfliteTensor) -> None:
        if index in self._model.outputs:
            real = self.builder.add(
                Reshape(shape=tensor.shape),
                [real],
                node=f"{tensor.key}/output",
                output=tensor.key,
                exact=True,
                source=_source(tensor),
            )
        self._bind(index, real)

    def _bind(self, index: int, name: str) -> None:
        if index in self._tensors:
            raise ModelError(f"tensor {self._model.tensors[index].key!r} is defined twice")
        self._tensors[index] = name

    def _dequantized(self, op: TfliteOperator, index: int, tensor: TfliteTensor) -> str:
        if index not in self._tensors:
            return self._constant(op, tensor)
        name = self._tensors[index]
        if tensor.dtype is DataType.FLOAT32:
            return name
        scale, zero_point = self._parameters(tensor)
        if scale is None or zero_point is None:
            raise ModelError(f"{op.label} reads {tensor.key!r}, which has no scale")
        dequantize = Dequantize(scale=scale, zero_point=zero_point)
        return self.builder.add(dequantize, [name], node=f"{tensor.key}/real")

    def _constant(self, op: TfliteOperator, tensor: TfliteTensor) -> str:
        if tensor.constant is None:
            raise ModelError(f"{op.label} reads {tensor.key!r}, which nothing computes")
        values = self.builder.add_constant(tensor.key, tensor.constant.astype(tensor.dtype.numpy))
        if tensor.dtype is DataType.FLOAT32:
            return values
        if not tensor.scale.size or (tensor.scale <= 0).any():
            raise ModelError(f"{op.label} reads constant {tensor.key!r}, which has no scale")
        operands = [
            values,
            self.builder.add_constant(f"{tensor.key}/scale", tensor.scale),
            self.builder.add_constant(f"{tensor.key}/zero_point", tensor.zero_point),
        ]
        return self.builder.add(
            DequantizeWeights(axis=tensor.axis), operands, node=f"{tensor.key}/real"
        )

    def _parameters(self, tensor: TfliteTensor) -> tuple[float | None, int | None]:
        """Return scale and zero point of an activation, None where it is not quantised."""
        if tensor.dtype is DataType.FLOAT32 or not tensor.scale.size:
            return None, None
        if tensor.scale.size != 1 or tensor.scale[0] <= 0:
            raise ModelError(f"tensor {tensor.key!r} is an activation without one positive scale")
        zero_point = int(tensor.zero_point[0])
        low, high = tensor.dtype.limits
        if not low <= zero_point <= high:
            raise ModelError(f"tensor {tensor.key!r} has zero point {zero_point}")
        return float(np.float32(tensor.scale[0])), zero_point


def _source(tensor: TfliteTensor) -> Source:
    return Source(name=tensor.key, axes=tuple(range(len(tensor.shape))))

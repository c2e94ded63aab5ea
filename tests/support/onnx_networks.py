"""Small quantised ONNX networks of one operator, in QDQ and in QOperator form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
FLOAT = TensorProto.FLOAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Scale and zero point of a tensor; the zero point's type is the tensor's."""

    scale: float
    zero_point: np.int8 | np.uint8


@dataclass(slots=True)
class Network:
    """A network under construction; constants are added under the name they are given."""

    opset: int = 17
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, values: Any) -> str:
        """Add a constant and return its name."""
        self.constants[name] = np.asarray(values)
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node and return its output; a kind with a dot names its domain."""
        domain, _, op_type = kind.rpartition(".")
        self.nodes.append(
            helper.make_node(
                op_type, list(inputs), [output], name=output, domain=domain, **attributes
            )
        )
        return output

    def parameters(self, name: str, scale: Scale) -> list[str]:
        """Add the two constants of a quantisation and return their names."""
        return [
            self.constant(f"{name}_scale", np.float32(scale.scale)),
            self.constant(f"{name}_zero", scale.zero_point),
        ]

    def quantize(self, real: str, name: str, scale: Scale) -> str:
        """Quantise `real`; `name` is the integer tensor."""
        return self.node("QuantizeLinear", [real, *self.parameters(name, scale)], name)

    def dequantize(self, integer: str, name: str, scale: Scale) -> str:
        """Dequantise `integer`; `name` is the real tensor."""
        return self.node("DequantizeLinear", [integer, *self.parameters(name, scale)], name)

    def quantized_input(self, name: str, scale: Scale) -> str:
        """Quantise the input `name` and return the real tensor behind it."""
        integer = self.quantize(name, f"{name}_q", scale)
        return self.dequantize(integer, f"{name}_dq", scale)

    def weights(self, name: str, values: Array, scale: Array, zero: Array, axis: int = 0) -> str:
        """Add quantised weights and return them as real numbers."""
        operands = [
            self.constant(name, values),
            self.constant(f"{name}_scale", scale.astype(np.float32)),
            self.constant(f"{name}_zero", zero.astype(values.dtype)),
        ]
        extra = {"axis": axis} if scale.ndim else {}
        return self.node("DequantizeLinear", operands, f"{name}_dq", **extra)

    def finish(self, real: str, scale: Scale) -> str:
        """Quantise `real` to the tensor ``y_q`` and dequantise that to the output ``y``."""
        return self.dequantize(self.quantize(real, "y_q", scale), "y", scale)

    def model(
        self, inputs: Mapping[str, tuple[int | str, ...]], outputs: Sequence[str] = ("y",)
    ) -> Any:
        """Return the model; all inputs and outputs are float32."""
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info(n, FLOAT, list(s)) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        return model


def serialized(model: Any) -> bytes:
    """Return the bytes of a model's file."""
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data

"""The networks of `cpu_networks` as PyTorch modules, read from their ONNX files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from onnx.helper import get_attribute_value
from torch import nn
from torch.nn import functional


class OnnxModule(nn.Module):
    """Runs the operators that the benchmark's networks consist of."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        super().__init__()
        self._nodes = list(graph.node)
        self._output = graph.output[0].name
        self._names = {}
        self._shapes: dict[str, list[int]] = {}
        for number, constant in enumerate(graph.initializer):
            values = torch.from_numpy(numpy_helper.to_array(constant).copy())
            self._shapes[constant.name] = values.tolist() if values.dtype == torch.int64 else []
            if values.ndim == 4:
                values = values.contiguous(memory_format=torch.channels_last)
            self.register_buffer(f"c{number}", values)
            self._names[constant.name] = f"c{number}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the graph's first output."""
        values = {name: getattr(self, buffer) for name, buffer in self._names.items()}
        values["input"] = x
        for node in self._nodes:
            operands = [values[name] for name in node.input]
            if node.op_type == "Reshape":
                values[node.output[0]] = operands[0].reshape(self._shapes[node.input[1]])
            else:
                given = {one.name: get_attribute_value(one) for one in node.attribute}
                values[node.output[0]] = _KINDS[node.op_type](operands, given)
        return values[self._output]


def _convolution(operands: list[torch.Tensor], given: dict[str, Any]) -> torch.Tensor:
    return functional.conv2d(
        *operands, stride=given["strides"], padding=given["pads"][:2], groups=given["group"]
    )


#: What a kind of node computes of its operands and attributes.
_KINDS: dict[str, Callable[[list[torch.Tensor], dict[str, Any]], torch.Tensor]] = {
    "Add": lambda operands, _: operands[0] + operands[1],
    "Clip": lambda operands, _: functional.hardtanh(operands[0], 0.0, 6.0),
    "Conv": _convolution,
    "Flatten": lambda operands, _: torch.flatten(operands[0], 1),
    "Gelu": lambda operands, _: functional.gelu(operands[0]),
    "Gemm": lambda operands, _: functional.linear(*operands),
    "GlobalAveragePool": lambda operands, _: functional.adaptive_avg_pool2d(operands[0], 1),
    "LayerNormalization": lambda operands, _: functional.layer_norm(
        operands[0], operands[0].shape[-1:], *operands[1:]
    ),
    "MatMul": lambda operands, _: operands[0] @ operands[1],
    "MaxPool": lambda operands, _: functional.max_pool2d(operands[0], 3, 2, 1),
    "Mul": lambda operands, _: operands[0] * operands[1],
    "Relu": lambda operands, _: functional.relu(operands[0]),
    "Softmax": lambda operands, _: functional.softmax(operands[0], dim=-1),
    "Transpose": lambda operands, given: operands[0].permute(*given["perm"]),
}


def module_of(path: Path) -> nn.Module:
    """Return the network of an ONNX file."""
    return OnnxModule(onnx.load(path).graph)

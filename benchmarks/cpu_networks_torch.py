"""The networks of `cpu_networks` as PyTorch modules, read from their ONNX files."""

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional


class OnnxModule(nn.Module):
    """Runs the operators that the benchmark's networks consist of."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        super().__init__()
        self._nodes = list(graph.node)
        self._output = graph.output[0].name
        self._names = {}
        for number, constant in enumerate(graph.initializer):
            values = torch.from_numpy(numpy_helper.to_array(constant).copy())
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
            values[node.output[0]] = _apply(node, operands)
        return values[self._output]


def _apply(node: onnx.NodeProto, operands: list[torch.Tensor]) -> torch.Tensor:
    x = operands[0]
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    match node.op_type:
        case "Conv":
            return functional.conv2d(
                *operands, stride=given["strides"], padding=given["pads"][:2], groups=given["group"]
            )
        case "Relu":
            return functional.relu(x)
        case "Clip":
            return functional.hardtanh(x, 0.0, 6.0)
        case "Add":
            return x + operands[1]
        case "MaxPool":
            return functional.max_pool2d(x, 3, 2, 1)
        case "GlobalAveragePool":
            return functional.adaptive_avg_pool2d(x, 1)
        case "Flatten":
            return torch.flatten(x, 1)
        case "Gemm":
            return functional.linear(*operands)
        case kind:
            raise ValueError(f"the benchmark's networks have no {kind}")


def module_of(path: Path) -> nn.Module:
    """Return the network of an ONNX file."""
    return OnnxModule(onnx.load(path).graph)

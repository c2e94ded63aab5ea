"""The page of operators names what the readers know, and where it runs."""

import re
from pathlib import Path

import numpy as np
import pytest
from onnx_networks import Network, Scale, serialized

from tilewright.compiler.readers.onnx_reader import HANDLERS as ONNX
from tilewright.compiler.readers.onnx_reader import MICROSOFT_HANDLERS as MICROSOFT
from tilewright.compiler.readers.tflite_reader import HANDLERS as TFLITE
from tilewright.runtime.model import compile_model

X = Scale(scale=1 / 16, zero_point=np.int8(0))
IMAGE = (1, 16, 6, 6)
#: Operators of one input, with the attributes and constant inputs that they need.
UNARY: dict[str, tuple[dict[str, object], tuple[list[int], ...]]] = {
    "Abs": ({}, ()),
    "AveragePool": ({"kernel_shape": [2, 2]}, ()),
    "Ceil": ({}, ()),
    "DepthToSpace": ({"blocksize": 2}, ()),
    "Elu": ({}, ()),
    "Erf": ({}, ()),
    "Exp": ({}, ()),
    "Flatten": ({}, ()),
    "Floor": ({}, ()),
    "GlobalAveragePool": ({}, ()),
    "GlobalMaxPool": ({}, ()),
    "HardSigmoid": ({}, ()),
    "HardSwish": ({}, ()),
    "LeakyRelu": ({}, ()),
    "Log": ({}, ()),
    "LogSoftmax": ({}, ()),
    "MaxPool": ({"kernel_shape": [2, 2]}, ()),
    "Mish": ({}, ()),
    "Neg": ({}, ()),
    "Pad": ({}, ([0, 0, 1, 1, 0, 0, 1, 1],)),
    "Reciprocal": ({}, ()),
    "ReduceMean": ({"axes": [2, 3]}, ()),
    "Relu": ({}, ()),
    "Round": ({}, ()),
    "Sigmoid": ({}, ()),
    "Sign": ({}, ()),
    "Slice": ({}, ([1], [5], [2])),
    "Softmax": ({"axis": 1}, ()),
    "Softplus": ({}, ()),
    "Sqrt": ({}, ()),
    "Tanh": ({}, ()),
    "Tile": ({}, ([1, 1, 2, 2],)),
}


def tables(repository: Path) -> list[dict[str, str]]:
    """Return, per table of the page, where each operator runs."""
    page = (repository / "docs" / "operators.md").read_text(encoding="utf-8")
    return [
        dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.MULTILINE))
        for part in page.split("|---|---|---|")[1:]
    ]


def test_it_names_every_operator_in_order(repository: Path) -> None:
    named = [list(table) for table in tables(repository)]
    assert named == [list(ONNX), list(MICROSOFT), list(TFLITE)]


@pytest.mark.parametrize("kind", sorted(UNARY))
def test_operators_run_where_it_says(repository: Path, tmp_path: Path, kind: str) -> None:
    attributes, constants = UNARY[kind]
    network = Network()
    weights = np.ones((16, 16, 1, 1), np.int8)
    kernel = network.weights("w", weights, np.float32(0.01), np.int8(0))
    real = network.node("Conv", [network.quantized_input("x", X), kernel], "c")
    image = network.dequantize(network.quantize(real, "c_q", X), "c_dq", X)
    operands = [
        network.constant(f"k{i}", np.array(values, np.int64)) for i, values in enumerate(constants)
    ]
    network.finish(network.node(kind, [image, *operands], "f", **attributes), X)
    path = tmp_path / "one.onnx"
    path.write_bytes(serialized(network.model({"x": IMAGE})))
    placement = compile_model(path, "tiny").placement
    where = {item.target.value for item in placement if item.node == "f"}
    allowed = {
        "accelerator": [{"accelerator"}],
        "host": [{"host"}],
        "view": [{"accelerator"}, {"host"}],
        "joined": [set()],
    }
    assert where in allowed[tables(repository)[0][kind]]

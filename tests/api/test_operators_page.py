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


#: Operators of two operands of one shape.
BINARY = ("Add", "Div", "MatMul", "Mul", "PRelu", "Sub")


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
    operands = [
        network.constant(f"k{i}", np.array(values, np.int64)) for i, values in enumerate(constants)
    ]
    real = network.node(kind, [image(network), *operands], "f", **attributes)
    assert places(network, real, tmp_path) in allowed(repository, kind)


@pytest.mark.parametrize("kind", BINARY)
def test_operators_of_two_run_where_it_says(repository: Path, tmp_path: Path, kind: str) -> None:
    network = Network()
    x = image(network)
    assert places(network, network.node(kind, [x, x], "f"), tmp_path) in allowed(repository, kind)


def test_a_resize_runs_where_it_says(repository: Path, tmp_path: Path) -> None:
    network = Network()
    scales = network.constant("scales", np.array([1, 1, 2, 3], np.float32))
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    real = network.node("Resize", [image(network), "", scales], "f", mode="nearest", **modes)
    assert places(network, real, tmp_path) in allowed(repository, "Resize")


def image(network: Network) -> str:
    """Add a convolution and return its quantised result as real numbers."""
    weights = np.ones((16, 16, 1, 1), np.int8)
    kernel = network.weights("w", weights, np.float32(0.01), np.int8(0))
    real = network.node("Conv", [network.quantized_input("x", X), kernel], "c")
    return network.dequantize(network.quantize(real, "c_q", X), "c_dq", X)


def places(network: Network, real: str, folder: Path) -> set[str]:
    """Return where the node ``f`` runs on `tiny`; nothing where it is joined to others."""
    network.finish(real, X)
    path = folder / "one.onnx"
    path.write_bytes(serialized(network.model({"x": IMAGE})))
    placement = compile_model(path, "tiny").placement
    return {item.target.value for item in placement if item.node == "f"}


def allowed(repository: Path, kind: str) -> list[set[str]]:
    """Return where an operator may run by the page."""
    return {
        "accelerator": [{"accelerator"}],
        "host": [{"host"}],
        "view": [{"accelerator"}, {"host"}],
        "joined": [set()],
    }[tables(repository)[0][kind]]

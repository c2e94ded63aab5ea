"""Two small float networks in ONNX form, of most operators that CNNs and transformers have."""

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx_networks import Network

Array = npt.NDArray[Any]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Return normal numbers, float32."""
    return rng.normal(0, 1, shape).astype(np.float32)


def small_cnn(rng: np.random.Generator) -> Any:
    """Return a network with a residual, a gate, an upsampling and a transposed convolution."""
    network = Network()
    k = {
        name: network.constant(name, normal(rng, *shape) / 4)
        for name, shape in {
            "w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3), "w3": (8, 8, 1, 1), "b3": (8,),
            "w4": (8, 8, 1, 1), "w5": (8, 6, 4, 4), "b5": (6,),
        }.items()
    }  # fmt: skip
    network.node("Conv", ["x", k["w1"], k["b1"]], "c1", pads=[1, 1, 1, 1])
    network.node("Relu", ["c1"], "r1")
    network.node("Conv", ["r1", k["w2"]], "c2", group=8, pads=[1, 1, 1, 1])
    network.node("HardSwish", ["c2"], "h2")
    network.node("Conv", ["h2", k["w3"], k["b3"]], "c3")
    network.node("Add", ["c3", "r1"], "a3")
    network.node("GlobalAveragePool", ["a3"], "g4")
    network.node("Conv", ["g4", k["w4"]], "c4")
    network.node("Sigmoid", ["c4"], "s4")
    network.node("Mul", ["a3", "s4"], "m4")
    scales = network.constant("scales", np.array([1, 1, 2, 2], np.float32))
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    network.node("Resize", ["m4", "", scales], "u5", mode="nearest", **nearest)
    network.node("ConvTranspose", ["u5", k["w5"], k["b5"]], "y", strides=[2, 2], pads=[1, 1, 1, 1])
    return network.model({"x": (1, 3, 8, 10)})


def small_transformer(rng: np.random.Generator) -> Any:
    """Return one layer of attention and a block behind it, on vectors of 16."""
    network = Network(opset=20)
    w = {
        name: network.constant(name, normal(rng, *shape) / 4)
        for name, shape in {"q": (16, 16), "k": (16, 16), "v": (16, 16), "o": (16, 16),
                            "f": (16, 32), "p": (32, 16), "g1": (16,), "e1": (16,),
                            "qb": (16,), "fb": (32,)}.items()
    }  # fmt: skip
    heads = network.constant("heads", np.array([1, 6, 2, 8], np.int64))
    joined = network.constant("joined", np.array([1, 6, 16], np.int64))
    network.node("LayerNormalization", ["x", w["g1"], w["e1"]], "n", axis=-1)
    network.node("MatMul", ["n", w["q"]], "q0")
    network.node("Add", ["q0", w["qb"]], "q1")
    for name, order, source in (("q", [0, 2, 1, 3], "q1"), ("k", [0, 2, 3, 1], None),
                                ("v", [0, 2, 1, 3], None)):  # fmt: skip
        if source is None:
            source = network.node("MatMul", ["n", w[name]], f"{name}1")
        network.node("Reshape", [source, heads], f"{name}2")
        network.node("Transpose", [f"{name}2"], f"{name}3", perm=order)
    network.node("MatMul", ["q3", "k3"], "s0")
    network.node("Div", ["s0", network.constant("root", np.float32(8**0.5))], "s1")
    network.node("Softmax", ["s1"], "s2", axis=-1)
    network.node("MatMul", ["s2", "v3"], "a0")
    network.node("Transpose", ["a0"], "a1", perm=[0, 2, 1, 3])
    network.node("Reshape", ["a1", joined], "a2")
    network.node("MatMul", ["a2", w["o"]], "a3")
    network.node("Add", ["x", "a3"], "a4")
    network.node("MatMul", ["a4", w["f"]], "f0")
    network.node("Add", ["f0", w["fb"]], "f1")
    network.node("Gelu", ["f1"], "f2")
    network.node("MatMul", ["f2", w["p"]], "y")
    return network.model({"x": (1, 6, 16)})

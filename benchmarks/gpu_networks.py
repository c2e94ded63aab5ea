"""What the GPU benchmark measures: products of square matrices, and networks for any batch."""

from collections.abc import Callable
from pathlib import Path

import cpu_networks
import numpy as np
import onnx

from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import DataType, FloatMatMul, MatMul

#: The encoder of BERT-base (Devlin et al. 2018).
LAYERS, WIDTH, HEADS = 12, 768, 12

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ResNet-18": cpu_networks.resnet18,
    "ResNet-50": cpu_networks.resnet50,
    "MobileNet-v2": cpu_networks.mobilenet_v2,
    "bert4": cpu_networks.bert4,
    "encoder-12": lambda: cpu_networks.encoder(
        "encoder-12", layers=LAYERS, width=WIDTH, heads=HEADS
    ),
}


def gemm_graph(size: int, kind: str) -> Graph:
    """Return the product of two square matrices.

    Those of kind ``fp16`` are constants, as inputs of a network are float32 in memory.
    """
    dtype = DataType.INT8 if kind == "int8" else DataType.FLOAT32
    product: MatMul | FloatMatMul = FloatMatMul()
    if kind == "int8":
        product = MatMul(a_zero_point=0, b_zero_point=0, multiplier=1 << 23, shift=40,
                         zero_point=0, low=-128, high=127)  # fmt: skip
    tensors = {name: Tensor(name=name, shape=(size, size), dtype=dtype) for name in "abc"}
    node = Node(name="product", op=product, inputs=("a", "b"), outputs=("c",))
    constants = {}
    if kind == "fp16":
        rng = np.random.default_rng(0)
        constants = {name: rng.standard_normal((size, size), np.float32) for name in "ab"}
    return Graph(
        name=f"gemm-{size}", tensors=tensors, nodes=(node,),
        inputs=() if constants else ("a", "b"), outputs=("c",), constants=constants,
    )  # fmt: skip


def save_network(name: str, batch: int, folder: Path) -> Path:
    """Write a network for a batch and return its path."""
    model = NETWORKS[name]()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    path = folder / f"{name}-{batch}.onnx"
    onnx.save(model, path)
    return path

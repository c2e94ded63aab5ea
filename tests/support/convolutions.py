"""Convolutions of many shapes in ONNX form, with what follows them in networks."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def convolution(
    rng: np.random.Generator,
    image: tuple[int, int, int, int],
    outputs: int,
    kernel: int,
    **attributes: object,
) -> onnx.ModelProto:
    """Return a convolution with bias, a residual and an activation."""
    groups = int(attributes.get("group", 1))  # type: ignore[call-overload]
    weights = rng.standard_normal((outputs, image[1] // groups, kernel, kernel))
    constants = [
        numpy_helper.from_array(weights.astype(np.float32), "w"),
        numpy_helper.from_array(rng.standard_normal(outputs).astype(np.float32), "b"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Add", ["r", "c"], ["a"]),
        helper.make_node("Conv", ["x", "w"], ["d"], **attributes),
        helper.make_node("Tanh", ["d"], ["t"]),
        helper.make_node("Mul", ["t", "a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


#: By name: shape of the image, outputs, size of the kernel, attributes.
CASES = {
    "winograd": ((1, 24, 13, 22), 40, 3, {"pads": [1, 1, 1, 1]}),
    "winograd, small tiles, two images": ((2, 32, 7, 7), 32, 3, {"pads": [1, 1, 1, 1]}),
    "winograd, several blocks": ((1, 64, 56, 56), 64, 3, {"pads": [1, 1, 1, 1]}),
    "winograd, uneven padding": ((1, 16, 17, 9), 16, 3, {"pads": [0, 2, 1, 0]}),
    "direct, stride": ((1, 20, 15, 18), 33, 3, {"pads": [1, 0, 2, 1], "strides": [2, 2]}),
    "direct, dilation": ((1, 8, 14, 14), 10, 3, {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "first layer": ((1, 3, 33, 31), 32, 7, {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    "one by one": ((2, 48, 9, 7), 100, 1, {}),
    "panels of 24": ((1, 32, 12, 12), 24, 1, {}),
    "panels of 8": ((1, 16, 9, 5), 8, 3, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "panels of 24, odd depth": ((1, 33, 7, 7), 24, 1, {}),
    "winograd, panels of 24": ((1, 16, 14, 14), 24, 3, {"pads": [1, 1, 1, 1]}),
    "winograd, weights from memory": ((1, 256, 14, 14), 256, 3, {"pads": [1, 1, 1, 1]}),
    "depthwise, three vectors": ((1, 48, 14, 14), 48, 3, {"pads": [1, 1, 1, 1], "group": 48}),
    "depthwise": ((1, 24, 15, 15), 24, 3, {"pads": [1, 1, 1, 1], "group": 24}),
    "groups": ((1, 24, 9, 9), 36, 3, {"pads": [1, 1, 1, 1], "group": 3}),
    "rows that alias": ((1, 1024, 6, 6), 24, 1, {}),
}

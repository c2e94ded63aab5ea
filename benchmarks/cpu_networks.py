"""Networks of published shapes with random weights, as ONNX models: float32, and int8 (QDQ)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 3, 224, 224)
#: Tokens and width of the transformer, its heads and layers.
TOKENS, WIDTH, HEADS, LAYERS = 128, 256, 4, 4
#: A release of the operators that has GELU.
_OPSET, _IR_VERSION = 20, 9


class _Network:
    """An ONNX graph under construction; convolutions carry a folded batch normalisation."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def _constant(self, values: np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        output = f"{kind.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        fan = inputs // groups * kernel * kernel
        shape = (outputs, inputs // groups, kernel, kernel)
        weights = self._constant(self._rng.standard_normal(shape) * np.sqrt(1.4 / fan))
        bias = self._constant(self._rng.standard_normal(outputs) * 0.1)
        return self.node(
            "Conv",
            x,
            weights,
            bias,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def classify(self, x: str, inputs: int, classes: int = 1000) -> str:
        flat = self.node("Flatten", self.node("GlobalAveragePool", x))
        weights = self._constant(self._rng.standard_normal((classes, inputs)) / np.sqrt(inputs))
        return self.node("Gemm", flat, weights, self._constant(np.zeros(classes)), transB=1)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        weights = self._rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        bias = self._constant(self._rng.standard_normal(outputs) * 0.1)
        return self.node("Add", self.node("MatMul", x, self._constant(weights)), bias)

    def normalise(self, x: str, width: int) -> str:
        scale = self._constant(1 + 0.1 * self._rng.standard_normal(width))
        return self.node("LayerNormalization", x, scale, self._constant(np.zeros(width)))

    def integers(self, *values: int) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def build(
        self, name: str, output: str, taken: tuple[int, ...], given: tuple[int, ...]
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, taken)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, given)],
            self._constants,
        )
        opset = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION)


def resnet18() -> onnx.ModelProto:
    """Return ResNet-18 (He et al. 2015) for images of 224 x 224."""
    net = _Network(18)
    x = _resnet_stem(net)
    channels = 64
    for stage, blocks in enumerate((2, 2, 2, 2)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = x
            if stride != 1 or channels != width:
                short = net.conv(x, channels, width, 1, stride)
            y = net.node("Relu", net.conv(x, channels, width, 3, stride))
            x = net.node("Relu", net.node("Add", net.conv(y, width, width, 3), short))
            channels = width
    return net.build("resnet18", net.classify(x, channels), IMAGE, (1, 1000))


def resnet50() -> onnx.ModelProto:
    """Return ResNet-50 (the stride in the 3x3 convolution, as everybody runs it)."""
    net = _Network(50)
    x = _resnet_stem(net)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = x if block else net.conv(x, channels, 4 * width, 1, stride)
            y = net.node("Relu", net.conv(x, channels, width, 1))
            y = net.node("Relu", net.conv(y, width, width, 3, stride))
            x = net.node("Relu", net.node("Add", net.conv(y, width, 4 * width, 1), short))
            channels = 4 * width
    return net.build("resnet50", net.classify(x, channels), IMAGE, (1, 1000))


def _resnet_stem(net: _Network) -> str:
    x = net.node("Relu", net.conv("input", 3, 64, 7, 2))
    return net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def mobilenet_v2() -> onnx.ModelProto:
    """Return MobileNet-v2 1.0 (Sandler et al. 2018)."""
    net = _Network(2)
    low, high = net._constant(np.array(0.0)), net._constant(np.array(6.0))

    def relu6(x: str) -> str:
        return net.node("Clip", x, low, high)

    x, channels = relu6(net.conv("input", 3, 32, 3, 2)), 32
    for expansion, width, count, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(count):
            stride = first_stride if not block else 1
            inner = channels * expansion
            y = relu6(net.conv(x, channels, inner, 1)) if expansion > 1 else x
            y = relu6(net.conv(y, inner, inner, 3, stride, groups=inner))
            y = net.conv(y, inner, width, 1)
            x = net.node("Add", x, y) if stride == 1 and channels == width else y
            channels = width
    x = relu6(net.conv(x, channels, 1280, 1))
    return net.build("mobilenet_v2", net.classify(x, 1280), IMAGE, (1, 1000))


def bert4() -> onnx.ModelProto:
    """Return four layers of a transformer encoder, 128 tokens, 256 wide."""
    return encoder("bert4", layers=LAYERS, width=WIDTH, heads=HEADS)


def encoder(name: str, *, layers: int, width: int, heads: int) -> onnx.ModelProto:
    """Return a transformer encoder (Devlin et al. 2018), 128 tokens, for any batch."""
    net = _Network(4)
    x = "input"
    for _ in range(layers):
        x = net.normalise(net.node("Add", x, _attention(net, x, width, heads)), width)
        inner = net.node("Gelu", net.dense(x, width, 4 * width))
        x = net.normalise(net.node("Add", x, net.dense(inner, 4 * width, width)), width)
    shape = (1, TOKENS, width)
    return net.build(name, x, shape, shape)


def _attention(net: _Network, x: str, width: int, heads: int) -> str:
    depth = width // heads
    split = net.integers(-1, TOKENS, heads, depth)

    def head(order: list[int]) -> str:
        return net.node(
            "Transpose", net.node("Reshape", net.dense(x, width, width), split), perm=order
        )

    queries, keys, values = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scale = net._constant(np.array(depth**-0.5))
    scores = net.node("Mul", net.node("MatMul", queries, keys), scale)
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), values)
    joined = net.node("Transpose", mixed, perm=[0, 2, 1, 3])
    return net.dense(net.node("Reshape", joined, net.integers(-1, TOKENS, width)), width, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network and the shape of its input."""

    build: Callable[[], onnx.ModelProto]
    shape: tuple[int, ...]

    def sample(self, seed: int) -> np.ndarray:
        """Return a random input."""
        values: np.ndarray = np.random.default_rng(seed).standard_normal(self.shape)
        return values.astype(np.float32)


NETWORKS = {
    "ResNet-18": Network(build=resnet18, shape=IMAGE),
    "ResNet-50": Network(build=resnet50, shape=IMAGE),
    "MobileNet-v2": Network(build=mobilenet_v2, shape=IMAGE),
    "bert4": Network(build=bert4, shape=(1, TOKENS, WIDTH)),
}


def save_float(name: str, folder: Path) -> Path:
    """Write a network as float32 and return its path."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        onnx.save(NETWORKS[name].build(), path)
    return path


def save_int8(name: str, folder: Path) -> Path:
    """Write a network quantised by onnxruntime (uint8 x int8, per channel) and return its path."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[dict[str, np.ndarray]] = (
                {"input": NETWORKS[name].sample(seed)} for seed in range(2)
            )

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    path = folder / f"{name}-int8.onnx"
    if not path.exists():
        quantize_static(
            save_float(name, folder),
            path,
            Samples(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    return path

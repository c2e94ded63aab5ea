"""The usual classifiers as integer graphs with seeded random weights: costs without a model file.

Shapes are torchvision's (ResNet: He et al., 2015, stride in the 3x3 convolution; MobileNet-v2:
Sandler et al., 2018); MobileNet-v1 as Howard et al., 2017; ResNet-20 as He et al., 2015, section
4.2, with projections. Weights are uniform int8, and scales keep the activations spread over int8.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    INT8_MAX,
    INT8_MIN,
    Add,
    AveragePool2d,
    Conv2d,
    ConvTranspose2d,
    DataType,
    MaxPool2d,
)
from tilewright.isa.integers import split_scale

#: Standard deviation of uniform int8 values.
_SPREAD = 74.0
#: Standard deviation that a layer's result is scaled to.
_RESULT = 40.0
_CLASSES = 1000


class Network(Enum):
    """A classifier; 224x224 images, CIFAR's for ResNet-20."""

    RESNET_18 = "resnet18"
    RESNET_34 = "resnet34"
    RESNET_50 = "resnet50"
    MOBILENET_V1 = "mobilenet_v1"
    MOBILENET_V2 = "mobilenet_v2"
    RESNET_20 = "resnet20_cifar"


def build_network(network: Network, *, images: int = 1, seed: int = 0) -> Graph:
    """Build a network for a batch of images."""
    size = 32 if network is Network.RESNET_20 else 224
    layers = LayerBuilder(network.value, (images, size, size, 3), seed=seed)
    _BUILDERS[network](layers)
    return layers.build()


class LayerBuilder:
    """Appends layers, each to the result of the one before unless told otherwise."""

    def __init__(self, name: str, shape: tuple[int, ...], *, seed: int) -> None:
        self._builder = GraphBuilder(name)
        self._rng = np.random.default_rng(seed)
        #: The tensor that the next layer reads.
        self.current = self._builder.add_input(
            Tensor(name="input", shape=shape, dtype=DataType.INT8)
        )

    @property
    def channels(self) -> int:
        """Channels of the current tensor."""
        return self._builder.tensor(self.current).shape[-1]

    def build(self) -> Graph:
        """Return the graph, whose output is the current tensor."""
        return self._builder.build([self.current])

    def conv(
        self,
        name: str,
        outputs: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        relu: bool = True,
        source: str | None = None,
    ) -> str:
        """Append a convolution with padding of half its kernel; return its result."""
        source = self.current if source is None else source
        inputs = self._builder.tensor(source).shape[-1] // groups
        pad = kernel // 2 if pad is None else pad
        weights = self._rng.integers(INT8_MIN, INT8_MAX + 1, (outputs, kernel, kernel, inputs))
        typical = _SPREAD * _SPREAD * (kernel * kernel * inputs) ** 0.5
        op = Conv2d(
            stride=(stride, stride),
            pads=(pad, pad, pad, pad),
            groups=groups,
            input_zero_point=0,
            zero_point=0,
            low=0 if relu else INT8_MIN,
            high=INT8_MAX,
        )
        return self._append(name, op, source, weights, typical)

    def _append(
        self,
        name: str,
        op: Conv2d | ConvTranspose2d,
        source: str,
        weights: npt.NDArray[np.int64],
        typical: float,
    ) -> str:
        """Append a convolution whose sums are of a typical size; draw all else it needs."""
        outputs = len(weights)
        bias = self._rng.integers(-4096, 4096, outputs)
        multiplier, shift = split_scale(
            self._rng.uniform(0.5, 1.5, outputs).astype(np.float32) * np.float32(_RESULT / typical)
        )
        constants = [
            self._builder.add_constant(f"{name}.weight", weights.astype(np.int8)),
            self._builder.add_constant(f"{name}.bias", bias.astype(np.int32)),
            self._builder.add_constant(f"{name}.multiplier", multiplier.astype(np.int32)),
            self._builder.add_constant(f"{name}.shift", shift.astype(np.int32)),
        ]
        self.current = self._builder.add(op, [source, *constants], node=name)
        return self.current

    def transposed(self, name: str, outputs: int, *, kernel: int, stride: int) -> str:
        """Append a transposed convolution that enlarges the image `stride` times."""
        inputs = self.channels
        pad = (kernel - stride) // 2
        weights = self._rng.integers(INT8_MIN, INT8_MAX + 1, (outputs, kernel, kernel, inputs))
        typical = _SPREAD * _SPREAD * (kernel * kernel * inputs) ** 0.5 / stride
        op = ConvTranspose2d(
            stride=(stride, stride),
            pads=(pad, pad, pad, pad),
            extra=(2 * pad - kernel + stride,) * 2,
            input_zero_point=0,
            zero_point=0,
            low=INT8_MIN,
            high=INT8_MAX,
        )
        return self._append(name, op, self.current, weights, typical)

    def depthwise(self, name: str, *, stride: int = 1) -> str:
        """Append a 3x3 depthwise convolution."""
        return self.conv(name, self.channels, kernel=3, stride=stride, groups=self.channels)

    def add(self, name: str, other: str, *, relu: bool) -> str:
        """Append the sum of the current tensor and another one."""
        multiplier, shift = split_scale(np.float32(0.7 / 16384))
        op = Add(
            a_coefficient=16384,
            b_coefficient=16384,
            bias=0,
            multiplier=int(multiplier),
            shift=int(shift),
            zero_point=0,
            low=0 if relu else INT8_MIN,
            high=INT8_MAX,
        )
        self.current = self._builder.add(op, [self.current, other], node=name)
        return self.current

    def max_pool(self, name: str, *, kernel: int, stride: int, pad: int) -> str:
        """Append a maximum over windows."""
        op = MaxPool2d(kernel=(kernel, kernel), stride=(stride, stride), pads=(pad,) * 4)
        self.current = self._builder.add(op, [self.current], node=name)
        return self.current

    def classify(self, classes: int) -> str:
        """Append the mean over the image and a dense layer."""
        _, height, width, _ = self._builder.tensor(self.current).shape
        multiplier, shift = split_scale(np.float32(1 / (height * width)))
        op = AveragePool2d(
            kernel=(height, width),
            stride=(1, 1),
            input_zero_point=0,
            multiplier=int(multiplier),
            shift=int(shift),
            zero_point=0,
            low=INT8_MIN,
            high=INT8_MAX,
        )
        self.current = self._builder.add(op, [self.current], node="pool")
        return self.conv("classifier", classes, relu=False)


def _basic_block(layers: LayerBuilder, name: str, width: int, stride: int) -> None:
    source = layers.current
    layers.conv(f"{name}.conv1", width, kernel=3, stride=stride)
    layers.conv(f"{name}.conv2", width, kernel=3, relu=False)
    _join(layers, name, source, stride)


def _bottleneck(layers: LayerBuilder, name: str, width: int, stride: int) -> None:
    source = layers.current
    layers.conv(f"{name}.conv1", width)
    layers.conv(f"{name}.conv2", width, kernel=3, stride=stride)
    layers.conv(f"{name}.conv3", 4 * width, relu=False)
    _join(layers, name, source, stride)


def _join(layers: LayerBuilder, name: str, source: str, stride: int) -> None:
    """Append the short cut from `source`, a projection where shapes differ, and the sum."""
    branch, outputs = layers.current, layers.channels
    layers.current = source
    if stride > 1 or layers.channels != outputs:
        source = layers.conv(f"{name}.downsample", outputs, stride=stride, relu=False)
    layers.current = branch
    layers.add(f"{name}.add", source, relu=True)


def _resnet(
    layers: LayerBuilder,
    block: Callable[[LayerBuilder, str, int, int], None],
    depths: Sequence[int],
) -> None:
    layers.conv("conv1", 64, kernel=7, stride=2)
    layers.max_pool("maxpool", kernel=3, stride=2, pad=1)
    _stages(layers, block, depths, 64)
    layers.classify(_CLASSES)


def _stages(
    layers: LayerBuilder,
    block: Callable[[LayerBuilder, str, int, int], None],
    depths: Sequence[int],
    width: int,
) -> None:
    """Append blocks; each stage but the first halves the image and doubles the width."""
    for stage, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            block(layers, f"layer{stage + 1}.{number}", width << stage, stride)


def _resnet_20(layers: LayerBuilder) -> None:
    layers.conv("conv1", 16, kernel=3)
    _stages(layers, _basic_block, (3, 3, 3), 16)
    layers.classify(10)


def _mobilenet_v1(layers: LayerBuilder) -> None:
    layers.conv("conv1", 32, kernel=3, stride=2)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    plan += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for number, (outputs, stride) in enumerate(plan):
        layers.depthwise(f"block{number}.depthwise", stride=stride)
        layers.conv(f"block{number}.pointwise", outputs)
    layers.classify(_CLASSES)


def _mobilenet_v2(layers: LayerBuilder) -> None:
    layers.conv("conv1", 32, kernel=3, stride=2)
    number = 0
    for expansion, outputs, repeats, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for repeat in range(repeats):
            stride = first_stride if not repeat else 1
            _inverted_residual(layers, f"block{number}", expansion, outputs, stride)
            number += 1
    layers.conv("conv2", 1280)
    layers.classify(_CLASSES)


def _inverted_residual(
    layers: LayerBuilder, name: str, expansion: int, outputs: int, stride: int
) -> None:
    source, inputs = layers.current, layers.channels
    if expansion > 1:
        layers.conv(f"{name}.expand", expansion * inputs)
    layers.depthwise(f"{name}.depthwise", stride=stride)
    layers.conv(f"{name}.project", outputs, relu=False)
    if stride == 1 and inputs == outputs:
        layers.add(f"{name}.add", source, relu=False)


_BUILDERS: dict[Network, Callable[[LayerBuilder], None]] = {
    Network.RESNET_18: lambda layers: _resnet(layers, _basic_block, (2, 2, 2, 2)),
    Network.RESNET_34: lambda layers: _resnet(layers, _basic_block, (3, 4, 6, 3)),
    Network.RESNET_50: lambda layers: _resnet(layers, _bottleneck, (3, 4, 6, 3)),
    Network.MOBILENET_V1: _mobilenet_v1,
    Network.MOBILENET_V2: _mobilenet_v2,
    Network.RESNET_20: _resnet_20,
}

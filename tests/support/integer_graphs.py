"""Random integer graphs for tests of the lowering."""

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Concat,
    Conv2d,
    ConvTranspose2d,
    DataType,
    Expand,
    Lookup,
    MatMul,
    MaxPool2d,
    Mul,
    Operator,
    Pad,
    Requantize,
    Reshape,
    Slice,
    Upsample2d,
)
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.integer import BorderScale
from tilewright.isa.integers import split_scale


class GraphBuilder:
    """Builds an integer graph node by node; types are inferred."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._tensors: dict[str, Tensor] = {}
        self._nodes: list[Node] = []
        self._constants: dict[str, np.ndarray] = {}
        self._inputs: list[str] = []

    def input(self, *shape: int) -> str:
        name = f"in{len(self._inputs)}"
        self._tensors[name] = Tensor(name=name, shape=shape, dtype=DataType.INT8)
        self._inputs.append(name)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def node(self, op: Operator, *inputs: str) -> str:
        name = f"{type(op).__name__}{len(self._nodes)}"
        kind = infer(op, tuple(self._tensors[one].type for one in inputs))
        output = f"t{len(self._nodes)}"
        self._tensors[output] = Tensor(name=output, shape=kind.shape, dtype=kind.dtype)
        self._nodes.append(Node(name=name, op=op, inputs=inputs, outputs=(output,)))
        return output

    def constant(self, values: np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = values
        dtype = next(kind for kind in DataType if kind.numpy == values.dtype)
        self._tensors[name] = Tensor(name=name, shape=values.shape, dtype=dtype)
        return name

    def int8_constant(self, *shape: int) -> str:
        return self.constant(self.rng.integers(-128, 128, shape).astype(np.int8))

    def scale(self, typical: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Random multipliers and shifts that bring values around `typical` into int8."""
        multiplier, shift = split_scale(
            self.rng.uniform(20, 90, count).astype(np.float32) / np.float32(typical)
        )
        return multiplier, shift

    def conv(
        self,
        x: str,
        outputs: int,
        *,
        kernel: tuple[int, int] = (1, 1),
        stride: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
        wide: bool = False,
    ) -> str:
        """Append a convolution; `wide` weights exceed int8."""
        rng, channels = self.rng, self.shape(x)[-1]
        size = (outputs, *kernel, channels // groups)
        weights = (
            rng.integers(-255, 256, size).astype(np.int16)
            if wide
            else rng.integers(-128, 128, size).astype(np.int8)
        )
        zero = int(rng.integers(-128, 128))
        reduction = int(np.prod(size[1:]))
        bias = rng.integers(-4000, 4000, outputs) - zero * weights.sum(
            axis=(1, 2, 3), dtype=np.int64
        )
        multiplier, shift = self.scale(5000 * reduction**0.5, outputs)
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
        op = Conv2d(
            stride=stride,
            pads=pads,
            dilation=dilation,
            groups=groups,
            input_zero_point=zero,
            zero_point=int(rng.integers(-128, 128)),
            low=low if rng.random() < 0.3 else -128,
            high=high if rng.random() < 0.3 else 127,
        )
        constants = [
            self.constant(weights),
            self.constant(bias.astype(np.int32)),
            self.constant(multiplier.astype(np.int32)),
            self.constant(shift.astype(np.int32)),
        ]
        return self.node(op, x, *constants)

    def conv_transpose(
        self,
        x: str,
        outputs: int,
        *,
        kernel: tuple[int, int] = (2, 2),
        stride: tuple[int, int] = (2, 2),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        extra: tuple[int, int] = (0, 0),
    ) -> str:
        """Append a transposed convolution."""
        rng, channels = self.rng, self.shape(x)[-1]
        weights = rng.integers(-128, 128, (outputs, *kernel, channels)).astype(np.int8)
        taps = kernel[0] * kernel[1] / (stride[0] * stride[1])
        multiplier, shift = self.scale(7000 * max(1.0, taps * channels) ** 0.5, outputs)
        op = ConvTranspose2d(
            stride=stride,
            pads=pads,
            extra=extra,
            input_zero_point=int(rng.integers(-128, 128)),
            zero_point=int(rng.integers(-128, 128)),
            low=-128,
            high=127,
        )
        constants = [
            self.constant(weights),
            self.constant(rng.integers(-4000, 4000, outputs).astype(np.int32)),
            self.constant(multiplier.astype(np.int32)),
            self.constant(shift.astype(np.int32)),
        ]
        return self.node(op, x, *constants)

    def add(self, a: str, b: str) -> str:
        rng = self.rng
        own, other = rng.integers(1, 32768, 2).tolist()
        zeros = rng.integers(-128, 128, 2).tolist()
        multiplier, shift = self.scale(100 * max(own, other), 1)
        op = Add(
            a_coefficient=own,
            b_coefficient=other,
            bias=-(zeros[0] * own + zeros[1] * other),
            multiplier=int(multiplier[0]),
            shift=int(shift[0]),
            zero_point=int(rng.integers(-128, 128)),
            low=-128,
            high=127,
        )
        return self.node(op, a, b)

    def multiply(self, a: str, b: str, zeros: tuple[int, int] | None = None) -> str:
        """Append a product, element by element; zero points are random unless given."""
        multiplier, shift = self.scale(5000.0, 1)
        a_zero, b_zero = zeros or self.rng.integers(-128, 128, 2).tolist()
        op = Mul(
            a_zero_point=a_zero,
            b_zero_point=b_zero,
            multiplier=int(multiplier[0]),
            shift=int(shift[0]),
            zero_point=int(self.rng.integers(-128, 128)),
            low=-128,
            high=127,
        )
        return self.node(op, a, b)

    def matmul(self, a: str, b: str, zeros: tuple[int, int] | None = None) -> str:
        """Append a product of stacks of matrices; zero points are random unless given."""
        multiplier, shift = self.scale(6000.0 * self.shape(a)[-1] ** 0.5, 1)
        a_zero, b_zero = zeros or self.rng.integers(-128, 128, 2).tolist()
        op = MatMul(
            a_zero_point=a_zero,
            b_zero_point=b_zero,
            multiplier=int(multiplier[0]),
            shift=int(shift[0]),
            zero_point=int(self.rng.integers(-128, 128)),
            low=-128,
            high=127,
        )
        return self.node(op, a, b)

    def average_pool(
        self,
        x: str,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        *,
        border: bool = False,
    ) -> str:
        taps = kernel[0] * kernel[1]
        counts = range(1, taps) if border else ()
        multipliers, shifts = split_scale(
            np.array([0.9 / count for count in (*counts, taps)], dtype=np.float32)
        )
        op = AveragePool2d(
            kernel=kernel,
            stride=stride,
            pads=pads,
            input_zero_point=int(self.rng.integers(-128, 128)),
            multiplier=int(multipliers[-1]),
            shift=int(shifts[-1]),
            border=tuple(
                BorderScale(count=count, multiplier=int(m), shift=int(s))
                for count, m, s in zip(counts, multipliers, shifts, strict=False)
            ),
            zero_point=int(self.rng.integers(-60, 60)),
            low=-128,
            high=127,
        )
        return self.node(op, x)

    def max_pool(
        self,
        x: str,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> str:
        return self.node(MaxPool2d(kernel=kernel, stride=stride, pads=pads), x)

    def requantize(self, x: str) -> str:
        multiplier, shift = split_scale(self.rng.uniform(0.2, 3.0, 1).astype(np.float32))
        op = Requantize(
            bias=int(self.rng.integers(-128, 128)),
            multiplier=int(multiplier[0]),
            shift=int(shift[0]),
            zero_point=int(self.rng.integers(-60, 60)),
            low=-120,
            high=125,
        )
        return self.node(op, x)

    def clip(self, x: str, low: int, high: int) -> str:
        return self.node(Clip(low=low, high=high), x)

    def lookup(self, x: str) -> str:
        table = self.rng.integers(-128, 128, 256).astype(np.int8)
        return self.node(Lookup(), x, self.constant(table))

    def pad(self, x: str, before: Sequence[int], after: Sequence[int], value: int) -> str:
        return self.node(Pad(before=tuple(before), after=tuple(after), value=value), x)

    def concat(self, axis: int, *inputs: str) -> str:
        return self.node(Concat(axis=axis), *inputs)

    def slice(self, x: str, begin: Sequence[int], end: Sequence[int], stride: Sequence[int]) -> str:
        return self.node(Slice(begin=tuple(begin), end=tuple(end), stride=tuple(stride)), x)

    def upsample(self, x: str, factor: tuple[int, int]) -> str:
        return self.node(Upsample2d(factor=factor), x)

    def expand(self, x: str, *shape: int) -> str:
        return self.node(Expand(shape=shape), x)

    def reshape(self, x: str, *shape: int) -> str:
        return self.node(Reshape(shape=shape), x)

    def build(self, *outputs: str) -> Graph:
        return Graph(
            name="test",
            tensors=self._tensors,
            nodes=tuple(self._nodes),
            inputs=tuple(self._inputs),
            outputs=outputs,
            constants=self._constants,
        )

    def values(self, graph: Graph) -> dict[str, np.ndarray]:
        """Random inputs."""
        return {
            name: self.rng.integers(-128, 128, graph.tensors[name].shape).astype(np.int8)
            for name in graph.inputs
        }

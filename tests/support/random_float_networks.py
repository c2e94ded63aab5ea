"""Random networks of real numbers: convolutions of all forms with what follows them."""

import numpy as np

from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    BinaryFunction,
    DataType,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatDense,
)

#: Channels that fill vectors, that leave part of one, and any.
_CHANNELS = (1, 3, 8, 16, 20, 24, 32, 33, 40, 48, 64, 72, 96, 144)


def random_float_graph(seed: int, layers: int = 6) -> Graph:
    """Return a network that depends on `seed` alone; its values stay of the magnitude of 1."""
    return _Network(seed, layers).build()


class _Network:
    def __init__(self, seed: int, layers: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._build = GraphBuilder("random")
        self._layers = layers

    def build(self) -> Graph:
        rng = self._rng
        batch, height, width = int(rng.integers(1, 3)), *map(int, rng.integers(1, 25, 2))
        shape = (batch, height, width, int(rng.choice(_CHANNELS)))
        x = self._build.add_input(Tensor(name="x", shape=shape, dtype=DataType.FLOAT32))
        for number in range(self._layers):
            x = self._layer(x, number)
        return self._build.build([x])

    def _layer(self, x: str, number: int) -> str:
        kind = int(self._rng.integers(5))
        channels = self._shape(x)[-1]
        match kind:
            case 0:
                y = self._convolution(x, number, int(self._rng.choice(_CHANNELS)), (1, 1))
            case 1:
                y = self._convolution(x, number, channels, self._window(x, 3), groups=channels)
            case 2:
                y = self._dense(x, number)
            case _:
                y = self._convolution(
                    x, number, int(self._rng.choice(_CHANNELS)), self._window(x, 4)
                )
        if self._shape(y) == self._shape(x) and self._rng.random() < 0.5:
            y = self._build.add(
                FloatBinary(function=BinaryFunction.ADD), [y, x], node=f"add{number}"
            )
        if self._rng.random() < 0.5:
            y = self._build.add(FloatClip(low=0.0, high=6.0), [y], node=f"clip{number}")
        return y

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._build.tensor(name).shape

    def _window(self, x: str, most: int) -> tuple[int, int]:
        _, height, width, _ = self._shape(x)
        rng = self._rng
        if min(height, width) >= 3 and rng.random() < 0.5:
            return 3, 3
        return tuple(int(rng.integers(1, min(extent, most) + 1)) for extent in (height, width))

    def _convolution(
        self, x: str, number: int, outputs: int, kernel: tuple[int, int], groups: int = 1
    ) -> str:
        rng, channels = self._rng, self._shape(x)[-1] // groups
        sides = [int(rng.integers(0, size)) for size in (*kernel, *kernel)]
        if rng.random() < 0.5:  # as most networks have them
            sides = [size // 2 for size in (*kernel, *kernel)]
        stride = (1, 1) if rng.random() < 0.6 else (2, 2)
        scale = (kernel[0] * kernel[1] * channels) ** -0.5
        weights = scale * rng.standard_normal((outputs, *kernel, channels))
        op = FloatConv2d(
            pads=(sides[0], sides[1], sides[2], sides[3]), stride=stride, groups=groups
        )
        return self._build.add(
            op, self._operands(x, weights, outputs, number), node=f"conv{number}"
        )

    def _dense(self, x: str, number: int) -> str:
        channels, outputs = self._shape(x)[-1], int(self._rng.choice(_CHANNELS))
        weights = channels**-0.5 * self._rng.standard_normal((outputs, channels))
        operands = self._operands(x, weights, outputs, number)
        return self._build.add(FloatDense(), operands, node=f"dense{number}")

    def _operands(self, x: str, weights: np.ndarray, outputs: int, number: int) -> list[str]:
        operands = [x, self._build.add_constant(f"w{number}", weights.astype(np.float32))]
        if self._rng.random() < 0.7:
            bias = self._rng.standard_normal(outputs).astype(np.float32)
            operands.append(self._build.add_constant(f"b{number}", bias))
        return operands

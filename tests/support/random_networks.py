"""Random networks of integer operators, with branches, odd sizes and every kind of window."""

from collections.abc import Callable

import numpy as np
from integer_graphs import GraphBuilder

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Softmax, Transpose


def random_graph(seed: int, layers: int = 7) -> Graph:
    """Return a network that depends on `seed` alone."""
    build = GraphBuilder(seed)
    rng = np.random.default_rng(seed)
    shape = (rng.integers(1, 3), rng.integers(1, 17), rng.integers(1, 33), rng.integers(1, 40))
    values = [build.input(*map(int, shape))]
    steps = (_conv, _conv, _pointwise, _depthwise, _add, _pool, _elementwise, _move)
    for _ in range(layers):
        x = values[int(rng.integers(max(0, len(values) - 2), len(values)))]
        values.append(steps[int(rng.integers(len(steps)))](build, rng, x))
    outputs = {values[-1], values[len(values) // 2 + 1]}
    if rng.random() < 0.3:
        exponentials = np.round(2.0**30 * np.exp(-np.arange(256) * 0.05)).astype(np.int32)
        table = build.constant(exponentials)
        outputs.add(build.node(Softmax(scale=1 / 256, zero_point=-128), values[-1], table))
    return build.build(*sorted(outputs))


def _kernel(rng: np.random.Generator, extent: int, most: int) -> int:
    return int(rng.integers(1, min(extent, most) + 1))


def _conv(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    _, height, width, _ = build.shape(x)
    kernel = (_kernel(rng, height, 5), _kernel(rng, width, 5))
    pads = tuple(int(rng.integers(0, size)) for size in (*kernel, *kernel))
    dilation = (1, 1)
    if kernel[0] * 2 - 1 <= height and kernel[1] * 2 - 1 <= width and rng.random() < 0.3:
        dilation = (2, 2)
    return build.conv(
        x,
        int(rng.integers(1, 70)),
        kernel=kernel,
        stride=(int(rng.integers(1, 3)), int(rng.integers(1, 3))),
        pads=(pads[0], pads[1], pads[2], pads[3]),
        dilation=dilation,
        wide=bool(rng.random() < 0.2),
    )


def _pointwise(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    return build.conv(x, int(rng.choice([8, 24, 32, 63, 64, 100])))


def _depthwise(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    _, height, width, channels = build.shape(x)
    kernel = (_kernel(rng, height, 3), _kernel(rng, width, 3))
    stride = int(rng.integers(1, 3))
    pad = int(rng.integers(0, min(kernel)))
    return build.conv(
        x,
        channels,
        kernel=kernel,
        stride=(stride, stride),
        pads=(pad, pad, pad, pad),
        groups=channels,
    )


def _add(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    channels = build.shape(x)[-1]
    left = build.conv(x, channels)
    right = build.conv(x, channels) if rng.random() < 0.5 else x
    return build.add(left, right)


def _pool(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    _, height, width, _ = build.shape(x)
    kernel = (_kernel(rng, height, 4), _kernel(rng, width, 4))
    stride = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
    pool: Callable[..., str] = build.max_pool if rng.random() < 0.5 else build.average_pool
    return pool(x, kernel, stride)


def _elementwise(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    match int(rng.integers(3)):
        case 0:
            return build.requantize(x)
        case 1:
            return build.clip(x, int(rng.integers(-128, 0)), int(rng.integers(0, 128)))
        case _:
            return build.lookup(x)


def _move(build: GraphBuilder, rng: np.random.Generator, x: str) -> str:
    batch, height, width, channels = build.shape(x)
    match int(rng.integers(5)):
        case 0:
            return build.pad(x, (0, 1, 0, 2), (0, 0, 2, 1), int(rng.integers(-128, 128)))
        case 1:
            return build.concat(3, x, x)
        case 2:
            return build.node(Transpose(permutation=(0, 2, 1, 3)), x)
        case 3:
            return build.reshape(x, batch, width, height, channels)
        case _:
            end = (batch, height, max(1, width - 1), channels)
            return build.slice(x, (0, 0, 0, 0), end, (1, 1, 2, 1))

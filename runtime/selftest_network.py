"""The small network of the self-test: an integer graph that needs no reader of model files."""

import numpy as np

from tilewright.compiler.graph import Array, Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import INT8_MAX, INT8_MIN, Conv2d, DataType, MaxPool2d
from tilewright.isa.integers import split_scale

_SEED = 2026
_SHAPE = (1, 10, 10, 3)
_FEATURES, _CLASSES = 12, 10


def small_network() -> Graph:
    """Make a network with a dense, a depthwise and a pointwise convolution, and pooling."""
    builder, rng = GraphBuilder("self-test"), np.random.default_rng(_SEED)
    x = builder.add_input(Tensor(name="input", shape=_SHAPE, dtype=DataType.INT8))
    x = _convolution(builder, rng, x, "first", outputs=_FEATURES, kernel=3)
    x = _convolution(builder, rng, x, "depthwise", outputs=_FEATURES, kernel=3, groups=_FEATURES)
    x = builder.add(MaxPool2d(kernel=(2, 2), stride=(2, 2)), [x], node="pool")
    x = _convolution(builder, rng, x, "pointwise", outputs=_CLASSES, kernel=1)
    return builder.build([x])


def network_input() -> dict[str, Array]:
    """Make the input."""
    rng = np.random.default_rng(_SEED)
    return {"input": rng.integers(INT8_MIN, INT8_MAX + 1, _SHAPE, dtype=np.int8)}


def _convolution(
    builder: GraphBuilder,
    rng: np.random.Generator,
    x: str,
    name: str,
    *,
    outputs: int,
    kernel: int,
    groups: int = 1,
) -> str:
    """Add a convolution that keeps height and width, with random weights that use all of int8."""
    channels = builder.tensor(x).shape[-1] // groups
    weights = rng.integers(INT8_MIN, INT8_MAX + 1, (outputs, kernel, kernel, channels))
    # Uniform int8 values have a standard deviation of 74, and so have their sums of products.
    spread = 74.0**2 * (kernel * kernel * channels) ** 0.5
    scale = rng.uniform(20, 90, outputs) / spread
    multiplier, shift = split_scale(scale.astype(np.float32))
    constants: dict[str, Array] = {
        "weights": weights.astype(np.int8),
        "bias": rng.integers(-4000, 4000, outputs).astype(np.int32),
        "multiplier": multiplier.astype(np.int32),
        "shift": shift.astype(np.int32),
    }
    op = Conv2d(
        pads=(kernel // 2,) * 4,
        groups=groups,
        input_zero_point=0,
        zero_point=3,
        low=INT8_MIN,
        high=INT8_MAX,
    )
    names = [builder.add_constant(f"{name}.{part}", data) for part, data in constants.items()]
    return builder.add(op, [x, *names], node=name)

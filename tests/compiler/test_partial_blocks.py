"""Networks whose channels do not fill the layout's blocks, on arrays of unequal sides."""

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from stepping import run_compiled

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.lowering.products import pack_weights
from tilewright.isa.presets import TINY

CONFIGS = {
    "24 x 16": TINY.replace(block_in=24, block_out=16, inp_entries=512),
    "16 x 24": TINY.replace(block_in=16, block_out=24, inp_entries=512),
}


@pytest.mark.parametrize("machine", CONFIGS)
def test_results_equal_the_integer_graph(machine: str) -> None:
    builder = GraphBuilder(seed=3)
    x = builder.input(1, 9, 7, 20)
    y = builder.conv(x, 64, kernel=(3, 3), pads=(1, 1, 1, 1))
    z = builder.conv(y, 17)
    graph = builder.build(builder.add(z, builder.conv(x, 17, kernel=(3, 3), pads=(1, 1, 1, 1))))
    inputs = builder.values(graph)
    values, _ = run_compiled(compile_graph(graph, CONFIGS[machine]), inputs)
    (name,) = graph.outputs
    assert (values[name] == evaluate(graph, inputs)[name]).all()


def test_absent_channels_are_not_multiplied(rng: np.random.Generator) -> None:
    weights = rng.integers(1, 100, (64, 3, 3, 64)).astype(np.int8)
    packed = pack_weights(weights, 1, CONFIGS["24 x 16"])
    # Four blocks of outputs of three blocks of inputs; two absent ones are written with zeros.
    assert packed.products == 4 * 3 * 9 + 2

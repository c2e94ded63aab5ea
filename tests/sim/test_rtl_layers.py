"""Layers of every kind that the compiler places on the accelerator, on the hardware.

Outputs, all memories and the cycle of every instruction are as on the simulator, and the outputs
those of the integer graph.
"""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from rtl_runs import run_on_both

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep, Target
from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import (
    Gather,
    IntegerOperator,
    LayerNorm,
    MovementOperator,
    Softmax,
    Transpose,
)
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PRESETS
from tilewright.sim.rtl_build import ToolError, find_toolchain

Layer = Callable[[GraphBuilder], str]

LAYERS: dict[str, Layer] = {
    "conv 1x1": lambda b: b.conv(b.input(1, 6, 7, 21), 35),
    "conv 3x3": lambda b: b.conv(b.input(1, 9, 8, 20), 18, kernel=(3, 3), pads=(1, 1, 1, 1)),
    "conv strided": lambda b: b.conv(
        b.input(1, 11, 10, 6), 7, kernel=(3, 2), stride=(2, 3), pads=(0, 1, 2, 0)
    ),
    "conv dilated": lambda b: b.conv(
        b.input(1, 12, 11, 5), 6, kernel=(3, 3), dilation=(3, 2), pads=(2, 3, 1, 2)
    ),
    "conv grouped": lambda b: b.conv(b.input(1, 6, 5, 24), 36, kernel=(3, 3), groups=3),
    "conv with a zero point of weights": lambda b: b.conv(
        b.input(1, 5, 5, 12), 9, kernel=(2, 2), wide=True
    ),
    "first conv": lambda b: b.conv(
        b.input(1, 16, 15, 3), 17, kernel=(7, 7), stride=(2, 2), pads=(3, 3, 3, 3)
    ),
    "depthwise": lambda b: b.conv(
        b.input(1, 9, 9, 19), 19, kernel=(3, 3), stride=(2, 1), pads=(1, 1, 1, 1), groups=19
    ),
    "separable": lambda b: b.conv(
        b.conv(b.conv(b.input(1, 9, 9, 8), 24), 24, kernel=(3, 3), pads=(1, 1, 1, 1), groups=24),
        9,
    ),
    "transposed conv": lambda b: b.conv_transpose(
        b.input(1, 6, 5, 10), 12, kernel=(4, 4), pads=(1, 1, 1, 1)
    ),
    "dense": lambda b: b.conv(b.input(1, 1, 1, 70), 33),
    "max pool": lambda b: b.max_pool(b.input(1, 9, 9, 18), (3, 3), (2, 2), (1, 1, 1, 1)),
    "average pool": lambda b: b.average_pool(
        b.input(1, 7, 8, 5), (3, 3), (1, 2), (1, 1, 1, 1), border=True
    ),
    "global average pool": lambda b: b.average_pool(b.input(1, 5, 7, 40), (5, 7), (1, 1)),
    "global pool of a large image": lambda b: b.max_pool(b.input(1, 24, 30, 5), (24, 30), (1, 1)),
    "add": lambda b: b.add(b.input(1, 6, 7, 19), b.input(1, 6, 7, 19)),
    "add to a conv": lambda b: (lambda x: b.add(x, b.conv(x, 12)))(b.input(1, 6, 7, 12)),
    "add a value per channel": lambda b: b.add(b.input(1, 6, 7, 19), b.input(1, 1, 1, 19)),
    "add a constant": lambda b: b.add(b.input(1, 6, 7, 19), b.int8_constant(6, 7, 19)),
    "multiply": lambda b: b.multiply(b.input(1, 6, 7, 19), b.input(1, 6, 7, 19)),
    "multiply a value per channel": lambda b: b.multiply(
        b.input(1, 6, 7, 37), b.input(1, 1, 1, 37), (-128, -128)
    ),
    "matrix product": lambda b: b.matmul(b.input(1, 2, 9, 20), b.input(1, 2, 20, 11)),
    "requantise": lambda b: b.requantize(b.input(1, 3, 4, 21)),
    "clip": lambda b: b.clip(b.input(1, 3, 4, 21), -7, 90),
    "look-up": lambda b: b.lookup(b.input(1, 3, 4, 21)),
    "pad": lambda b: b.pad(b.input(1, 3, 4, 9), (0, 1, 2, 0), (0, 3, 0, 0), -7),
    "pad channels": lambda b: b.pad(b.input(1, 3, 4, 9), (0, 0, 1, 3), (0, 2, 0, 5), 11),
    "concat rows": lambda b: b.concat(1, b.input(1, 3, 4, 9), b.input(1, 2, 4, 9)),
    "concat channels": lambda b: b.concat(
        3, b.input(1, 3, 4, 48), b.input(1, 3, 4, 5), b.input(1, 3, 4, 7)
    ),
    "slice": lambda b: b.slice(b.input(1, 9, 8, 9), (0, 1, 2, 0), (1, 9, 7, 9), (1, 3, 2, 1)),
    "slice channels": lambda b: b.slice(
        b.input(1, 4, 5, 20), (0, 1, 0, 3), (1, 4, 5, 17), (1, 1, 2, 4)
    ),
    "upsample": lambda b: b.upsample(b.input(1, 4, 5, 9), (2, 2)),
    "expand": lambda b: b.expand(b.input(1, 1, 3, 1), 1, 4, 3, 20),
    "view": lambda b: b.clip(b.reshape(b.requantize(b.input(1, 6, 4, 9)), 1, 24, 9), -50, 60),
}


@pytest.fixture(scope="module", autouse=True)
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


def test_layers_are_of_every_kind() -> None:
    placed = set()
    for layer in LAYERS.values():
        builder = GraphBuilder(seed=1)
        placed |= {type(node.op) for node in builder.build(layer(builder)).nodes}
    known = {*get_args(IntegerOperator), *get_args(MovementOperator)}
    assert known - placed == {Softmax, LayerNorm, Transpose, Gather}


def compiled_step(graph: Graph, config: AcceleratorConfig) -> AcceleratorStep:
    compiled = compile_graph(graph, config)
    assert all(entry.target is Target.ACCELERATOR for entry in compiled.placement)
    (step,) = compiled.steps
    assert isinstance(step, AcceleratorStep)
    return step


def check(layer: str, preset: str) -> None:
    builder = GraphBuilder(seed=len(layer))
    graph = builder.build(LAYERS[layer](builder))
    inputs = builder.values(graph)
    step = compiled_step(graph, PRESETS[preset])
    dram = step.program.initial_dram()
    for binding in step.inputs:
        place, array = binding.layout, inputs[binding.tensor]
        packed = place.pack(array if binding.fold is None else binding.fold.apply(array))
        dram[place.address : place.address + place.size_bytes] = packed
    memory = run_on_both(step.program, dram)
    expected = evaluate_all(graph, inputs)
    for binding in step.outputs:
        place = binding.layout
        data = memory[place.address : place.address + place.size_bytes]
        result = place.unpack(data).reshape(expected[binding.tensor].shape)
        np.testing.assert_array_equal(result, expected[binding.tensor])


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_on_tiny(layer: str) -> None:
    check(layer, "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_on_pynq(layer: str) -> None:
    check(layer, "pynq")

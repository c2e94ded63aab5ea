"""Lowered operators against the integer graph, over machines of every shape."""

from collections.abc import Callable

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from stepping import run_compiled

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import Target
from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Graph
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PRESETS
from tilewright.isa.validator import validate

TINY = PRESETS["tiny"]
MACHINES = {
    "pynq": PRESETS["pynq"],
    "tiny": TINY,
    "wide-out": TINY.replace(name="wide-out", block_out=8),
    "wide-in": TINY.replace(name="wide-in", block_in=8, wgt_entries=48),
    "odd": TINY.replace(name="odd", block_in=8, block_out=12, port_bits=32, inp_entries=250),
    "batch": TINY.replace(name="batch", batch=2, lut_tables=2),
    "narrow-queue": TINY.replace(
        name="narrow-queue", queue_entries=2, load_bursts=1, store_bursts=1, burst_beats=4
    ),
}


def check(graph: Graph, inputs: dict[str, np.ndarray], config: AcceleratorConfig) -> None:
    """Compile with and without fusion; demand the integer graph's values, nothing on the host."""
    expected = evaluate_all(graph, inputs)
    for keep in (False, True):
        compiled = compile_graph(graph, config, keep_intermediates=keep)
        hosted = [entry for entry in compiled.placement if entry.target is Target.HOST]
        assert not hosted
        assert len(compiled.steps) == 1
        values, _ = run_compiled(compiled, inputs)
        for binding in compiled.steps[0].outputs:
            np.testing.assert_array_equal(
                values[binding.tensor], expected[binding.tensor], err_msg=binding.tensor
            )


Case = Callable[[GraphBuilder], str]

CASES: dict[str, Case] = {
    "conv 1x1": lambda b: b.conv(b.input(1, 5, 7, 9), 11),
    "conv 3x3 padded": lambda b: b.conv(b.input(1, 9, 8, 20), 5, kernel=(3, 3), pads=(1, 1, 1, 1)),
    "conv stride and asymmetric padding": lambda b: b.conv(
        b.input(1, 11, 10, 6), 7, kernel=(3, 2), stride=(2, 3), pads=(0, 1, 2, 0)
    ),
    "conv dilated": lambda b: b.conv(
        b.input(1, 12, 11, 5), 6, kernel=(3, 3), dilation=(3, 2), pads=(2, 3, 1, 2)
    ),
    "conv grouped": lambda b: b.conv(b.input(1, 6, 5, 24), 36, kernel=(3, 3), groups=3),
    "conv grouped by blocks": lambda b: b.conv(b.input(1, 4, 4, 64), 64, groups=4),
    "depthwise": lambda b: b.conv(
        b.input(1, 9, 9, 13), 13, kernel=(3, 3), stride=(2, 1), pads=(1, 1, 1, 1), groups=13
    ),
    "depthwise with multiplier": lambda b: b.conv(
        b.input(1, 6, 6, 7), 21, kernel=(3, 3), pads=(1, 1, 1, 1), groups=7
    ),
    "weights with a zero point": lambda b: b.conv(
        b.input(1, 5, 5, 12), 9, kernel=(2, 2), wide=True
    ),
    "depthwise weights with a zero point": lambda b: b.conv(
        b.input(1, 5, 5, 12), 12, kernel=(2, 2), groups=12, wide=True
    ),
    "conv with tiles of padding alone": lambda b: b.conv(
        b.input(1, 1, 290, 3), 4, pads=(2, 0, 1, 3), stride=(1, 2)
    ),
    "transposed conv": lambda b: b.conv_transpose(b.input(1, 5, 6, 9), 7),
    "transposed conv with overlaps": lambda b: b.conv_transpose(
        b.input(1, 6, 5, 10), 12, kernel=(4, 4), pads=(1, 1, 1, 1)
    ),
    "transposed conv of odd taps": lambda b: b.conv_transpose(
        b.input(1, 5, 7, 5), 6, kernel=(3, 3), pads=(1, 1, 1, 1), extra=(1, 1)
    ),
    "transposed conv cropped": lambda b: b.conv_transpose(
        b.input(1, 4, 5, 6), 9, kernel=(3, 5), stride=(2, 3), pads=(0, 1, 1, 0)
    ),
    "transposed conv with gaps": lambda b: b.conv_transpose(
        b.input(1, 4, 3, 6), 5, kernel=(1, 2), stride=(3, 2), extra=(2, 0)
    ),
    "dense": lambda b: b.conv(b.input(1, 1, 1, 70), 33),
    "dense over an image": lambda b: b.conv(b.input(1, 4, 5, 11), 10, kernel=(4, 5)),
    "two images": lambda b: b.conv(b.input(2, 5, 5, 6), 7, kernel=(3, 3), pads=(1, 1, 1, 1)),
    "three images": lambda b: b.max_pool(
        b.conv(b.input(3, 5, 5, 6), 7, kernel=(3, 3)), (2, 2), (1, 1)
    ),
    "max pool padded": lambda b: b.max_pool(b.input(1, 7, 9, 18), (3, 2), (2, 2), (1, 1, 1, 0)),
    "average pool": lambda b: b.average_pool(b.input(1, 8, 6, 10), (2, 3), (2, 3)),
    "average pool counting padding": lambda b: b.average_pool(
        b.input(1, 7, 7, 10), (3, 3), (2, 2), (1, 1, 1, 1)
    ),
    "average pool without padding": lambda b: b.average_pool(
        b.input(1, 7, 8, 5), (3, 3), (1, 2), (1, 1, 1, 1), border=True
    ),
    "global average pool": lambda b: b.average_pool(b.input(1, 5, 7, 40), (5, 7), (1, 1)),
    "large global average pool": lambda b: b.average_pool(b.input(1, 24, 30, 5), (24, 30), (1, 1)),
    "large global max pool": lambda b: b.max_pool(b.input(1, 24, 30, 5), (24, 30), (1, 1)),
    "requantise": lambda b: b.requantize(b.input(1, 3, 4, 21)),
    "clip": lambda b: b.clip(b.input(1, 3, 4, 21), -7, 90),
    "look-up": lambda b: b.lookup(b.input(1, 3, 4, 21)),
    "add": lambda b: b.add(b.input(1, 6, 7, 19), b.input(1, 6, 7, 19)),
    "add to itself": lambda b: (lambda x: b.add(x, x))(b.input(1, 6, 7, 19)),
    "pad rows and columns": lambda b: b.pad(b.input(1, 3, 4, 9), (0, 1, 2, 0), (0, 3, 0, 0), -7),
    "pad channels": lambda b: b.pad(b.input(1, 3, 4, 9), (0, 0, 1, 3), (0, 2, 0, 5), 11),
    "concat channels by block": lambda b: b.concat(
        3, b.input(1, 3, 4, 48), b.input(1, 3, 4, 48), b.input(1, 3, 4, 5)
    ),
    "concat channels anywhere": lambda b: b.concat(
        3, b.input(1, 3, 4, 5), b.input(1, 3, 4, 9), b.input(1, 3, 4, 7)
    ),
    "concat rows": lambda b: b.concat(1, b.input(1, 3, 4, 9), b.input(1, 2, 4, 9)),
    "concat columns": lambda b: b.concat(2, b.input(1, 3, 4, 9), b.input(1, 3, 2, 9)),
    "slice": lambda b: b.slice(b.input(1, 9, 8, 9), (0, 1, 2, 0), (1, 9, 7, 9), (1, 3, 2, 1)),
    "slice channels": lambda b: b.slice(
        b.input(1, 4, 5, 20), (0, 1, 0, 3), (1, 4, 5, 17), (1, 1, 2, 4)
    ),
    "add a value per channel": lambda b: b.add(b.input(1, 6, 7, 19), b.input(1, 1, 1, 19)),
    "add a row": lambda b: b.add(b.input(1, 1, 7, 9), b.input(1, 6, 7, 9)),
    "add a column": lambda b: b.add(b.input(2, 6, 5, 9), b.input(2, 6, 1, 9)),
    "add a row to a column": lambda b: b.add(b.input(1, 1, 7, 9), b.input(1, 6, 1, 9)),
    "add a value per pixel": lambda b: b.add(b.input(1, 6, 7, 19), b.input(1, 6, 7, 1)),
    "add a number": lambda b: b.add(b.input(1, 1, 1, 1), b.input(1, 3, 5, 19)),
    "add a value per token": lambda b: b.add(b.input(1, 7, 19), b.input(1, 7, 1)),
    "add a constant per channel": lambda b: b.add(b.input(1, 6, 7, 19), b.int8_constant(19)),
    "add a constant number": lambda b: b.add(b.int8_constant(1, 1), b.input(2, 6, 7, 9)),
    "add a constant per row": lambda b: b.add(b.int8_constant(6, 1, 1), b.input(1, 6, 7, 9)),
    "add a constant": lambda b: b.add(b.int8_constant(1, 6, 7, 19), b.input(1, 6, 7, 19)),
    "add a constant to a conv": lambda b: b.add(
        b.int8_constant(7, 1), b.conv(b.input(1, 6, 7, 9), 19)
    ),
    "expand": lambda b: b.expand(b.input(1, 1, 1, 20), 1, 5, 6, 20),
    "expand channels": lambda b: b.expand(b.input(1, 4, 1, 1), 1, 4, 3, 11),
    "expand tokens": lambda b: b.expand(b.input(1, 1, 20), 1, 7, 20),
    "expand to the same": lambda b: b.expand(b.input(1, 5, 20), 1, 5, 20),
    "upsample": lambda b: b.upsample(b.input(1, 4, 5, 9), (2, 3)),
    "upsample columns": lambda b: b.upsample(b.input(2, 1, 17, 21), (1, 2)),
    "upsample rows": lambda b: b.upsample(b.input(1, 3, 1, 40), (4, 1)),
    "view": lambda b: b.clip(b.reshape(b.requantize(b.input(1, 6, 4, 9)), 1, 24, 9), -50, 60),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_operator_equals_the_integer_graph(case: str, machine: str) -> None:
    builder = GraphBuilder(seed=len(case) + 1000 * list(MACHINES).index(machine))
    graph = builder.build(CASES[case](builder))
    check(graph, builder.values(graph), MACHINES[machine])


def residual_block(builder: GraphBuilder) -> Graph:
    x = builder.input(1, 10, 9, 12)
    y = builder.conv(x, 12, kernel=(3, 3), pads=(1, 1, 1, 1))
    y = builder.conv(y, 12, kernel=(3, 3), pads=(1, 1, 1, 1))
    y = builder.add(y, x)
    z = builder.conv(y, 20, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1))
    z = builder.conv(z, 20)
    short = builder.conv(y, 20, stride=(2, 2))
    z = builder.add(short, z)
    z = builder.conv(z, 20, kernel=(3, 3), pads=(1, 1, 1, 1), groups=20)
    z = builder.add(z, builder.conv(z, 20))
    return builder.build(builder.average_pool(z, (5, 5), (1, 1)), y)


@pytest.mark.parametrize("machine", MACHINES)
def test_network_with_residuals_equals_the_integer_graph(machine: str) -> None:
    builder = GraphBuilder(seed=7)
    graph = residual_block(builder)
    check(graph, builder.values(graph), MACHINES[machine])


def test_additions_are_fused_into_their_convolution() -> None:
    builder = GraphBuilder(seed=7)
    compiled = compile_graph(residual_block(builder), PRESETS["pynq"])
    operators = [layer.operator for layer in compiled.steps[0].layers]
    assert operators.count("Conv2d+Add") == 3
    assert "Add" not in operators


def parallel_branches(builder: GraphBuilder) -> Graph:
    x = builder.input(1, 6, 5, 12)
    a = builder.conv(x, 48, kernel=(3, 3), pads=(1, 1, 1, 1))
    b = builder.reshape(builder.conv(x, 48), 1, 6, 5, 48)
    inner = builder.concat(3, b, builder.requantize(b))
    both = builder.concat(3, a, inner, builder.conv(x, 5))
    again = builder.concat(3, a, builder.conv(both, 48))
    return builder.build(builder.conv(both, 9), again, a)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_concatenated_is_computed_in_place(machine: str) -> None:
    builder = GraphBuilder(seed=5)
    graph = parallel_branches(builder)
    check(graph, builder.values(graph), MACHINES[machine])
    (step,) = compile_graph(graph, MACHINES[machine]).steps
    # One tensor is part of two concatenations: it is computed in one and copied to the other.
    copies = [layer.name for layer in step.layers if layer.operator == "Concat"]
    assert copies == [graph.nodes[-2].name]


def test_taps_without_coefficients_need_no_room_for_them() -> None:
    config = TINY.replace(coef_entries=4)
    builder = GraphBuilder(seed=2)
    graph = builder.build(builder.max_pool(builder.input(1, 7, 7, 6), (3, 3), (1, 1)))
    check(graph, builder.values(graph), config)


@pytest.mark.slow
def test_rows_longer_than_a_load_takes_are_cut() -> None:
    config = PRESETS["ecp5"].replace(
        block_in=128, block_out=1, vec_entries=65536, out_entries=65536
    )
    builder = GraphBuilder(seed=3)
    graph = builder.build(builder.max_pool(builder.input(1, 1, 220, 2), (1, 3), (1, 2)))
    (step,) = compile_graph(graph, config).steps
    validate(step.program)


def test_windows_with_more_rows_than_a_load_takes_are_cut() -> None:
    config = PRESETS["ecp5"].replace(vec_entries=65536)
    builder = GraphBuilder(seed=3)
    x = builder.input(1, 4500, 1, 2)
    graph = builder.build(builder.average_pool(x, (4500, 1), (1, 1)))
    check(graph, builder.values(graph), config)

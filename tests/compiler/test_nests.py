"""Loop nests of kernels: their meaning against the integer graph, and what has no code."""

from collections.abc import Callable

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from nest_values import run_nests

from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.lowering.listing import list_layer
from tilewright.compiler.lowering.schedule_program import program_of
from tilewright.compiler.tensor.accelerator import instruction_set
from tilewright.compiler.tensor.build import cast, clip, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.interpreter import interpret
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.errors import CompileError, InputError
from tilewright.isa.presets import PRESETS
from tilewright.isa.validator import validate
from tilewright.sim.simulator import simulate

INT8, INT16, INT32 = ScalarType.INT8, ScalarType.INT16, ScalarType.INT32
TINY = PRESETS["tiny"]
MACHINES = {
    "tiny": TINY,
    "odd": TINY.replace(name="odd", block_in=8, block_out=12, port_bits=32, inp_entries=250),
    "batch": TINY.replace(name="batch", batch=2),
}

Case = Callable[[GraphBuilder], str]

#: One of each kind of kernel, with tiles that do not come out even on a small machine.
CASES: dict[str, Case] = {
    "convolution": lambda b: b.conv(
        b.input(1, 5, 6, 9), 7, kernel=(3, 2), stride=(2, 1), pads=(1, 0, 1, 1)
    ),
    "transposed convolution": lambda b: b.conv_transpose(
        b.input(1, 3, 4, 5), 6, kernel=(3, 4), pads=(1, 1, 1, 1), extra=(1, 0)
    ),
    "grouped convolution": lambda b: b.conv(b.input(1, 4, 3, 24), 24, kernel=(2, 2), groups=3),
    "weights with a zero point": lambda b: b.conv(b.input(1, 3, 3, 6), 5, kernel=(2, 2), wide=True),
    "depthwise": lambda b: b.conv(
        b.input(1, 6, 5, 13), 13, kernel=(3, 3), stride=(2, 1), pads=(1, 1, 1, 1), groups=13
    ),
    "max pool": lambda b: b.max_pool(b.input(1, 6, 5, 7), (3, 2), (2, 2), (1, 1, 1, 0)),
    "average pool": lambda b: b.average_pool(
        b.input(1, 5, 6, 5), (3, 3), (2, 2), (1, 1, 1, 1), border=True
    ),
    "large average pool": lambda b: b.average_pool(b.input(1, 23, 13, 3), (23, 13), (1, 1)),
    "look-up": lambda b: b.lookup(b.input(1, 3, 4, 9)),
    "residual": lambda b: (lambda x: b.add(x, b.conv(x, 6)))(b.input(1, 4, 4, 6)),
    "addition": lambda b: b.add(b.input(1, 4, 3, 6), b.input(1, 4, 3, 6)),
    "concat": lambda b: b.concat(3, b.input(1, 3, 2, 24), b.input(1, 3, 2, 5)),
    "upsample": lambda b: b.upsample(b.input(1, 3, 4, 9), (3, 2)),
    "slice": lambda b: b.slice(b.input(1, 7, 6, 9), (0, 1, 2, 0), (1, 7, 6, 9), (1, 3, 2, 1)),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_the_nests_of_kernels_compute_what_the_graph_says(case: str, machine: str) -> None:
    builder = GraphBuilder(seed=len(case))
    graph = builder.build(CASES[case](builder))
    inputs = builder.values(graph)
    expected = evaluate_all(graph, inputs)
    values = run_nests(graph, inputs, MACHINES[machine], keep=case == "concat")
    for name in graph.outputs:
        np.testing.assert_array_equal(values[name].reshape(expected[name].shape), expected[name])


def gradient(rows: int = 7) -> Tensor:
    """The difference of neighbouring rows, limited: an operator that the graph does not have."""
    x = placeholder((1, 2, rows, 5, 1, 1, 4), INT8, "x")
    factor = placeholder((2, 4), INT16, "factor")
    tap = reduce_axis(2, "tap")

    def difference(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        value = x[group, block, row + tap.var, column, part, image, lane]
        return reduce_sum(cast(value, INT32) * cast(factor[tap.var, lane], INT32), tap)

    total = compute((1, 2, rows - 1, 5, 1, 1, 4), difference, "total")

    def limited(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        value = total[group, block, row, column, part, image, lane]
        return cast(clip(value, -100, 100), INT8)

    return compute(total.shape, limited, "y")


def scheduled_gradient(rows: int = 4, *, threads: bool = False) -> Schedule:
    s = Schedule(gradient(), intrinsics=instruction_set(TINY))
    out, vec = s.cache_write("y", "out", name="out"), s.cache_read("x", "vec", name="vec")
    factors = s.cache_read("factor", "coef", name="factors")
    s.split("y", "row", rows)
    s.reorder("y", "row.outer", "block", "row.inner")
    if threads:
        s.split("y", "row.outer", parts=2, names=("thread", "turn"))
        s.virtual_thread("y", "thread")
    tile = "turn" if threads else "row.outer"
    s.compute_at(out, "y", tile)
    s.set_scope("total", "run")
    s.compute_at("total", out, "part")
    s.reorder("total", "tap", "image", "lane")
    s.unroll("total", "tap")
    s.compute_at(vec, "y", tile)
    s.tensorize(vec, "i1", "copy_vec")
    s.tensorize(factors, "i0", "load_coef_1")
    s.tensorize("total", "image", "mac_vec")
    s.tensorize(out, "image", "clip_run")
    s.tensorize("y", "block", "store")
    return s


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 4, 6])
def test_a_schedule_by_hand_runs(rng: np.random.Generator, rows: int, threads: bool) -> None:
    factors = np.array([[-1], [1]], np.int16).repeat(4, axis=1)
    compiled = program_of(
        scheduled_gradient(rows, threads=threads), TINY, constants={"factor": factors}
    )
    validate(compiled.program)
    x = rng.integers(-128, 128, (1, 2, 7, 5, 1, 1, 4)).astype(np.int8)
    result = simulate(compiled.program, compiled.dram({"x": x})).dram
    expected = np.clip(np.diff(x.astype(np.int32), axis=2), -100, 100)
    np.testing.assert_array_equal(compiled.results(result)["y"], expected)
    interpreted = interpret(compiled.nest, {"x": x, "factor": factors})
    np.testing.assert_array_equal(interpreted["y"], expected)


def test_virtual_threads_take_turns() -> None:
    factors = np.ones((2, 4), np.int16)
    names = []
    for threads in (False, True):
        schedule = scheduled_gradient(3, threads=threads)
        program = program_of(schedule, TINY, constants={"factor": factors}).program
        names.append([type(one).__name__ for one in program.instructions if one.opcode != 0])
    assert names[0].count("Load") == names[1].count("Load")
    # A tile is loaded when something reads it.
    assert names[0][-6:] == ["Load", "Vector", "Store"] * 2
    assert names[1][-6:] == [*["Load", "Vector"] * 2, "Store", "Store"]


def test_what_is_no_instruction_is_refused() -> None:
    factors = np.ones((2, 4), np.int16)
    plain = Schedule(gradient(), intrinsics=instruction_set(TINY))
    with pytest.raises(CompileError) as caught:
        program_of(plain, TINY, constants={"factor": factors})
    assert str(caught.value) == (
        "'total' is computed element by element, the accelerator has no such instruction"
    )
    assert caught.value.hint == "let an intrinsic do the innermost loops, with tensorize"

    x = placeholder((6, 4), INT8, "x")
    y = compute((6, 4), lambda row, lane: x[row, lane], "y")
    with pytest.raises(CompileError) as caught:
        program_of(Schedule(y, intrinsics=instruction_set(TINY)), TINY)
    assert "'y' is computed element by element" in str(caught.value)


def test_inputs_of_a_schedule_are_checked(rng: np.random.Generator) -> None:
    compiled = program_of(
        scheduled_gradient(), TINY, constants={"factor": np.ones((2, 4), np.int16)}
    )
    with pytest.raises(InputError) as caught:
        compiled.dram({"x": np.zeros((1, 2, 7, 5, 1, 1, 3), np.int8)})
    assert str(caught.value) == (
        "input x: int8[1, 2, 7, 5, 1, 1, 4] is missing or of another shape or type"
    )


def test_tensors_in_dram_have_the_layout_of_the_machine() -> None:
    schedule = scheduled_gradient()
    with pytest.raises(CompileError) as caught:
        program_of(schedule, PRESETS["pynq"], constants={"factor": np.ones((2, 4), np.int16)})
    assert str(caught.value) == (
        "x: int8[1, 2, 7, 5, 1, 1, 4] is no constant and must have the axes group, block, row,"
        " column, part, image (1), lane, 16 channels a block"
    )


def test_a_layer_is_listed_from_expression_to_instructions() -> None:
    builder = GraphBuilder(seed=1)
    graph = builder.build(builder.max_pool(builder.input(1, 6, 5, 7), (3, 2), (2, 2)))
    (node,) = graph.nodes
    text = list_layer(graph, TINY, node.name)
    titles = [line for line in text.splitlines() if line.startswith("==")]
    assert [title.split(":")[0] for title in titles] == [
        f"== kernel {node.name}",
        "== what its inputs and outputs are",
        "== schedule",
        "== loop nest",
        "== tasks",
    ]
    assert "run[group, block, row, column, part, image, lane] = max(" in text
    assert "Tensorize(stage=run, axis=image, intrinsic=max_vec)" in text
    assert "max_vec 1 x 4 (vec[" in text
    assert "vector operation=max" in text
    with pytest.raises(InputError) as caught:
        list_layer(graph, TINY, "nothing")
    assert str(caught.value) == "no layer on the accelerator is called 'nothing'"
    assert caught.value.hint == f"its layers are {node.name}"

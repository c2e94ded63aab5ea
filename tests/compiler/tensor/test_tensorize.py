from collections.abc import Callable

import numpy as np
import pytest
from loop_nests import run

from tilewright.compiler.operators import Conv2d
from tilewright.compiler.tensor.accelerator import gemm_tile
from tilewright.compiler.tensor.build import (
    cast,
    constant,
    maximum,
    parameter,
    reduce_max,
    reduce_sum,
)
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, ExpressionError, Tensor
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.operators.convolution import correlate
from tilewright.compiler.tensor.operators.movement import pad_image
from tilewright.compiler.tensor.primitives import ScheduleError
from tilewright.compiler.tensor.printing import format_nest
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.transfers import padded_transfer, transfer

INT8, INT32 = ScalarType.INT8, ScalarType.INT32
GEMM = gemm_tile(1, 4, 4)


def product(rows: int = 3, outputs: int = 8, inputs: int = 12) -> Tensor:
    a = placeholder((rows, inputs), INT8, "A")
    w = placeholder((outputs, inputs), INT8, "W")
    k = reduce_axis(inputs, "k")
    return compute(
        (rows, outputs),
        lambda i, j: reduce_sum(cast(a[i, k.var], INT32) * cast(w[j, k.var], INT32), k),
        "C",
    )


def tiled(tensor: Tensor, *intrinsics: Intrinsic, block: int = 4) -> tuple[Schedule, str]:
    """A product in scratchpads, its tile the innermost loops."""
    schedule = Schedule(tensor, intrinsics=intrinsics)
    acc = schedule.cache_write("C", "acc")
    schedule.cache_read("A", "inp")
    schedule.cache_read("W", "wgt")
    schedule.split(acc, "i", 1)
    schedule.split(acc, "j", block)
    schedule.split(acc, "k", 4)
    schedule.reorder(acc, "k.outer", "i.outer", "j.outer", "i.inner", "j.inner", "k.inner")
    return schedule, acc


def data(rng: np.random.Generator, tensor: Tensor, inputs: int = 12) -> dict[str, np.ndarray]:
    rows, outputs = tensor.shape
    return {
        "A": rng.integers(-128, 128, (rows, inputs)).astype(np.int8),
        "W": rng.integers(-128, 128, (outputs, inputs)).astype(np.int8),
    }


@pytest.mark.parametrize("overwrites", [True, False])
def test_a_matrix_tile_of_the_array(rng: np.random.Generator, overwrites: bool) -> None:
    gemm = Intrinsic(name="gemm", pattern=GEMM.pattern, emitter="gemm", overwrites=overwrites)
    tensor = product()
    schedule, acc = tiled(tensor, gemm)
    schedule.tensorize(acc, "i.inner", "gemm")
    inputs = data(rng, tensor)
    expected = inputs["A"].astype(np.int32) @ inputs["W"].astype(np.int32).T
    np.testing.assert_array_equal(run(schedule, inputs), expected)
    text = format_nest(lower(schedule))
    first = "first=k.outer == 0" if overwrites else "first=false"
    assert (
        "C.acc[i.outer + :, j.outer * 4 + :] = gemm 1 x 4 x 4 "
        "(A.inp[i.outer + :, k.outer * 4 + :], "
        f"W.wgt[j.outer * 4 + :, k.outer * 4 + :], {first})" in text
    )
    assert ("] = 0" in text) is not overwrites


def test_transfers_take_tiles_of_any_size_up_to_theirs(rng: np.random.Generator) -> None:
    tensor = product()
    load = transfer("load", INT8, "global", "inp", 2, 16)
    schedule, acc = tiled(tensor, load)
    schedule.compute_at("A.inp", acc, "k.outer")
    schedule.split("A.inp", "i0", 1)
    schedule.tensorize("A.inp", "i0.inner", "load")
    inputs = data(rng, tensor)
    expected = inputs["A"].astype(np.int32) @ inputs["W"].astype(np.int32).T
    np.testing.assert_array_equal(run(schedule, inputs), expected)
    text = format_nest(lower(schedule))
    assert "A.inp[i0.outer + :, :] = load 1 x 4 (A[i0.outer + :, k.outer * 4 + :])" in text


def vector_immediate(
    name: str, lanes: int, operation: Callable[[Expr, Expr], Expr], emitter: str
) -> Intrinsic:
    """An operation on int32 accumulators with a scalar called ``immediate``."""
    value = placeholder((lanes,), INT32, "value", scope="acc")
    immediate = parameter("immediate", INT32)
    result = compute(
        (lanes,), lambda lane: operation(value[lane], immediate), "result", scope="acc"
    )
    return Intrinsic(name=name, pattern=result, emitter=emitter)


def test_vector_operations_take_scalars(rng: np.random.Generator) -> None:
    x = placeholder((5, 8), INT32, "x")
    relu = vector_immediate("max_immediate", 8, maximum, "vector_max")
    y = compute((5, 8), lambda i, j: maximum(x[i, j], cast(i, INT32)), "y")
    schedule = Schedule(y, intrinsics=[relu])
    local = schedule.cache_write("y", "acc")
    schedule.cache_read("x", "acc")
    schedule.tensorize(local, "j", "max_immediate")
    values = rng.integers(-9, 9, (5, 8)).astype(np.int32)
    expected = np.maximum(values, np.arange(5, dtype=np.int32)[:, np.newaxis])
    np.testing.assert_array_equal(run(schedule, {"x": values}), expected)
    assert (
        "y.acc[y.acc.i, :] = max_immediate 8 (x.acc[y.acc.i, :], immediate=int32(y.acc.i))"
        in format_nest(lower(schedule))
    )


def vector(body: Callable[[Tensor, Expr, Expr], Expr]) -> Schedule:
    x = placeholder((4, 8), INT32, "x", scope="acc")
    y = compute((4, 8), lambda i, j: body(x, i, j), "y", scope="acc")
    addition = vector_immediate("op", 8, lambda value, scalar: value + scalar, "vector_add")
    return Schedule(y, intrinsics=[addition])


def test_a_scalar_may_come_from_a_tensor() -> None:
    schedule = vector(lambda x, i, j: x[i, j] + x[i, 0])
    schedule.tensorize("y", "j", "op")
    assert "y[i, :] = op 8 (x[i, :], immediate=x[i, 0])" in format_nest(lower(schedule))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x, i, j: x[i, j] * 3, "value[j] + immediate is x[i, j] * 3"),
        (
            lambda x, i, j: x[i, j] + x[0, j],
            "parameter 'immediate' is x[0, j], which varies in the tile",
        ),
        (
            lambda x, i, j: x[i, 7 - j] + 1,
            "value[j] is x[i, 7 - j], which runs through it otherwise",
        ),
        (
            lambda x, i, j: constant(5, INT32) + x[i, j],
            "value[j] is 5, no element of a tensor",
        ),
        (
            lambda x, i, j: reduce_max(x[i, j], reduce_axis(2, "k")),
            "the intrinsic is no reduction, the stage is a max reduction",
        ),
    ],
)
def test_other_expressions_are_refused(
    body: Callable[[Tensor, Expr, Expr], Expr], reason: str
) -> None:
    schedule = vector(body)
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize("y", "j", "op")
    assert str(caught.value) == f"tensorize of stage 'y' at axis 'j' with 'op': {reason}"
    assert schedule.trace == ()


def test_wrong_extents_scopes_and_guards_are_refused() -> None:
    schedule, acc = tiled(product(), GEMM, block=2)
    where = "tensorize of stage 'C.acc' at axis 'i.inner' with 'gemm'"
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize(acc, "i.inner", "gemm")
    assert str(caught.value) == f"{where}: axis 'o' has 4 iterations, loop 'j.inner' 2"

    schedule, acc = tiled(product(), GEMM)
    schedule.set_scope("W.wgt", "inp")
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize(acc, "i.inner", "gemm")
    assert str(caught.value) == (f"{where}: operand 'wgt' is int8 in wgt, 'W.wgt' is int8 in inp")

    schedule, acc = tiled(product(outputs=6), GEMM)
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize(acc, "i.inner", "gemm")
    assert str(caught.value) == (
        f"{where}: the guard j.outer * 4 + j.inner < 6 cuts through the tile"
    )

    schedule, acc = tiled(product(), GEMM)
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize(acc, "j.outer", "gemm")
    assert str(caught.value) == (
        "tensorize of stage 'C.acc' at axis 'j.outer' with 'gemm': "
        "the data loops are j.outer, i.inner, j.inner, the intrinsic's axes b, o"
    )

    schedule, acc = tiled(product(), transfer("load", INT8, "global", "inp", 2, 8))
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize("A.inp", "i0", "load")
    assert str(caught.value) == (
        "tensorize of stage 'A.inp' at axis 'i0' with 'load': "
        "axis 'row' has at most 2 iterations, loop 'i0' 3"
    )


def test_nothing_changes_within_an_intrinsic() -> None:
    schedule, acc = tiled(product(), GEMM)
    schedule.tensorize(acc, "i.inner", "gemm")
    refusals = [
        (
            lambda: schedule.split(acc, "j.inner", 2),
            "split of stage 'C.acc': axis 'j.inner' lies within an intrinsic",
        ),
        (
            lambda: schedule.reorder(acc, "j.outer", "k.inner"),
            "reorder of stage 'C.acc': axis 'k.inner' lies within an intrinsic",
        ),
        (
            lambda: schedule.unroll(acc, "j.inner"),
            "unroll of stage 'C.acc': axis 'j.inner' lies within an intrinsic",
        ),
        (
            lambda: schedule.compute_at("A.inp", acc, "j.inner"),
            "compute_at of stage 'A.inp': axis 'j.inner' of 'C.acc' lies within an intrinsic",
        ),
        (
            lambda: schedule.tensorize(acc, "j.inner", "gemm"),
            "tensorize of stage 'C.acc': it uses intrinsic 'gemm' already",
        ),
        (
            lambda: schedule.set_scope("W.wgt", "inp"),
            (
                "set_scope of stage 'W.wgt': then tensorize of stage 'C.acc' at axis 'i.inner' "
                "with 'gemm': operand 'wgt' is int8 in wgt, 'W.wgt' is int8 in inp"
            ),
        ),
        (
            lambda: schedule.compute_inline("A.inp"),
            "compute_inline of stage 'A.inp': its reader 'C.acc' is an intrinsic already",
        ),
        (
            lambda: schedule.cache_read("A.inp", "other"),
            "cache_read of tensor 'A.inp': its reader 'C.acc' is an intrinsic already",
        ),
    ]
    for attempt, text in refusals:
        with pytest.raises(ScheduleError) as caught:
            attempt()
        assert str(caught.value) == text


def test_an_intrinsic_needs_a_definition_and_known_axes() -> None:
    x = placeholder((4,), INT32, "x")
    with pytest.raises(ExpressionError) as caught:
        Intrinsic(name="bad", pattern=x, emitter="bad")
    assert str(caught.value) == "the pattern of intrinsic 'bad' has no definition"

    def copy(lane: Expr) -> Expr:
        return x[lane]

    with pytest.raises(ExpressionError) as caught:
        Intrinsic(name="bad", pattern=compute((4,), copy, "y"), emitter="bad", flexible=("row",))
    assert str(caught.value) == "the pattern of intrinsic 'bad' has no axis 'row'"


def test_a_guard_shortens_a_flexible_axis(rng: np.random.Generator) -> None:
    x = placeholder((7, 10), INT32, "x")
    y = compute((7, 10), lambda i, j: x[i, j] + 1, "y")
    schedule = Schedule(y, intrinsics=[transfer("load", INT32, "global", "inp", 4, 16)])
    schedule.cache_read("x", "inp")
    schedule.tile("y", ["i", "j"], [4, 4])
    schedule.virtual_thread("y", "j.outer")
    schedule.compute_at("x.inp", "y", "j.outer")
    schedule.tensorize("x.inp", "i0", "load")
    values = rng.integers(-9, 9, (7, 10)).astype(np.int32)
    np.testing.assert_array_equal(run(schedule, {"x": values}), values + 1)
    assert (
        "x.inp[j.outer, :, :] = load min(4, 7 - i.outer * 4) x min(4, 10 - j.outer * 4) "
        "(x[i.outer * 4 + :, j.outer * 4 + :])" in format_nest(lower(schedule))
    )


def test_a_convolution_loads_its_border(rng: np.random.Generator) -> None:
    op = Conv2d(
        pads=(1, 1, 1, 1), stride=(2, 1), input_zero_point=-3, zero_point=0, low=-128, high=127
    )
    image = placeholder((1, 7, 6, 4), INT8, "image")
    padded = pad_image(image, op.pads, op.input_zero_point, "padded")
    weights = placeholder((2, 3, 3, 4), INT8, "weights")
    total = correlate(padded, weights, op.stride, (1, 1), 1, dtype=INT32, name="total")
    load = padded_transfer("load", INT8, "global", "inp", (8, 8, 4))
    schedule = Schedule(total, intrinsics=[load])
    schedule.set_scope("padded", "inp")
    schedule.tile("total", ["y", "x"], [3, 4])
    schedule.compute_at("padded", "total", "x.outer")
    schedule.split("padded", "i0", 1)
    schedule.tensorize("padded", "i1", "load")
    values = {
        "image": rng.integers(-128, 128, image.shape).astype(np.int8),
        "weights": rng.integers(-128, 128, weights.shape).astype(np.int8),
    }
    expected = run(Schedule(total), values)
    np.testing.assert_array_equal(run(schedule, values), expected)
    assert (
        "padded[0, :, :, :] = load min(7, 9 - y.outer * 6) x min(6, 8 - x.outer * 4) x 4 "
        "(image[0, y.outer * 6 - 1 + :, x.outer * 4 - 1 + :, :], top=1 - y.outer * 6, "
        "bottom=8 - y.outer * 6, left=1 - x.outer * 4, right=7 - x.outer * 4, fill=-3)"
        in format_nest(lower(schedule))
    )

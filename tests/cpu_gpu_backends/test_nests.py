"""Loop nests as machine code: functions, peeled tiles, dot products, faults."""

import math
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir

from tilewright.compiler.tensor.build import (
    call,
    cast,
    maximum,
    minimum,
    reduce_sum,
    round_shift,
)
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Const, Expr, Var
from tilewright.compiler.tensor.interpreter import interpret
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.printing import format_nest
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.semantics import call as exact_call
from tilewright.compiler.tensor.statements import For, LoopNest, Store
from tilewright.cpu_gpu_backends.codegen.dot_products import DotProducts, dot_products
from tilewright.cpu_gpu_backends.codegen.kernels import KernelOptions, emit_kernel
from tilewright.cpu_gpu_backends.codegen.peeling import peel_uneven_tiles
from tilewright.cpu_gpu_backends.codegen.single_nest import compile_nest
from tilewright.cpu_gpu_backends.codegen.target import X86_64_V3, CpuTarget, Feature, host_target
from tilewright.cpu_gpu_backends.cpu.arrangement import arrange
from tilewright.isa.errors import CompileError, InputError

FLOAT32, INT32 = ScalarType.FLOAT32, ScalarType.INT32
FUNCTIONS: dict[Function, tuple[Callable[[float], float], float, float]] = {
    Function.EXP: (math.exp, -100, 88),
    Function.LOG: (math.log, 1e-38, 1e38),
    Function.TANH: (math.tanh, -12, 12),
    Function.ERF: (math.erf, -6, 6),
}
#: The processor at hand, and itself without instructions for sums of products.
PROCESSORS = (host_target(), replace(host_target(), features=X86_64_V3.features))
PROCESSOR_NAMES = ("host", "no dot products")
#: Units in the last place that an approximation may be off; erf ends with a quotient of two sums.
ULPS = {Function.EXP: 4, Function.LOG: 4, Function.TANH: 4, Function.ERF: 6}


def run_elementwise(function: Function, values: np.ndarray) -> np.ndarray:
    x = placeholder(values.shape, FLOAT32, "x")
    out = compute(values.shape, lambda i: call(function, x[i]), "out")
    schedule = Schedule(out)
    schedule.vectorize("out", "i")
    (result,) = compile_nest(lower(schedule), host_target()).run({"x": values}).values()
    return result


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_are_accurate(function: Function, rng: np.random.Generator) -> None:
    exact, low, high = FUNCTIONS[function]
    values = rng.uniform(low, high, 4099).astype(np.float32)
    values[:500] = rng.uniform(max(low, 0.5), 2, 500)
    values[500:900] = rng.uniform(max(low, -0.01), 0.01, 400)
    expected = np.array([exact(float(value)) for value in values])
    error = np.abs(run_elementwise(function, values) - expected)
    # Around 1 the logarithm has no last place of its own.
    unit = np.maximum(np.spacing(np.abs(expected).astype(np.float32)), np.float32(2**-149))
    assert (error / unit).max() <= ULPS[function]


def test_functions_at_their_ends() -> None:
    inf, nan = float("inf"), float("nan")
    ends = np.array([inf, -inf, nan, 0, 200, -200], np.float32)
    np.testing.assert_array_equal(
        run_elementwise(Function.EXP, ends), np.array([inf, 0, nan, 1, inf, 0], np.float32)
    )
    logarithms = run_elementwise(Function.LOG, ends)
    np.testing.assert_array_equal(logarithms[:4], np.array([inf, nan, nan, -inf], np.float32))
    assert np.isnan(logarithms[5])
    for function in (Function.TANH, Function.ERF):
        np.testing.assert_array_equal(
            run_elementwise(function, ends), np.array([1, -1, nan, 0, 1, -1], np.float32)
        )


def test_a_fused_multiply_add_rounds_once(rng: np.random.Generator) -> None:
    operands = rng.standard_normal((3, 500)).astype(np.float32)
    operands[2, :250] = -operands[0, :250] * operands[1, :250]  # what is left is the rounding
    a, b, c = (placeholder((500,), FLOAT32, name) for name in "abc")
    out = compute((500,), lambda i: call(Function.FUSED_MULTIPLY_ADD, a[i], b[i], c[i]), "out")
    nest = lower(Schedule(out))
    given = dict(zip("abc", operands, strict=True))
    (result,) = compile_nest(nest, host_target()).run(given).values()
    (interpreted,) = interpret(nest, given).values()
    np.testing.assert_array_equal(result, interpreted)
    exact = operands.astype(np.longdouble)
    np.testing.assert_array_equal(interpreted, (exact[0] * exact[1] + exact[2]).astype(np.float32))


@pytest.mark.parametrize("dtype", [ScalarType.INT8, INT32, ScalarType.INT64])
def test_rounded_shifts_of_every_width(dtype: ScalarType, rng: np.random.Generator) -> None:
    low, high = dtype.limits
    values = rng.integers(low, high, 200, endpoint=True).astype(dtype.numpy)
    shifts = rng.integers(0, 64, 200).astype(dtype.numpy)
    x, s = placeholder((200,), dtype, "x"), placeholder((200,), dtype, "s")
    out = compute((200,), lambda i: round_shift(x[i], s[i]), "out")
    schedule = Schedule(out)
    schedule.vectorize("out", "i")
    given = {"x": values, "s": shifts}
    (result,) = compile_nest(lower(schedule), host_target()).run(given).values()
    expected = [
        exact_call(Function.ROUND_SHIFT, dtype, (int(value), int(shift)))
        for value, shift in zip(values, shifts, strict=True)
    ]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("rows", "tile"), [(7, 2), (13, 5), (3, 4)])
def test_peeling_changes_no_result(rows: int, tile: int, rng: np.random.Generator) -> None:
    a, b = placeholder((rows, 9), INT32, "a"), placeholder((9, 8), INT32, "b")
    k = reduce_axis(9, "k")
    out = compute((rows, 8), lambda i, j: reduce_sum(a[i, k.var] * b[k.var, j], k), "out")
    schedule = Schedule(out)
    copy = schedule.cache_write("out", "register")
    schedule.split("out", "i", tile)
    schedule.compute_at(copy, "out", "i.outer")
    schedule.unroll("out", "i.inner")
    schedule.unroll(copy, "i")
    schedule.vectorize("out", "j")
    nest = lower(schedule)
    given = {"a": rng.integers(-9, 9, (rows, 9)), "b": rng.integers(-9, 9, (9, 8))}
    given = {name: values.astype(np.int32) for name, values in given.items()}
    expected = given["a"] @ given["b"]
    for form in (nest, peel_uneven_tiles(nest)):
        np.testing.assert_array_equal(interpret(form, given)["out"], expected)
        np.testing.assert_array_equal(compile_nest(form, host_target()).run(given)["out"], expected)


@pytest.mark.parametrize(("columns", "fetched"), [(8, 1), (28, 2), (32, 2)])
def test_what_is_fetched_ahead_begins_lines(
    columns: int, fetched: int, rng: np.random.Generator
) -> None:
    a, b = placeholder((3, 5), FLOAT32, "a"), placeholder((5, columns), FLOAT32, "b")
    k = reduce_axis(5, "k")
    out = compute((3, columns), lambda i, j: reduce_sum(a[i, k.var] * b[k.var, j], k), "out")
    schedule = Schedule(out)
    schedule.reorder("out", "k", "i", "j")
    schedule.unroll("out", "i")
    schedule.vectorize("out", "j")
    schedule.prefetch("b", 1000)
    nest, module = lower(schedule), ir.Module()
    wide = replace(X86_64_V3, features=X86_64_V3.features | {Feature.AVX512F})
    emit_kernel(module, "kernel", nest, (None, None, None), KernelOptions(target=wide))
    # One for all three rows, which read the same; of 28 columns the last four end a line.
    assert str(module).count('call void @"llvm.prefetch.p0"') == fetched
    assert str(module).count("i64 4000") == fetched
    given = {"a": rng.standard_normal((3, 5)), "b": rng.standard_normal((5, columns))}
    given = {name: values.astype(np.float32) for name, values in given.items()}
    (result,) = compile_nest(nest, host_target()).run(given).values()
    np.testing.assert_allclose(result, given["a"] @ given["b"], rtol=1e-5)


@pytest.mark.parametrize("columns", [4, 8, 12, 24, 40])
def test_lanes_that_repeat_and_every_other_lane(columns: int, rng: np.random.Generator) -> None:
    """Sums over even and over odd places side by side, added up at the end."""
    a, b = placeholder((3, 10), FLOAT32, "a"), placeholder((5, 2 * columns), FLOAT32, "b")
    k = reduce_axis(5, "k")
    halves = compute(
        (3, 2 * columns),
        lambda i, j: reduce_sum(a[i, k.var * 2 + j % 2] * b[k.var, j], k),
        "halves",
    )
    out = compute((3, columns), lambda i, j: halves[i, j * 2] + halves[i, j * 2 + 1], "out")
    schedule = Schedule(out)
    schedule.compute_at("halves", "out", "i")
    schedule.set_scope("halves", "register")
    schedule.reorder("halves", "k", "i", "j")
    schedule.vectorize("halves", "j")
    schedule.vectorize("out", "j")
    given = {"a": rng.standard_normal((3, 10)), "b": rng.standard_normal((5, 2 * columns))}
    given = {name: values.astype(np.float32) for name, values in given.items()}
    pairs = given["a"].reshape(3, 5, 2), given["b"].reshape(5, columns, 2)
    expected = np.einsum("ikt,kjt->ij", *pairs)
    for target in PROCESSORS:
        for check_bounds in (False, True):
            code = compile_nest(lower(schedule), target, check_bounds=check_bounds)
            np.testing.assert_allclose(code.run(given)["out"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("outputs", [4, 20, 40, 64])
@pytest.mark.parametrize("target", PROCESSORS, ids=PROCESSOR_NAMES)
def test_dot_products_of_bytes(outputs: int, target: CpuTarget, rng: np.random.Generator) -> None:
    a = placeholder((12,), ScalarType.UINT8, "a")
    b = placeholder((3, outputs, 4), ScalarType.INT8, "b")
    k, t = reduce_axis(3, "k"), reduce_axis(4, "t")
    out = compute(
        (outputs,),
        lambda o: reduce_sum(
            cast(a[k.var * 4 + t.var], INT32) * cast(b[k.var, o, t.var], INT32), k, t
        ),
        "out",
    )
    schedule = Schedule(out, intrinsics=[dot_products(DotProducts.BYTES, "global")])
    schedule.reorder("out", "k", "o", "t")
    schedule.tensorize("out", "o", DotProducts.BYTES.value)
    given = {
        "a": rng.integers(0, 256, 12).astype(np.uint8),
        "b": rng.integers(-128, 128, (3, outputs, 4)).astype(np.int8),
    }
    expected = np.einsum("kt,kot->o", given["a"].reshape(3, 4).astype(int), given["b"].astype(int))
    compiled = compile_nest(lower(schedule), target)
    np.testing.assert_array_equal(compiled.run(given)["out"], expected)


@pytest.mark.parametrize("outputs", [4, 20, 40, 64])
@pytest.mark.parametrize("target", PROCESSORS, ids=PROCESSOR_NAMES)
def test_dot_products_of_halves(outputs: int, target: CpuTarget, rng: np.random.Generator) -> None:
    kind = DotProducts.HALVES
    a = placeholder((6,), ScalarType.BFLOAT16, "a")
    b = placeholder((3, outputs, 2), ScalarType.BFLOAT16, "b")
    k, t = reduce_axis(3, "k"), reduce_axis(2, "t")
    out = compute(
        (outputs,),
        lambda o: reduce_sum(
            cast(a[k.var * 2 + t.var], FLOAT32) * cast(b[k.var, o, t.var], FLOAT32), k, t
        ),
        "out",
    )
    schedule = Schedule(out, intrinsics=[dot_products(kind, "global")])
    schedule.reorder("out", "k", "o", "t")
    schedule.tensorize("out", "o", kind.value)
    nest = lower(schedule)
    # Sums of small whole numbers are exact, in whatever order and however often they are rounded.
    left = rng.integers(-99, 99, 6).astype(ml_dtypes.bfloat16)
    right = rng.integers(-99, 99, (3, outputs, 2)).astype(ml_dtypes.bfloat16)
    expected = np.einsum("kt,kot->o", left.reshape(3, 2).astype(int), right.astype(int))
    given = {"a": left.view(np.uint16), "b": right.view(np.uint16)}
    compiled = compile_nest(nest, target)
    np.testing.assert_array_equal(compiled.run(given)["out"], expected)
    np.testing.assert_array_equal(interpret(nest, given)["out"], expected)
    assert ("dpbf16ps" in compiled.text) is target.multiplies_halves


@pytest.mark.parametrize("count", [1, 2, 7, 16, 37])
@pytest.mark.parametrize("target", PROCESSORS, ids=PROCESSOR_NAMES)
def test_numbers_are_rounded_to_halves(
    count: int, target: CpuTarget, rng: np.random.Generator
) -> None:
    x = placeholder((count,), FLOAT32, "x")
    out = compute((count,), lambda i: cast(x[i], ScalarType.BFLOAT16), "out")
    values = rng.integers(0, 1 << 32, count).astype(np.uint32).view(np.float32)
    values[np.abs(values) < np.finfo(np.float32).tiny] = 0  # the instruction takes them for 0
    values[: count // 7] = np.array([np.inf, -np.inf, np.nan, 1 + 2**-8, 1 + 3 * 2**-8])[
        : count // 7
    ]
    expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    for lanes in (False, True):
        schedule = Schedule(out)
        if lanes:
            schedule.vectorize("out", "i")
        (bits,) = compile_nest(lower(schedule), target).run({"x": values}).values()
        np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16).astype(np.float32), expected)
        kept = placeholder((count,), ScalarType.BFLOAT16, "kept")
        schedule = Schedule(compute((count,), lambda i: cast(kept[i], FLOAT32), "out"))  # noqa: B023
        if lanes:
            schedule.vectorize("out", "i")
        (wide,) = compile_nest(lower(schedule), target).run({"kept": bits}).values()
        np.testing.assert_array_equal(wide, expected)


def test_an_access_out_of_bounds_is_an_error_where_bounds_are_checked() -> None:
    x = placeholder((4,), INT32, "x")
    out = placeholder((4,), INT32, "out")
    i = Var("i")
    body = For(
        var=i, extent=4, body=Store(tensor=out, indices=(i,), value=x[i + Const(1, i.dtype)])
    )
    nest = LoopNest(inputs=(x,), outputs=(out,), body=body)
    compiled = compile_nest(nest, host_target(), check_bounds=True)
    for _ in range(2):
        with pytest.raises(
            CompileError, match=r"^the loop nest reads or writes outside of a tensor$"
        ):
            compiled.run({"x": np.zeros(4, np.int32)})


def test_inputs_of_another_kind_are_refused() -> None:
    x = placeholder((4,), INT32, "x")
    compiled = compile_nest(lower(Schedule(compute((4,), lambda i: x[i] + 1, "y"))), host_target())
    with pytest.raises(InputError, match=r"^input 'x' is missing$"):
        compiled.run({})
    with pytest.raises(InputError, match=r"^input x: int32\[4\] is given as int64\[4\]$"):
        compiled.run({"x": np.zeros(4, np.int64)})


@pytest.mark.parametrize(("low", "high", "offset"), [(0, 255, 0), (10, 200, -77), (0, 255, 256)])
def test_bytes_read_off_a_float_are_those_of_the_difference(
    low: int, high: int, offset: int, rng: np.random.Generator
) -> None:
    base = 3 * 2**22
    x = placeholder((64,), FLOAT32, "x")

    def element(i: Expr) -> Expr:
        limited = minimum(maximum(x[i], float(base + low)), float(base + high))
        return cast(cast(limited - float(base + offset), INT32), ScalarType.UINT8)

    schedule = Schedule(compute((64,), element, "out"))
    schedule.vectorize("out", "i")
    nest = lower(schedule)
    compiled = compile_nest(nest, host_target())
    assert "fptosi" not in compiled.text
    values = (base + rng.integers(-400, 700, 64)).astype(np.float32)
    (expected,) = interpret(nest, {"x": values}).values()
    np.testing.assert_array_equal(compiled.run({"x": values})["out"], expected)


def test_a_transposition_goes_along_what_it_reads(rng: np.random.Generator) -> None:
    x = placeholder((3, 40, 50), FLOAT32, "x")
    schedule = Schedule(compute((40, 50, 3), lambda i, j, c: x[c, i, j], "out"))
    arrange(schedule)
    values = rng.standard_normal((3, 40, 50)).astype(np.float32)
    nest = lower(schedule)
    assert "vectorize for j" in format_nest(nest)
    (found,) = compile_nest(nest, host_target()).run({"x": values}).values()
    np.testing.assert_array_equal(found, values.transpose(1, 2, 0))

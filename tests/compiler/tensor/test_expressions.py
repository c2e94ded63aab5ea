import numpy as np
import pytest
from loop_nests import evaluate_tensor

from tilewright.compiler.tensor.build import (
    call,
    cast,
    constant,
    equal,
    maximum,
    reduce_sum,
    round_shift,
    select,
)
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Const, Expr, ExpressionError, Var
from tilewright.compiler.tensor.interpreter import ExecutionError, interpret
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.printing import format_tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import For, If, LoopKind, LoopNest, Store
from tilewright.isa import integers
from tilewright.isa.errors import InputError

INDEX, INT8, INT32, FLOAT32 = (
    ScalarType.INDEX,
    ScalarType.INT8,
    ScalarType.INT32,
    ScalarType.FLOAT32,
)
A = placeholder((3, 4), INT8, "A")
V = placeholder((4,), INT32, "V")


def refusal(build: object) -> str:
    assert callable(build)
    with pytest.raises(ExpressionError) as caught:
        build()
    return str(caught.value)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: A[0, 0] + V[0], "+ takes operands of one type, not int8 and int32"),
        (lambda: V[0] / 2, "/ is not defined on int32"),
        (lambda: constant(1.0, FLOAT32) // 2, "// is not defined on float32"),
        (lambda: (V[0] < 1) + (V[0] < 2), "+ is not defined on bool"),
        (lambda: V[0] & 1, "and is not defined on int32"),
        (lambda: A[0, 0] + 200, "200 is not a value of type int8"),
        (lambda: select(V[0], 1, V[1]), "select takes a bool condition, not int32"),
        (lambda: call(Function.EXP, V[0]), "exp is not defined on int32"),
        (
            lambda: call(Function.ROUND_SHIFT, V[0]),
            "round_shift takes 2 arguments of one type, not (int32)",
        ),
        (lambda: A[0], "tensor 'A' has 2 axes, not 1 indices"),
        (lambda: A[0, cast(V[0], INT8)], "tensor 'A' is indexed by int8 instead of index"),
        (lambda: maximum(1, 2), "max needs an expression beside a number"),
        (lambda: bool(V[0] < 1), "an expression has no truth value of its own"),
        (
            lambda: compute((3,), lambda i, j: A[i, j], "y"),
            "tensor 'y' has 1 axes, its body takes 2 indices",
        ),
        (
            lambda: compute((3,), lambda i: A[i, Var("q")], "y"),
            "the body of tensor 'y' uses 'q', no axis of it",
        ),
        (
            lambda: compute((0,), lambda i: V[i], "y"),
            "tensor 'y' must have extents of 1 or more, not [0]",
        ),
        (
            lambda: compute((4,), lambda k: reduce_sum(V[k], reduce_axis(4, "k")), "y"),
            "tensor 'y' has two axes called 'k'",
        ),
        (
            lambda: compute((4,), lambda i: reduce_sum(V[i], reduce_axis(4, "k")) + 1, "y"),
            "the body of tensor 'y' reduces inside an expression",
        ),
        (lambda: reduce_axis(0, "k"), "axis 'k' must have an extent, not 0"),
    ],
)
def test_type_rules_name_what_is_wrong(build: object, text: str) -> None:
    assert refusal(build) == text


def test_declarations_print() -> None:
    k = reduce_axis(4, "k")
    total = compute((3,), lambda i: reduce_sum(cast(A[i, k.var], INT32) * V[k.var], k), "y")
    assert format_tensor(total) == (
        "y: int32[3]\n    y[i] = sum(int32(A[i, k]) * V[k] for k in 0..4)"
    )
    mixed = compute((4,), lambda i: select(i < 2, -(V[i] - (V[0] - 3)), V[i] * (V[i] + 1)), "z")
    assert format_tensor(mixed) == (
        "z: int32[4]\n    z[i] = select(i < 2, 0 - (V[i] - (V[0] - 3)), V[i] * (V[i] + 1))"
    )


INTEGERS = np.array([-(2**31), -(2**31) + 1, -7, -1, 0, 1, 5, 2**31 - 1], dtype=np.int32)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_integers_wrap_around_as_in_numpy(dtype: type[np.integer]) -> None:
    kind = ScalarType(np.dtype(dtype).name)
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, info.max, info.max - 1, 3, 0], dtype=dtype)
    left, right = (grid.ravel() for grid in np.meshgrid(values, values))
    x, y = placeholder(left.shape, kind, "x"), placeholder(left.shape, kind, "y")
    inputs = {"x": left, "y": right}
    with np.errstate(over="ignore"):
        pairs = [
            (lambda i: x[i] + y[i], left + right),
            (lambda i: x[i] - y[i], left - right),
            (lambda i: x[i] * y[i], left * right),
            (lambda i: maximum(x[i], y[i]), np.maximum(left, right)),
            (lambda i: cast(x[i], INT8), left.astype(np.int8)),
            (lambda i: cast(x[i], ScalarType.UINT8), left.astype(np.uint8)),
            (lambda i: x[i] >> 2, left >> 2),
            (lambda i: x[i] << 2, left << 2),
        ]
        if info.min < 0:
            pairs.append((lambda i: call(Function.ABSOLUTE, x[i]), np.abs(left)))
    for body, expected in pairs:
        np.testing.assert_array_equal(
            evaluate_tensor(compute(left.shape, body, "r"), inputs), expected
        )


def test_division_floors_and_rounding_shift_goes_to_even() -> None:
    x = placeholder(INTEGERS.shape, INT32, "x")
    inputs = {"x": INTEGERS}
    for divisor in (3, 4, -3):
        quotient = compute(INTEGERS.shape, lambda i, d=divisor: x[i] // d, "q")
        remainder = compute(INTEGERS.shape, lambda i, d=divisor: x[i] % d, "r")
        np.testing.assert_array_equal(evaluate_tensor(quotient, inputs), INTEGERS // divisor)
        np.testing.assert_array_equal(evaluate_tensor(remainder, inputs), INTEGERS % divisor)
    for shift in (0, 1, 2, 31):
        rounded = compute(INTEGERS.shape, lambda i, s=shift: round_shift(x[i], s), "q")
        expected = integers.round_shift(INTEGERS.astype(np.int64), shift)
        np.testing.assert_array_equal(evaluate_tensor(rounded, inputs), expected)


def test_float32_rounds_each_operation(rng: np.random.Generator) -> None:
    left, right = rng.standard_normal((2, 50)).astype(np.float32)
    x, y = placeholder((50,), FLOAT32, "x"), placeholder((50,), FLOAT32, "y")
    inputs = {"x": left, "y": right}
    cases = [
        (lambda i: x[i] * y[i] + x[i], left * right + left),
        (lambda i: x[i] / y[i] - y[i], left / right - right),
        (lambda i: call(Function.SQRT, call(Function.ABSOLUTE, x[i])), np.sqrt(np.abs(left))),
        (lambda i: call(Function.FLOOR, x[i] * 5), np.floor(left * np.float32(5))),
        (lambda i: call(Function.ROUND_HALF_EVEN, x[i] * 4), np.rint(left * np.float32(4))),
        (lambda i: cast(x[i] * 100, INT8), np.trunc(left * np.float32(100)).astype(np.int8)),
    ]
    for body, expected in cases:
        if expected.dtype == np.int8:
            inputs = {"x": np.clip(left, -1, 1), "y": right}
            expected = np.trunc(inputs["x"] * np.float32(100)).astype(np.int8)
        np.testing.assert_array_equal(evaluate_tensor(compute((50,), body, "r"), inputs), expected)


def test_division_of_floats_by_zero_is_ieee() -> None:
    x = placeholder((4,), FLOAT32, "x")
    values = np.array([1.0, -1.0, 0.0, np.nan], dtype=np.float32)
    zero = constant(-0.0, FLOAT32)
    result = evaluate_tensor(compute((4,), lambda i: x[i] / zero, "r"), {"x": values})
    np.testing.assert_array_equal(result, [-np.inf, np.inf, np.nan, np.nan])


def store(index: Expr, value: Expr) -> LoopNest:
    y = placeholder((4,), INT32, "y")
    i = Var("i")
    return LoopNest(
        inputs=(V,),
        outputs=(y,),
        body=For(var=i, extent=4, body=Store(tensor=y, indices=(index,), value=value)),
    )


def test_execution_errors_name_tensor_and_element() -> None:
    i, inputs = Var("i"), {"V": np.arange(4, dtype=np.int32)}
    y = placeholder((4,), INT32, "y")
    with pytest.raises(ExecutionError, match=r"^element \[4\] is outside of V: int32\[4\]$"):
        interpret(store(i, V[i + 1]), inputs)
    with pytest.raises(ExecutionError, match=r"^element \[-1\] is outside of y: int32\[4\]$"):
        interpret(store(i - 1, V[i]), inputs)
    with pytest.raises(
        ExecutionError, match=r"^element \[0\] of y: int32\[4\] is read before it is set$"
    ):
        interpret(store(i, y[i] + V[i]), inputs)
    body = If(condition=equal(i, 1), body=Store(tensor=y, indices=(i,), value=V[i]))
    partial = LoopNest(inputs=(V,), outputs=(y,), body=For(var=i, extent=4, body=body))
    with pytest.raises(ExecutionError, match=r"^output y: int32\[4\] is not set everywhere$"):
        interpret(partial, inputs)
    with pytest.raises(InputError, match=r"^input 'V' is missing$"):
        interpret(partial, {})
    with pytest.raises(InputError, match=r"^input V: int32\[4\] is given as int64\[4\]$"):
        interpret(partial, {"V": np.arange(4)})
    zero = Const(0, INT32)
    with pytest.raises(InputError, match=r"^3 is divided by zero$"):
        interpret(store(i, (V[i] + 3) // zero), inputs)


def test_loops_said_to_be_independent_run_backwards() -> None:
    y = placeholder((4,), INT32, "y")
    i, zero = Var("i"), constant(0, INT32)
    value = select(equal(i, 0), zero, y[maximum(i - 1, 0)] + 1)
    body = Store(tensor=y, indices=(i,), value=value)
    running = LoopNest(inputs=(), outputs=(y,), body=For(var=i, extent=4, body=body))
    np.testing.assert_array_equal(interpret(running, {})["y"], np.arange(4))
    parallel = For(var=i, extent=4, kind=LoopKind.PARALLEL, body=body)
    with pytest.raises(ExecutionError, match=r"is read before it is set$"):
        interpret(LoopNest(inputs=(), outputs=(y,), body=parallel), {})

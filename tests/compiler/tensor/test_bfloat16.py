"""Numbers of bfloat16 against the package ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.compiler.tensor.bfloat16 import from_bits, nearest, to_bits
from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Const
from tilewright.compiler.tensor.interpreter import interpret
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.printing import format_expression
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.semantics import operation

BFLOAT16, FLOAT32 = ScalarType.BFLOAT16, ScalarType.FLOAT32


@pytest.fixture
def numbers(rng: np.random.Generator) -> np.ndarray:
    """Any bits, and every tie between two numbers of bfloat16 with its neighbours."""
    words = [rng.integers(0, 1 << 32, 20_000).astype(np.uint32)]
    halves = np.arange(1 << 16, dtype=np.uint32) << 16
    words += [halves + low for low in (0, 0x7FFF, 0x8000, 0x8001)]
    return np.concatenate(words).view(np.float32)


def test_bits_are_those_of_the_nearest_number(numbers: np.ndarray) -> None:
    expected = numbers.astype(ml_dtypes.bfloat16)
    bits, undefined = to_bits(numbers), np.isnan(numbers)
    np.testing.assert_array_equal(bits[~undefined], expected.view(np.uint16)[~undefined])
    assert np.isnan(from_bits(bits[undefined])).all()
    np.testing.assert_array_equal(from_bits(bits), expected.astype(np.float32))


def test_a_number_is_rounded_as_an_array_is(numbers: np.ndarray) -> None:
    some = numbers[np.isfinite(numbers)][::7]
    expected = some.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal([nearest(float(value)) for value in some], expected)


def test_rounding_happens_once() -> None:
    """Just above a tie in float64, on the tie in float32, to whose even side it must not go."""
    assert nearest(1 + 2**-8 + 2**-40) == 1 + 2**-7
    assert nearest(1 + 2**-8) == 1
    assert np.isnan(nearest(float("nan")))
    assert nearest(3.4e38) == float("inf")


def test_the_interpreter_rounds_and_widens(rng: np.random.Generator) -> None:
    x = placeholder((64,), FLOAT32, "x")
    half = compute((64,), lambda i: cast(x[i], BFLOAT16), "half")
    given = {"x": rng.standard_normal(64).astype(np.float32)}
    expected = given["x"].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        interpret(lower(Schedule(half)), given)["half"], expected.view(np.uint16)
    )
    kept = placeholder((64,), BFLOAT16, "kept")
    wide = compute((64,), lambda i: cast(kept[i], FLOAT32), "wide")
    found = interpret(lower(Schedule(wide)), {"kept": expected.view(np.uint16)})["wide"]
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_constants_and_operators_round() -> None:
    assert Const(1.005, BFLOAT16).value == float(ml_dtypes.bfloat16(1.005))
    assert format_expression(Const(1.5, BFLOAT16)) == "1.5"
    total = operation(Operator.ADD, BFLOAT16)(256.0, 1.0)
    assert total == float(ml_dtypes.bfloat16(256) + ml_dtypes.bfloat16(1))

"""The tables of the tensor language have an entry for every member of the set they describe."""

from typing import get_args

import pytest

from tilewright.compiler import operators
from tilewright.compiler.tensor import legality, operations, primitives, printing, semantics
from tilewright.compiler.tensor.operations import Function, Operator, Reduction
from tilewright.compiler.tensor.scalar_types import ScalarType


def test_every_operator_has_a_meaning_and_a_precedence() -> None:
    assert set(semantics._OPERATORS) == set(Operator)
    written_as_calls = {Operator.MINIMUM, Operator.MAXIMUM}
    assert set(printing._PRECEDENCE) == set(Operator) - written_as_calls


def test_every_reduction_has_an_operator_and_an_identity() -> None:
    assert set(operations._COMBINERS) == set(Reduction)
    for reduction in Reduction:
        for dtype in (ScalarType.INT8, ScalarType.FLOAT32):
            combine = semantics.operation(reduction.operator, dtype)
            assert combine(reduction.identity(dtype), 5) == 5


@pytest.mark.parametrize("function", Function)
def test_every_function_is_defined_on_some_type(function: Function) -> None:
    accepted = [dtype for dtype in ScalarType if function.accepts(dtype)]
    assert accepted
    for dtype in accepted:
        one = True if dtype is ScalarType.BOOL else 1.0 if dtype.is_float else 1
        semantics.call(function, dtype, (one,) * function.arity)


def test_every_primitive_has_a_name_in_refusals_and_in_traces() -> None:
    assert set(legality._NAMES) == set(get_args(primitives.Primitive))
    assert set(primitives._CLASSES.values()) == set(get_args(primitives.Primitive))


def test_scalar_types_hold_every_type_of_the_graph() -> None:
    names = {dtype.value for dtype in ScalarType}
    assert {dtype.value for dtype in operators.DataType} <= names
